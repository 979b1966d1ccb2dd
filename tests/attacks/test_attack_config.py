"""An attack by its settings: what anyone's own gives is checked, and a budget before any work."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.attacks import Attacked, deepfool, fgsm, minimal
from ukemi.attacks.config import AttackConfig
from ukemi.attacks.norms import radius_of
from ukemi.cli.attack import AttackCommandConfig
from ukemi.cli.attacking import attacked, attacked_by, attacks_of, transferred
from ukemi.data import Data
from ukemi.measures.attacks import styx_grid, under_attack
from ukemi.reports.notes import notes
from ukemi.training.sets import Recorder


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"images": [0.5]}, r"^attack: images of own should be a tensor, but it is a list\.$"),
        ({"success": True}, r"^attack: success of own should be a tensor, but it is a bool\.$"),
        ({"distance": None}, r"^attack: distance of own should be a tensor, but it is a NoneType\.$"),
        ({"norm": "l7"}, r"^attack: norm of own should be l1, l2 or linf, but it is 'l7'\.$"),
    ],
)
def test_parts_of_another_kind_are_named(given: dict[str, Any], said: str) -> None:
    def own(model: nn.Module, images: Tensor, labels: Tensor) -> Attacked:
        return replace(fgsm(model, images, labels, epsilon=0.1), **given)

    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(UserError, match=said):
        AttackConfig(attack=own).made()(model, torch.rand(3, 1, 2, 2), torch.zeros(3, dtype=torch.int64))


def test_images_of_another_type_or_with_a_gradient_become_like_those_given() -> None:
    def own(model: nn.Module, images: Tensor, labels: Tensor) -> Attacked:
        found = fgsm(model, images, labels, epsilon=0.1)
        return replace(found, images=found.images.double().requires_grad_(), distance=found.distance.requires_grad_())

    model, images = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.rand(3, 1, 2, 2)
    found = AttackConfig(attack=own).made()(model, images, torch.zeros(3, dtype=torch.int64))
    assert found.images.dtype == torch.float32 and not found.images.requires_grad and not found.distance.requires_grad


@pytest.mark.parametrize(("norm", "limit"), [("l1", 16), ("l2", 4), ("linf", 1), (None, 1)])
def test_no_attack_begins_where_a_budget_is_too_large(norm: Any, limit: float) -> None:
    class Untouched(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            pytest.fail("work was begun")

    index = torch.arange(3)
    data = Data(torch.rand(3, 1, 4, 4), index % 2, ("a", "b"), index, 3)
    flags = AttackConfig(attack="fgsm", epsilon=0, norm=norm).model_copy(update={"epsilon": None})
    attacks = attacks_of(flags, (0.1, 2 * limit))
    with pytest.raises(UserError, match=rf"^epsilon: it should lie in 0 to {limit} for {norm or 'linf'}, but"):
        attacked_by(Untouched(), data, attacks, seed=0)


class Mistaken(nn.Module):
    """Is wrong about every image of class 0."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([0 * images.flatten(1).sum(1), images.flatten(1).sum(1) + 1], 1)


NOTHING_RIGHT = Data(torch.rand(3, 1, 4, 4), torch.zeros(3, dtype=torch.int64), ("a", "b"), torch.arange(3), 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"attack": "deepfool", "norm": "l1"}, r"^norm: l2 or linf is needed"),
        ({"attack": "jsma", "theta": 7}, r"^theta: a number from -1 to 1"),
        ({"attack": "jsma", "gamma": 0.01}, r"^gamma: 0\.01 of 16 features leaves no pair to change"),
        ({"attack": "pgd", "epsilon": 5, "norm": "l2"}, r"^epsilon: it should lie in 0 to 4 for l2, but 5 was given"),
    ],
)
def test_wrong_settings_are_named_where_nothing_is_there_to_attack(settings: dict[str, Any], said: str) -> None:
    config = AttackConfig(**settings)
    with pytest.raises(UserError, match=said):
        attacked(Mistaken(), NOTHING_RIGHT, config, config.made())
    with pytest.raises(UserError, match=said):
        attacked_by(Mistaken(), NOTHING_RIGHT, [("", config)], seed=0)


def test_ones_own_attack_may_insist_on_index_and_seed() -> None:
    """Both always come with the images; they are no settings."""
    heard: list[tuple[list[int], int]] = []

    def own(model: nn.Module, images: Tensor, labels: Tensor, *, index: Tensor, seed: int) -> Attacked:
        heard.append((index.tolist(), seed))
        return fgsm(model, images, labels, epsilon=0.1)

    images, labels = torch.rand(2, 1, 4, 4), torch.tensor([0, 1])
    AttackConfig(attack=own).made(3)(nn.Flatten(), images, labels, index=torch.tensor([7, 5]))
    assert heard == [([7, 5], 3)]


@pytest.mark.parametrize(
    ("settings", "norm"),
    [
        ({"attack": "pgd", "epsilon": 1, "norm": "l1"}, "l1"),
        ({"attack": "fgsm", "epsilon": 0.1}, "linf"),
        ({"attack": "deepfool"}, "l2"),
        ({"attack": "deepfool", "norm": "linf"}, "linf"),
        ({"attack": "carlini-wagner"}, "l2"),
        ({"attack": "jsma", "gamma": 1}, "l2"),
        ({"attack": "square", "epsilon": 0.1}, "linf"),
    ],
)
def test_the_norm_is_known_where_nothing_is_there_to_attack(settings: dict[str, Any], norm: str) -> None:
    config = AttackConfig(**settings)
    result = attacked(Mistaken(), NOTHING_RIGHT, config, config.made())
    assert result.found.norm == norm and result.group == f"{settings['attack']}-{norm}"
    assert notes(3, 0, [result], {}) == ["No image is recognised, so nothing was attacked."]


def test_a_grid_for_larger_images_is_named() -> None:
    grid = [(group, config) for group, configs in styx_grid().items() for config in configs]
    said = r"^attack: styx's grid is for larger images \(epsilon: it should lie in 0 to 16 for l1, but 20 was"
    with pytest.raises(UserError, match=said):
        attacked_by(Mistaken(), NOTHING_RIGHT, grid, seed=0)


SEEDS: list[int] = []


def seeded(model: nn.Module, images: Tensor, labels: Tensor, *, seed: int = 0) -> Attacked:
    SEEDS.append(seed)
    return fgsm(model, images, labels, epsilon=1)


def test_a_sets_attack_is_run_again_by_its_own_seed() -> None:
    model, index = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), torch.arange(6)
    images = torch.rand(6, 1, 4, 4)
    data = Data(images, model(images).argmax(1), ("a", "b"), index, 6)
    config = AttackConfig(attack=f"{__name__}:seeded")
    recorder = Recorder(config.made(7))
    under_attack(model, data, recorder)
    made = recorder.set(model, data, config, data="own", split="test", seed=7)
    transferred(model, data, {Path("set"): made}, AttackCommandConfig(seed=3))
    assert SEEDS == [7, 7]


def test_a_smallest_budget_needs_an_attack_that_has_one() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(UserError, match=r"^attack: deepfool has no budget \(epsilon\), so no smallest one is found\.$"):
        minimal(deepfool, model, torch.rand(3, 1, 2, 2), torch.zeros(3, dtype=torch.int64), high=1)


def test_a_budget_just_above_the_limit_is_told_as_it_is() -> None:
    with pytest.raises(UserError, match=r"it should lie in 0 to 1 for linf, but 1\.0000001 was given"):
        radius_of(1.0000001, torch.rand(1, 1, 2, 2), "linf")


def test_budgets_of_an_attack_without_one_are_refused_by_their_own_name() -> None:
    with pytest.raises(UserError, match=r"^epsilons: deepfool .* does not take it"):
        attacks_of(AttackConfig(attack="deepfool"), (0.1, 0.2))

"""Adversarial training: what is trained on is what the attack found."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import ukemi.attacks.base
import ukemi.attacks.norms
from ukemi import UserError
from ukemi.attacks import fgsm, pgd
from ukemi.objectives import OBJECTIVES, Adversarial

LABELS, INDEX = torch.tensor([0, 1, 2, 1, 0, 2]), torch.arange(6)


class Spy(nn.Module):
    """Keeps what it saw in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.seen = nn.Linear(16, 3), list[Tensor]()

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen.append(x.detach().clone())
        return self.head(x.flatten(1))


@pytest.mark.parametrize("ratio", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("attack", ["fgsm", "bim", "pgd"])
def test_the_first_share_of_the_batch_is_attacked_within_the_budget(attack: str, ratio: float) -> None:
    model, images = Spy().train(), torch.rand(6, 1, 4, 4)
    objective = OBJECTIVES["adversarial"](attack=attack, epsilon=0.1, ratio=ratio).build(0.0)
    outcome = objective(model, images, LABELS, INDEX, 3)
    (seen,) = model.seen
    count = max(1, round(6 * ratio))  # a small share of a small batch is one image, not none in any batch
    assert model.training and torch.equal(seen[count:], images[count:])
    assert (seen - images).abs().max() <= 0.1 and seen.min() >= 0 and seen.max() <= 1
    model.eval()
    with torch.no_grad():
        plain = F.cross_entropy(model(images), LABELS, reduction="none")
    assert (outcome.losses[:count] > plain[:count]).all() and torch.allclose(outcome.losses[count:], plain[count:])
    outcome.losses.mean().backward()
    assert model.head.weight.grad is not None


def test_pgd_has_one_random_start_and_takes_every_step() -> None:
    """Madry's own: a second run from the image itself would double the cost of training."""
    model, images, passes = Spy(), torch.rand(6, 1, 4, 4), []
    objective = OBJECTIVES["adversarial"](attack="pgd", epsilon=0.9, steps=4).build(0.0)
    handle = model.register_forward_hook(lambda _part, given, _out: passes.append(given[0].detach()))
    objective(model, images, LABELS, INDEX, 0)
    handle.remove()
    assert [len(one) for one in passes] == [6] * (4 + 1 + 1)  # steps, the last point, the training step
    assert not torch.equal(passes[0], images)


def test_fgsm_is_the_attack_itself_with_a_random_start_keyed_by_epoch_and_index() -> None:
    model, images = Spy().train(), torch.rand(6, 1, 4, 4)
    objective = OBJECTIVES["adversarial"](attack="fgsm", epsilon=0.2).build(0.0)
    for epoch in (1, 2):
        objective(model, images, LABELS, INDEX, epoch)
        expected = fgsm(model, images, LABELS, epsilon=0.2, random_start=True, index=INDEX, seed=epoch).images
        assert torch.equal(model.seen[-1], expected)
    assert not torch.equal(model.seen[0], model.seen[1])


def test_runs_of_other_seeds_start_elsewhere() -> None:
    images, first = torch.rand(6, 1, 4, 4), []
    for seed, epoch in ((0, 3), (0, 3), (1, 3), (1, 2)):
        torch.manual_seed(0)
        model = Spy().train()
        objective = OBJECTIVES["adversarial"](attack="fgsm", epsilon=0.1).build(0.0)
        assert objective.plan(seed, epoch, 2) == [0, 0]
        objective(model, images, LABELS, INDEX, epoch)
        first.append(model.seen[0])
    assert torch.equal(first[0], first[1])
    assert not any(torch.equal(first[a], first[b]) for a, b in ((0, 2), (2, 3), (0, 3)))


def test_any_attack_of_ones_own() -> None:
    calls: list[Any] = []

    def mine(model: nn.Module, images: Tensor, labels: Tensor, *, index: Tensor) -> Any:
        calls.append(index)
        return pgd(model, images, labels, epsilon=0.1, steps=1, index=index)

    Adversarial(mine, ratio=0.5)(Spy().train(), torch.rand(6, 1, 4, 4), LABELS, INDEX, 0)
    Adversarial(partial(pgd, epsilon=0.1, steps=2))(Spy().train(), torch.rand(6, 1, 4, 4), LABELS, INDEX, 0)
    assert len(calls) == 1 and calls[0].tolist() == [0, 1, 2]


def plain(model: nn.Module, images: Tensor, labels: Tensor) -> Any:
    return fgsm(model, images, labels, epsilon=0.1)


@pytest.mark.parametrize("attack", ["deepfool", "carlini-wagner", "square", f"{__name__}:plain"])
def test_any_attack_by_its_name(attack: str) -> None:
    """Also those without a budget, or without a norm."""
    steps = None if ":" in attack else 200
    config = OBJECTIVES["adversarial"](attack=attack, ratio=0.5, steps=steps)
    model, images = Spy().train(), torch.rand(6, 1, 4, 4)
    with torch.no_grad():
        labels = model(images).argmax(1)
    model.seen.clear()
    outcome = config.build(0.0)(model, images, labels, INDEX, 0)
    (seen,) = model.seen
    assert torch.equal(seen[3:], images[3:]) and not torch.equal(seen[:3], images[:3])
    assert outcome.losses.shape == (6,) and seen.min() >= 0 and seen.max() <= 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"attack": "deepfool", "epsilon": 0.1}, "objective.epsilon: deepfool .* does not take it"),
        ({"attack": "hope"}, "objective.attack: 'hope' is none of fgsm"),
        ({"ratio": 0}, "objective.ratio: should be greater than 0"),
        ({"attack": "fgsm", "steps": 3}, "steps: fgsm .* does not take it"),
        ({"epsilon": -1}, "objective.epsilon: should be greater than or equal to 0"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        OBJECTIVES["adversarial"](**settings)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("attack", ["fgsm", "bim", "pgd"])
def test_a_step_reads_nothing_back_from_the_device(attack: str, norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a CUDA graph is captured no value is known, as with fake tensors, which refuse to tell one."""
    for room in (ukemi.attacks.base, ukemi.attacks.norms):
        monkeypatch.setattr(room, "recording", lambda device: True)
    objective = OBJECTIVES["adversarial"](attack=attack, epsilon=0.1, norm=norm).build(0.0)
    with FakeTensorMode():
        model, images = Spy().train(), torch.rand(6, 1, 4, 4)
        labels, index = torch.zeros(6, dtype=torch.int64), torch.arange(6)
        outcome = objective(model, images, labels, index, 3)
    assert outcome.losses.shape == (6,)


def test_a_step_that_may_look_does(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = OBJECTIVES["adversarial"](attack="bim", epsilon=0.1).build(0.0)
    with pytest.raises(UserError, match="images: pixels should lie in"):
        objective(Spy().train(), torch.full((6, 1, 4, 4), 2.0), LABELS, INDEX, 3)

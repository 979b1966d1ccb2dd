"""BIM and PGD: closed forms, order of strength, exact budgets, early leave, and foolbox and ART as oracles."""

import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from small_nets import fitted
from torch import Tensor, nn

from ukemi.attacks import ATTACKS, NORMS, Attacked, Norm, bim, fgsm, length, log_odds, minimal, pgd
from ukemi.data import DataSet
from ukemi.errors import UserError

Case = tuple[nn.Module, Tensor, Tensor]
BUDGETS: dict[Norm, float] = {"linf": 0.05, "l2": 0.8, "l1": 6.0}


class Linear(nn.Module):
    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.head = nn.Linear(48, classes).double()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


@pytest.fixture
def linear() -> Case:
    """A linear model, images that meet the box in places, and labels of which some are wrong."""
    model = Linear()
    images = (torch.rand(40, 3, 4, 4, dtype=torch.float64) * 1.6 - 0.3).clamp(0, 1)
    return model, images, torch.arange(40) % 2


@pytest.fixture(scope="module")
def trained(fashion: DataSet) -> Case:
    """A small network after a few epochs of fashion-mini, and 400 test images."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)]
    model = nn.Sequential(*layers)
    model = fitted(model, fashion, 4, 64)
    some = torch.arange(0, len(fashion.test.images), len(fashion.test.images) // 400)[:400]
    return model, fashion.test.images[some].float() / 255, fashion.test.labels[some]


def losses(model: nn.Module, found: Attacked, labels: Tensor) -> Tensor:
    with torch.no_grad():
        return log_odds(model(found.images), labels)


def check(found: Attacked, model: nn.Module, images: Tensor, labels: Tensor, epsilon: float) -> None:
    """What every result promises."""
    with torch.no_grad():
        assert torch.equal(found.success, model(found.images).argmax(1) != labels)
    assert bool((found.images >= 0).all()) and bool((found.images <= 1).all())
    assert bool((length(found.images - images, found.norm).double() <= epsilon).all())
    assert torch.equal(found.distance, length(found.images - images, found.norm))


def test_pgd_and_bim_reach_the_linf_optimum(linear: Case) -> None:
    model, images, labels = linear
    best = losses(model, fgsm(model, images, labels, epsilon=0.2), labels)
    for attack in (bim, pgd):
        found = attack(model, images, labels, epsilon=0.2, early=False)
        assert torch.allclose(losses(model, found, labels), best, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_order_of_strength_is_exact_on_a_linear_model(linear: Case, norm: Norm) -> None:
    model, images, labels = linear
    epsilon = {"linf": 0.1, "l2": 0.5, "l1": 2.0}[norm]
    same: dict[str, Any] = {"epsilon": epsilon, "norm": norm, "steps": 10, "step_size": epsilon, "early": False}
    one = losses(model, fgsm(model, images, labels, epsilon=epsilon, norm=norm), labels)
    ten = losses(model, bim(model, images, labels, **same), labels)
    all_starts = losses(model, pgd(model, images, labels, restarts=2, **same), labels)
    assert bool((ten >= one).all()) and bool((all_starts >= ten).all())


@pytest.mark.parametrize("norm", NORMS)
def test_accuracy_falls_in_epsilon_and_steps_on_a_linear_model(linear: Case, norm: Norm) -> None:
    model, images, labels = linear
    wide = {"linf": 0.3, "l2": 1.5, "l1": 6.0}[norm]
    runs = [bim(model, images, labels, epsilon=wide * share / 8, norm=norm).success for share in range(9)]
    longer = [
        bim(model, images, labels, epsilon=wide / 2, step_size=wide / 20, steps=steps, norm=norm).success
        for steps in (0, 1, 2, 4, 8, 16)
    ]
    for row in (runs, longer):
        assert all(bool((after | ~before).all()) for before, after in pairwise(row))
    assert int(runs[-1].sum()) > int(runs[0].sum())


@pytest.mark.parametrize("norm", NORMS)
def test_order_of_strength_on_a_trained_network(trained: Case, norm: Norm) -> None:
    """Means over 150 images. Same runs with more steps, or more starts, are exact; FGSM may win by 0.02 at most."""
    model, images, labels = trained[0], trained[1][:150], trained[2][:150]
    epsilon = BUDGETS[norm]
    same: dict[str, Any] = {"epsilon": epsilon, "norm": norm, "steps": 10, "early": False}
    one = losses(model, fgsm(model, images, labels, epsilon=epsilon, norm=norm), labels)
    ten = losses(model, bim(model, images, labels, **same), labels)
    all_starts = losses(model, pgd(model, images, labels, **same), labels)
    assert bool((all_starts >= ten - 1e-4).all())
    assert float(ten.mean()) >= float(one.mean()) - 0.02
    solved = [
        float(pgd(model, images, labels, epsilon=epsilon * share / 4, norm=norm, steps=10).success.float().mean())
        for share in range(5)
    ]
    assert all(after >= before - 0.005 for before, after in pairwise(solved)), solved
    assert solved[-1] > solved[0] + 0.2
    longer = [
        bim(model, images, labels, epsilon=epsilon, step_size=epsilon / 5, steps=steps, norm=norm).success
        for steps in (0, 2, 5, 10)
    ]
    assert all(bool((after | ~before).all()) for before, after in pairwise(longer))


@pytest.mark.parametrize("norm", NORMS)
def test_results_keep_their_promises(trained: Case, norm: Norm) -> None:
    model, images, labels = trained[0], trained[1][:100], trained[2][:100]
    epsilon = BUDGETS[norm] / 2
    early = pgd(model, images, labels, epsilon=epsilon, norm=norm, steps=8, restarts=2)
    check(early, model, images, labels, epsilon)
    full = pgd(model, images, labels, epsilon=epsilon, norm=norm, steps=8, restarts=2, early=False)
    check(full, model, images, labels, epsilon)
    assert full.forwards.tolist() == [27] * 100 and full.backwards.tolist() == [24] * 100
    # who is fooled as it is leaves at once; who is never fooled takes every step
    with torch.no_grad():
        wrong = model(images).argmax(1) != labels
    assert bool((early.forwards[wrong] == 1).all()) and not bool(early.distance[wrong].any())
    assert bool((early.forwards[~early.success] == 27).all())
    assert bool((early.forwards <= 27).all()) and 0 < int(early.success.sum()) < 100
    assert all(parameter.grad is None for parameter in model.parameters())


def test_zero_steps_give_the_clean_image(trained: Case) -> None:
    model, images, labels = trained
    with torch.no_grad():
        wrong = model(images).argmax(1) != labels
    for attack in (bim, pgd, partial(pgd, zero_start=False)):
        found = attack(model, images, labels, epsilon=0.1, steps=0)
        assert torch.equal(found.images, images) and torch.equal(found.success, wrong)
        assert found.forwards.tolist() == [1] * len(images) and not bool(found.backwards.any())
    none = pgd(model, images, labels, epsilon=0.0, steps=3)
    assert torch.equal(none.images, images) and torch.equal(none.success, wrong)


def test_bim_is_pgd_without_random_starts(trained: Case) -> None:
    model, images, labels = trained
    left = bim(model, images[:50], labels[:50], epsilon=0.03, steps=6, early=False)
    right = pgd(model, images[:50], labels[:50], epsilon=0.03, steps=6, early=False, random_start=False)
    assert torch.equal(left.images, right.images)
    other = pgd(model, images[:50], labels[:50], epsilon=0.03, steps=6, early=False, zero_start=False)
    assert other.forwards.tolist() == [7] * 50 and not torch.equal(other.images, left.images)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_samples_do_not_see_their_batch_mates(trained: Case, norm: Norm, early: bool) -> None:
    model, images, labels = trained
    model = model.double()
    images, labels, index = images[:8].double(), labels[:8], torch.tensor([40, 1, 9, 7, 3, 22, 5, 0])
    epsilon = BUDGETS[norm] / 2
    try:

        def attacked(rows: Tensor) -> Attacked:
            options: dict[str, Any] = {"epsilon": epsilon, "norm": norm, "steps": 6, "restarts": 2, "early": early}
            return pgd(model, images[rows], labels[rows], index=index[rows], seed=2, **options)

        together = attacked(torch.arange(8))
        order = torch.tensor([3, 6, 0, 7, 5, 1, 4, 2])
        for rows in ([torch.tensor([row]) for row in range(8)], [order]):
            parts = [attacked(each) for each in rows]
            joined = torch.cat(rows)
            assert torch.allclose(torch.cat([each.images for each in parts]), together.images[joined], atol=1e-9)
            assert torch.equal(torch.cat([each.forwards for each in parts]), together.forwards[joined])
            assert torch.equal(torch.cat([each.success for each in parts]), together.success[joined])
    finally:
        model.float()


def test_targets_are_reached(trained: Case) -> None:
    model, images, labels = trained
    images, labels = images[:60], labels[:60]
    targets = (labels + 1) % 10
    found = pgd(model, images, labels, epsilon=0.3, targets=targets, steps=20)
    with torch.no_grad():
        assert torch.equal(found.success, model(found.images).argmax(1) == targets)
    assert float(found.success.float().mean()) > 0.7
    with pytest.raises(UserError, match="differ from its label"):
        pgd(model, images, labels, epsilon=0.3, targets=labels)


def test_minimal_finds_the_distance_on_a_linear_model(linear: Case) -> None:
    model, images, labels = linear
    images = 0.4 + 0.2 * images
    with torch.no_grad():
        odds = log_odds(model(images), labels)
    slope = (model.head.weight[1] - model.head.weight[0]).detach()  # type: ignore[union-attr, operator]
    for norm, dual, high in (("linf", slope.abs().sum(), 0.3), ("l2", slope.norm(), 1.5)):
        exact = (-odds / dual).clamp(min=0)
        found = minimal(fgsm, model, images, labels, high=high, norm=norm, tolerance=0.005)  # type: ignore[arg-type]
        near = exact < high * 0.99
        assert bool(found.success[near].all()) and not bool(found.success[exact > high * 1.01].any())
        assert bool((found.distance[near] >= exact[near]).all())
        assert bool((found.distance[near] <= exact[near] * 1.006).all())
        assert torch.equal(found.images[~found.success], images[~found.success])
        assert bool((found.forwards[odds > 0] == 1).all())


def test_minimal_on_a_network_does_not_see_batch_mates(trained: Case) -> None:
    model, images, labels = trained
    model = model.double()
    images, labels, index = images[:6].double(), labels[:6], torch.arange(6) + 3
    try:
        options: dict[str, Any] = {"high": 0.3, "steps": 4, "rounds": 6}
        together = minimal(pgd, model, images, labels, index=index, **options)
        for row in range(6):
            one = slice(row, row + 1)
            alone = minimal(pgd, model, images[one], labels[one], index=index[one], **options)
            assert torch.allclose(alone.images, together.images[one], atol=1e-9)
            assert torch.equal(alone.forwards, together.forwards[one])
        fixed = pgd(model, images, labels, epsilon=0.3, steps=4)
        assert bool((together.success == fixed.success).all())
        assert bool((together.distance <= fixed.distance + 1e-12)[fixed.success].all())
    finally:
        model.float()


class Broken(nn.Module):
    """No slope at all on dark images, NaN on bright ones."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        bright = images.flatten(1).mean(1, keepdim=True)
        return torch.where(bright > 0.7, torch.nan, torch.where(bright < 0.3, self.head.bias, logits))


@pytest.mark.parametrize("norm", NORMS)
def test_broken_models_break_no_images(norm: Norm) -> None:
    model = Broken()
    images = torch.linspace(0.1, 0.9, 9)[:, None, None, None].expand(9, 1, 4, 4).clone()
    labels = torch.full((9,), int(model.head.bias.argmax()))
    for early in (True, False):
        found = pgd(model, images, labels, epsilon=0.05, norm=norm, steps=3, early=early)
        assert bool((length(found.images - images, norm) <= 0.05).all()) and bool((found.images >= 0).all())
        assert not bool(found.success[:2].any())
        if early:  # an answer that is not a number is an error
            assert bool(found.success[7:].all())
    assert model.training and model.head.training


def test_bad_input_is_named(trained: Case) -> None:
    model, images, labels = trained
    case: tuple[nn.Module, Tensor, Tensor] = (model, images[:2], labels[:2])
    for options, words in (
        ({"steps": -1}, "steps: it should be 0 or more"),
        ({"restarts": 0}, "restarts: it should be 1 or more"),
        ({"step_size": -0.1}, "step_size: it should be 0 or more"),
        ({"step_size": float("nan")}, "step_size: it should be 0 or more"),
        ({"random_start": False, "restarts": 3}, "restarts: without random starts"),
        ({"random_start": False, "zero_start": False}, "zero_start: "),
        ({"epsilon": 1.5}, "epsilon: it should lie in 0 to 1 for linf"),
        ({"norm": "l7"}, "norm: 'l7' is not known"),
    ):
        with pytest.raises(UserError, match=words):
            pgd(*case, **{"epsilon": 0.1, **options})  # type: ignore[arg-type]
    for options, words in (({"high": -1}, "high: it"), ({"tolerance": 0}, "tolerance: "), ({"rounds": -1}, "rounds: ")):
        with pytest.raises(UserError, match=words):
            minimal(bim, *case, **{"high": 0.1, **options})  # type: ignore[arg-type]
    assert ATTACKS["fgsm"] is fgsm and ATTACKS["bim"] is bim and ATTACKS["pgd"] is pgd


def rate(found: Attacked) -> float:
    return float(found.success.float().mean()) * 100


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("norm", NORMS)
def test_foolbox_agrees(trained: Case, norm: Norm, share: float) -> None:
    """Success rates in points; one point is 4 of the 400 images. In l1 foolbox steps along the gradient, which is not
    the steepest way there: ours should be the stronger."""
    foolbox = import_module("foolbox")
    model, images, labels = trained
    epsilon = BUDGETS[norm] * share
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    kinds = (f"{norm.capitalize()}{kind}" for kind in ("FastGradientAttack", "BasicIterativeAttack", "PGD"))
    first, second, third = (getattr(foolbox.attacks, kind) for kind in kinds)

    def theirs(attack: Any) -> float:
        torch.manual_seed(0)
        success = attack(wrapped, images, labels, epsilons=epsilon)[2]
        model.zero_grad(set_to_none=True)
        return float(success.float().mean()) * 100

    budget: dict[str, Any] = {"epsilon": epsilon, "norm": norm}
    pairs = [
        (rate(fgsm(model, images, labels, **budget)), theirs(first())),
        (rate(bim(model, images, labels, steps=10, **budget)), theirs(second(steps=10, rel_stepsize=0.25))),
        (
            rate(pgd(model, images, labels, steps=20, zero_start=False, **budget)),
            theirs(third(steps=20, rel_stepsize=0.125)),
        ),
    ]
    assert all(ours >= other - 1 and (norm == "l1" or ours <= other + 1) for ours, other in pairs), pairs


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_art_agrees(trained: Case, norm: Norm, share: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("art")
        from art.attacks.evasion import FastGradientMethod, ProjectedGradientDescentPyTorch
        from art.estimators.classification import PyTorchClassifier
    model, images, labels = trained
    epsilon = BUDGETS[norm] * share
    order = {"linf": "inf", "l2": 2}[norm]

    def theirs(make: Callable[[Any], Any]) -> float:
        torch.manual_seed(0)
        np.random.seed(0)  # ART draws its random start from here
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier = PyTorchClassifier(
                model, nn.CrossEntropyLoss(), (1, 28, 28), 10, clip_values=(0, 1), device_type="cpu"
            )
            found = torch.from_numpy(make(classifier).generate(images.numpy(), labels.numpy()))
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            return float((model.eval()(found).argmax(1) != labels).float().mean()) * 100

    budget: dict[str, Any] = {"epsilon": epsilon, "norm": norm}
    pairs = [
        (
            rate(fgsm(model, images, labels, **budget)),
            theirs(lambda it: FastGradientMethod(it, norm=order, eps=epsilon, batch_size=400)),
        ),
        (
            rate(pgd(model, images, labels, steps=10, zero_start=False, **budget)),
            theirs(
                lambda it: ProjectedGradientDescentPyTorch(
                    it, order, epsilon, epsilon / 4, max_iter=10, num_random_init=1, batch_size=400, verbose=False
                )
            ),
        ),
    ]
    assert all(abs(ours - other) <= 1 for ours, other in pairs), pairs


@pytest.mark.parametrize("attack", ["bim", "pgd"])
def test_how_often_solved_samples_leave_changes_nothing(
    attack: str, trained: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, images, labels = trained
    model, images, labels = model.double(), images[:60].double(), labels[:60]
    found = []
    try:
        for patience in (1, 3, 100):
            monkeypatch.setitem(import_module("ukemi.attacks.iterative").PATIENCE, "cpu", patience)
            found.append(ATTACKS[attack](model, images, labels, epsilon=0.02, steps=8))
    finally:
        model.float()
    assert 0 < int(found[0].success.sum()) < 60
    for other in found[1:]:
        for name in ("images", "success", "distance", "forwards", "backwards"):
            assert torch.equal(getattr(found[0], name), getattr(other, name)), name

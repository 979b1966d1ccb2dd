"""Attacks of others: what they give is measured by our rules, and they leave nothing behind."""

import sys
import types
import warnings
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks import bim, fgsm, from_art, from_callable, from_foolbox, from_torchattacks
from ukemi.errors import UserError

Batch = tuple[nn.Module, Tensor, Tensor]


@pytest.fixture
def batch(tiny_net: nn.Module) -> Batch:
    """A network in training mode with a gradient from a step of its own, and 6 images with the labels that it gives."""
    images = torch.rand(6, 1, 28, 28)
    with torch.no_grad():
        labels = tiny_net.eval()(images).argmax(1)
    tiny_net.train()
    tiny_net[0].weight.grad = torch.ones_like(tiny_net[0].weight)
    return tiny_net, images, labels


def assert_untouched(model: nn.Module) -> None:
    assert all(module.training for module in model.modules())
    for name, parameter in model.named_parameters():
        if name == "0.weight":
            assert parameter.grad is not None and bool((parameter.grad == 1).all())
        else:
            assert parameter.grad is None


def signs(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Somebody's FGSM, as careless as they come: trains the model, leaves gradients, leaves the box by rounding."""
    images = images.requires_grad_()
    nn.functional.cross_entropy(model(images), labels).backward()
    assert images.grad is not None
    model.train()
    return (images + 0.1 * images.grad.sign()).clamp(-1e-6, 1 + 1e-6)


def test_a_callable_is_an_attack(batch: Batch) -> None:
    model, images, labels = batch
    found = from_callable(signs)(model, images, labels)
    ours = fgsm(model, images, labels, epsilon=0.1)
    assert torch.allclose(found.images, ours.images, atol=1e-5) and torch.equal(found.success, ours.success)
    assert float(found.images.min()) >= 0 and float(found.images.max()) <= 1
    assert found.forwards.tolist() == [2] * 6 and found.backwards.tolist() == [1] * 6
    assert found.norm == "linf" and float(found.distance.max()) == pytest.approx(0.1, abs=1e-5)
    assert not images.requires_grad
    assert_untouched(model)


def test_a_callable_gets_the_targets(batch: Batch) -> None:
    model, images, labels = batch
    targets = (labels + 1) % 10
    seen = []

    def asks(model: nn.Module, images: Tensor, aims: Tensor) -> Tensor:
        seen.append(aims)
        return images

    found = from_callable(asks, "l2")(model, images, labels, targets=targets)
    assert torch.equal(seen[0], targets) and not bool(found.success.any()) and not bool(found.distance.any())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda model, images, labels: images[:2], r"it should give images \[6, 1, 28, 28\], but it gave \[2"),
        (lambda model, images, labels: None, "but it gave NoneType"),
        (lambda model, images, labels: images + 1, r"not in \[0, 1\]"),
        (lambda model, images, labels: images * torch.nan, r"not in \[0, 1\]"),
    ],
)
def test_what_a_callable_gives_is_checked(batch: Batch, given: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        from_callable(given)(*batch)
    assert_untouched(batch[0])


def test_another_attack_that_fails_is_named(batch: Batch) -> None:
    def unlucky(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        raise ZeroDivisionError("no luck")

    with pytest.raises(UserError, match=r"^attack: unlucky failed \(ZeroDivisionError: no luck, test_adapters"):
        from_callable(unlucky)(*batch)
    assert_untouched(batch[0])
    foolbox = import_module("foolbox")
    picky = from_foolbox(foolbox.attacks.LinfFastGradientAttack(), 0.1)
    model, images, labels = batch
    with pytest.raises(UserError, match=r"^attack: LinfFastGradientAttack failed \(ValueError: unsupported criterion"):
        picky(model, images, labels, targets=(labels + 1) % 10)
    assert_untouched(model)


@pytest.mark.parametrize("targeted", [False, True])
def test_foolbox_objects(batch: Batch, targeted: bool) -> None:
    foolbox = import_module("foolbox")
    model, images, labels = batch
    targets = (labels + 1) % 10 if targeted else None
    attack = from_foolbox(foolbox.attacks.LinfBasicIterativeAttack(steps=5, rel_stepsize=0.5), 0.1)
    found = attack(model, images, labels, targets=targets)
    ours = bim(model, images, labels, epsilon=0.1, steps=5, early=False, targets=targets)
    assert torch.allclose(found.images, ours.images, atol=1e-5) or bool((ours.success | ~found.success).all())
    assert bool(found.success.any())
    assert bool((found.forwards >= 6).all()) and found.backwards.tolist() == [5] * 6
    assert_untouched(model)
    nearest = from_foolbox(foolbox.attacks.L2DeepFoolAttack(), None, "l2")
    if not targeted:
        assert bool(nearest(model, images, labels).success.all())
        assert attack(model, images[:0], labels[:0]).images.shape == (0, 1, 28, 28)  # foolbox itself fails there
        short = from_foolbox(foolbox.attacks.L2DeepFoolAttack(steps=1), None, "l2")(model, images, labels)
        lost = ~short.success
        assert bool(lost.any()) and torch.equal(short.images[lost], images[lost]) and not short.distance[lost].any()
    with pytest.raises(UserError, match="an attack object of foolbox is needed, but the class Linf"):
        from_foolbox(foolbox.attacks.LinfPGD, 0.1)


def test_art_objects(batch: Batch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("art")
        from art.attacks.evasion import FastGradientMethod
        from art.estimators.classification import PyTorchClassifier

        model, images, labels = batch
        classifier = PyTorchClassifier(
            model, nn.CrossEntropyLoss(), (1, 28, 28), 10, clip_values=(0, 1), device_type="cpu"
        )
        found = from_art(FastGradientMethod(classifier, eps=0.1))(model, images, labels)
        nothing = from_art(FastGradientMethod(classifier, eps=0.1))(model, images[:0], labels[:0])
        aimed = from_art(FastGradientMethod(classifier, eps=0.1, targeted=True))
        targets = (labels + 1) % 10
        reached = aimed(model, images, labels, targets=targets)
    assert nothing.success.shape == (0,)
    ours = fgsm(model, images, labels, epsilon=0.1)
    assert torch.allclose(found.images, ours.images, atol=1e-5) and torch.equal(found.success, ours.success)
    # ART calls the parts of a Sequential one by one; the last pass is ours
    assert found.forwards.tolist() == [2] * 6 and found.backwards.tolist() == [1] * 6
    theirs = fgsm(model, images, labels, epsilon=0.1, targets=targets)
    assert torch.allclose(reached.images, theirs.images, atol=1e-5) and torch.equal(reached.success, theirs.success)
    with pytest.raises(
        UserError, match="targets: they were not given, but a FastGradientMethod is set up the other way"
    ):
        aimed(model, images, labels)
    with pytest.raises(UserError, match="an evasion attack object of ART is needed, but a str was given"):
        from_art("fgsm")
    other = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    stranger = from_art(FastGradientMethod(classifier, eps=0.1))
    with pytest.raises(UserError, match="a FastGradientMethod was made for another model"):
        stranger(other, images, labels)


class StandIn:
    """What an object of torchattacks looks like from outside."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.targeted = model, False

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        return signs(self.model, images, labels)


def test_torchattacks_objects(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, labels = batch
    monkeypatch.setitem(sys.modules, "torchattacks", types.ModuleType("torchattacks"))
    found = from_torchattacks(StandIn(model))(model, images, labels)
    assert torch.equal(found.success, fgsm(model, images, labels, epsilon=0.1).success)
    assert_untouched(model)
    with pytest.raises(UserError, match="targets: they were given"):
        from_torchattacks(StandIn(model))(model, images, labels, targets=(labels + 1) % 10)
    with pytest.raises(UserError, match="an attack object of torchattacks is needed"):
        from_torchattacks("pgd")
    other = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    with pytest.raises(UserError, match="a StandIn was made for another model, and it never asked this one"):
        from_torchattacks(StandIn(model))(other, images, labels)


@pytest.mark.parametrize(
    ("adapter", "module", "package"),
    [
        (lambda: from_foolbox(None, 0.1), "foolbox", "foolbox"),
        (lambda: from_art(None), "art.attacks", "adversarial-robustness-toolbox"),
        (lambda: from_torchattacks(None), "torchattacks", "torchattacks"),
    ],
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, adapter: Any, module: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"{package} is not installed"):
        adapter()

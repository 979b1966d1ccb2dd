"""Attacks of others: any callable, and the objects of foolbox, ART and torchattacks.

Each adapter gives an attack like our own, `(model, images, labels, *, targets=None, index=None) -> Attacked`. Success
and distance are measured here, by our rules; bounds and budget are as exact as the other library keeps them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Norm, Victim, attacking
from ukemi.attacks.norms import checked_norm, length
from ukemi.errors import UserError
from ukemi.schema import called

_ROUNDING = 1e-5
"""How far outside [0, 1] a pixel may lie and still be taken as rounded."""


def from_callable(
    attack: Callable[[nn.Module, Tensor, Tensor], Tensor], norm: Norm = "linf"
) -> Callable[..., Attacked]:
    """An attack from a function `(model, images, labels) -> images`; `norm` says how its distance is measured.

    With `targets`, the function is handed the targets in place of the labels. Passes are counted as rows through the
    model, the same number for every sample, rounded up. Model modes and gradients of parameters are as before.
    """
    checked_norm(norm)

    def adapted(
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        targets: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Attacked:
        with attacking(model):
            victim = Victim(model, images, labels, targets, index)
            images = victim.originals
            with torch.no_grad():
                victim.passed(images[:2])  # what is wrong with the model should show before a foreign attack runs
            found = images.clone()
            if len(images):  # not every library takes none
                with _own_gradients(model), _counted(model, victim):
                    found = _checked(called(attack, "attack", model, found, victim.aims), images)
            # a foreign attack may leave another mode behind
            model.eval()
            rows = torch.arange(len(images), device=images.device)
            success_N = victim.fooled(victim.logits(found, rows), rows)
        return Attacked(found, success_N, length(found - images, norm), norm, victim.forwards, victim.backwards)

    return adapted


def from_foolbox(attack: Any, epsilon: float | None, norm: Norm = "linf") -> Callable[..., Attacked]:
    """An attack from a foolbox object, such as `foolbox.attacks.LinfPGD()`; `epsilon=None` for its minimal ones."""
    foolbox = _library("foolbox", "foolbox")
    if not isinstance(attack, foolbox.Attack):
        raise UserError(f"attack: an attack object of foolbox is needed, but {_what(attack)} was given.")

    def adapted(
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        targets: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Attacked:
        kind = foolbox.criteria.Misclassification if targets is None else foolbox.criteria.TargetedMisclassification

        def run(model: nn.Module, images: Tensor, aims: Tensor) -> Tensor:
            wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=images.device)
            clipped: Tensor = called(attack, "attack", wrapped, images, kind(aims), epsilons=epsilon)[1]
            return clipped

        found = from_callable(run, norm)(model, images, labels, targets=targets, index=index)
        return found if epsilon is not None else _left_alone(found, images.detach())

    return adapted


def _left_alone(found: Attacked, images: Tensor) -> Attacked:
    """A minimal-distance attack gives the image itself where it found nothing."""
    same = found.images.where(found.success[:, None, None, None], images)
    return replace(found, images=same, distance=found.distance.where(found.success, 0))


def from_art(attack: Any, norm: Norm = "linf") -> Callable[..., Attacked]:
    """An attack from an ART object, such as `ProjectedGradientDescent(classifier, …)`.

    ART attacks the classifier that it was made with, so that one should hold the model that is handed over here; one
    that doesn't is refused.
    """
    evasion = _library("art.attacks", "adversarial-robustness-toolbox").EvasionAttack
    if not isinstance(attack, evasion):
        raise UserError(f"attack: an evasion attack object of ART is needed, but {_what(attack)} was given.")

    def run(model: nn.Module, images: Tensor, aims: Tensor) -> Tensor:
        with _asked(model, attack):
            found = called(attack.generate, "attack", x=images.cpu().numpy(), y=aims.cpu().numpy())
        return torch.from_numpy(found).to(images)

    return _with_targets_like(attack, from_callable(run, norm))


def from_torchattacks(attack: Any, norm: Norm = "linf") -> Callable[..., Attacked]:
    """An attack from a torchattacks object, such as `torchattacks.PGD(model, eps=8 / 255)`.

    It attacks the model that it was made with, so that one should be handed over here; another one is refused. For
    targets, set its mode by `set_mode_targeted_by_label()`.
    """
    _library("torchattacks", "torchattacks")
    if not callable(attack) or not hasattr(attack, "model"):
        raise UserError(f"attack: an attack object of torchattacks is needed, but {_what(attack)} was given.")

    def run(model: nn.Module, images: Tensor, aims: Tensor) -> Tensor:
        with _asked(model, attack):
            found: Tensor = called(attack, "attack", images, aims)
        return found

    return _with_targets_like(attack, from_callable(run, norm))


def _with_targets_like(attack: Any, adapted: Callable[..., Attacked]) -> Callable[..., Attacked]:
    """Whether targets are wanted is the object's own setting, and both have to agree."""

    def checked(
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        targets: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Attacked:
        if bool(getattr(attack, "targeted", False)) != (targets is not None):
            given = "were" if targets is not None else "were not"
            raise UserError(f"targets: they {given} given, but {_what(attack)} is set up the other way.")
        return adapted(model, images, labels, targets=targets, index=index)

    return checked


@contextmanager
def _asked(model: nn.Module, attack: Any) -> Iterator[None]:
    """Refuses what was made inside for another model: this one was never asked."""
    asked = []
    # ART calls the parts of a Sequential one by one
    handles = [part.register_forward_hook(lambda *_: asked.append(True)) for part in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if not asked:
        raise UserError(f"attack: {_what(attack)} was made for another model, and it never asked this one.")


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(f"attack: {package} is not installed (pip install {package}).") from error


def _what(attack: Any) -> str:
    name = attack.__name__ if isinstance(attack, type) else type(attack).__name__
    return f"the class {name} itself" if isinstance(attack, type) else f"a {name}"


def _checked(found: Any, images: Tensor) -> Tensor:
    """Images as they were handed over, moved; pixels that left [0, 1] by rounding are put back."""
    if not isinstance(found, Tensor) or found.shape != images.shape:
        given = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise UserError(f"attack: it should give images {list(images.shape)}, but it gave {given}.")
    moved: Tensor = found.detach().to(images)
    if not bool(((moved >= -_ROUNDING) & (moved <= 1 + _ROUNDING)).all()):
        raise UserError("attack: it gave pixels that are not in [0, 1].")
    return moved.clamp(0, 1)


@contextmanager
def _own_gradients(model: nn.Module) -> Iterator[None]:
    """Gradients that are left on parameters inside are dropped; those from before come back."""
    before = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in before:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


@contextmanager
def _counted(model: nn.Module, victim: Victim) -> Iterator[None]:
    """Counts rows through the model and back, shared out evenly over the victim's samples."""
    forwards = backwards = 0

    def back(gradient: Tensor) -> None:
        nonlocal backwards
        backwards += len(gradient)

    def through(module: nn.Module, inputs: Any, logits: Any) -> None:
        nonlocal forwards
        if isinstance(logits, Tensor):
            forwards += len(logits)
            if logits.requires_grad:
                logits.register_hook(back)

    parts = list(model) if isinstance(model, nn.Sequential) else []
    handle = (parts[-1] if parts else model).register_forward_hook(through)  # ART calls them one by one
    try:
        yield
    finally:
        handle.remove()
        count = max(1, len(victim.originals))
        victim.forwards += -(-forwards // count)
        victim.backwards += -(-backwards // count)

"""Every defence by its name: adding one is a function from a `Setting`, and a line here."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.defences.base import Defence, Detector
from ukemi.defences.classifier import Classifying, halves
from ukemi.defences.detectors import Dropping, Mutating, Squeezing
from ukemi.defences.hardening import CROPS, NEARBY, Several, Transformed, Variants, deflecting, squeezers
from ukemi.defences.slices import Slicing
from ukemi.defences.trained import distilled, network_of, smoothed
from ukemi.defences.transforms import bit_depth, jpeg, total_variation
from ukemi.errors import UserError, field_called
from ukemi.models import check_head
from ukemi.models.inference import home_of
from ukemi.schema import called, chosen
from ukemi.training import Run
from ukemi.uncertainty import with_dropout

VOTES = 15


@dataclass(frozen=True)
class Setting:
    """What a defence may be made of."""

    model: nn.Module
    """what is defended, on its device"""
    benign: Data
    """validation images, neither tested on nor (where there are others) trained on: thresholds come from these"""
    adversarial: Data | None = None
    """what attacks made of the benign images; the classifier learns from them"""
    run: Run | None = None
    """the run that trained the model; defences that train anew need it"""
    folder: Path | None = None
    """where those put their own runs; default: `defences` inside the run's folder"""
    dropout: float = 0.2
    """the rate where a network has no dropout of its own"""
    passes: int = 50
    seed: int = 0


Maker = Callable[[Setting], Defence]


def _bit_depth(told: Setting) -> Defence:
    bits = 1 if told.benign.channels == 1 else 3
    return Transformed(told.model, partial(bit_depth, bits=bits))


def _classifier(told: Setting) -> Defence:
    if told.adversarial is None:
        raise UserError("adversarial-classifier: it learns from adversarial validation images, but there are none.")
    (own, other), (adversarial, _) = halves(told.benign, told.seed), halves(told.adversarial, told.seed)
    return Classifying(told.model, own, adversarial, told.seed).fitted(other)


def _trained(how: Callable[..., Run], name: str, told: Setting) -> Defence:
    if told.run is None:
        raise UserError(f"{name}: it trains the network anew, so a run folder is needed.")
    device, folder = home_of(told.model), (told.folder or told.run.folder / "defences") / name
    return network_of(how(told.run, folder, device=str(device)), told.benign).to(device)


def _dropping(told: Setting) -> Defence:
    return Dropping(with_dropout(told.model, told.dropout, _few(told)), told.passes, told.seed).fitted(told.benign)


def _few(told: Setting) -> Tensor:
    """Two images, to try the network with."""
    return told.benign.batch(torch.arange(min(2, len(told.benign))), home_of(told.model)).images


DEFENCES: dict[str, Maker] = {
    "squeezing": lambda told: Several(told.model, squeezers(told.benign.channels)),
    "bit-depth": _bit_depth,
    "jpeg": lambda told: Transformed(told.model, jpeg),
    "total-variation": lambda told: Transformed(told.model, total_variation),
    "crop-rescale": lambda told: Variants(told.model, CROPS, 10, "mean", told.seed),
    "pixel-deflection": lambda told: Transformed(told.model, deflecting(told.seed)),
    "vote": lambda told: Variants(told.model, NEARBY, VOTES, "vote", told.seed),
    "distillation": partial(_trained, distilled, "distillation"),
    "label-smoothing": partial(_trained, smoothed, "label-smoothing"),
    "squeezing-detector": lambda told: Squeezing(told.model).fitted(told.benign),
    "adversarial-classifier": _classifier,
    "mutation-testing": lambda told: Mutating(told.model, told.benign, seed=told.seed).fitted(told.benign),
    "mc-dropout": _dropping,
    "slices": lambda told: Slicing(told.model, halves(told.benign, told.seed)[0]).fitted(
        halves(told.benign, told.seed)[1]
    ),
}  # fmt: skip
"""Hardened models first, then detectors."""
TRAINING = ("distillation", "label-smoothing")
"""these train a network of their own, for as long as the run's own training took, or twice that"""


def check_defence(name: str) -> None:
    """Refuses a name that leads to nothing, or to a function that can't be called with a `Setting` alone."""
    function = chosen(name, DEFENCES, "defences")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise UserError(f"defences: {name} should take one argument, a ukemi.defences.Setting ({error}).") from None
    except ValueError:  # a function that does not tell its signature
        return


def defence_of(name: str, told: Setting) -> Defence:
    """The defence of this name, or `package.module:function` from a `Setting`, ready to be judged."""
    check_head(told.model, _few(told), len(told.benign.classes))
    made = called(chosen(name, DEFENCES, "defences"), "defences", told)
    if not isinstance(made, nn.Module | Detector):
        raise UserError(
            f"defences: {name} gave a {type(made).__name__}; a network, or a Detector (its model and flags), is needed."
        )
    if isinstance(made, nn.Module):
        with field_called(f"defences: {name}", "model", "images"):
            check_head(made, _few(told), len(told.benign.classes))
    return made

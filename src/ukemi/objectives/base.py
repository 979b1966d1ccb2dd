"""What every objective is: a function of a batch that gives losses, with optional weights of its own."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.models.check_head import check_logits
from ukemi.models.inference import home_of
from ukemi.schema import Schema


@dataclass(frozen=True)
class Outcome:
    """What a forward pass gave."""

    losses: Tensor
    """`[N]`, one per sample; their mean is trained"""
    logits: Tensor
    """`[N, K]`, of the augmented images"""


class ObjectiveConfig(Schema):
    """The settings of an objective; `name` picks it."""

    place: ClassVar[str] = "objective"

    @abstractmethod
    def build(self, smoothing: float) -> "Objective":
        """The objective with these settings; `smoothing` is the label smoothing of its cross-entropy."""

    def check(self, image_shape: tuple[int, ...]) -> None:
        """Refuses what does not fit images of this shape `(C, H, W)`; asked before anything is written."""


class Objective(ABC):
    """Turns a batch into losses; the loop trains their mean.

    `objective(model, images, labels, index, epoch, clean) -> Outcome`: `images` are the augmented ones, `clean` the
    same samples unchanged but for the flip. Nothing in here may wait for the device: a step is captured.
    """

    wants_clean: ClassVar[bool] = False
    """whether the clean images have to be given"""
    mixes: ClassVar[bool] = False
    """whether its logits belong to mixtures, which say nothing about a single sample"""
    kind: int = 0
    """what `plan` said of the step about to come"""
    teacher: nn.Module | None = None
    """after `attach`: another network that every step asks, where there is one"""

    @abstractmethod
    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int, clean: Tensor | None = None
    ) -> Outcome:
        """The losses of a batch and the logits of its augmented images."""

    def plan(self, seed: int, epoch: int, steps: int) -> list[int]:
        """What kind each step of an epoch is; steps of one kind do the same work, so a GPU can replay one for all."""
        return [0] * steps

    def attach(self, model: nn.Module) -> None:
        """Called once with the plain model, on its device, before the optimiser is made and anything is compiled."""
        return

    def rehearse(self, model: nn.Module, data: Data) -> None:
        """Called once before a run writes anything: what anyone's own parts get wrong should show here."""
        check_logits(model, data.batch(torch.arange(min(2, len(data))), home_of(model)).images)

    def extra(self) -> nn.Module | None:
        """After `attach`: what the optimiser trains and a checkpoint holds beside the model, if there is any."""
        return None

"""Defensive distillation (Papernot et al. 2016): a network trained softly, on the answers of its like."""

from copy import deepcopy
from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ukemi.errors import UserError
from ukemi.models import load_weights
from ukemi.models.inference import scoring
from ukemi.objectives.base import Objective, ObjectiveConfig, Outcome
from ukemi.schema import Fixed, Number


class Distillation(Objective):
    """Cross-entropy of the logits divided by a temperature: with the labels, or, where there is a teacher, with its
    answers at the same temperature. The trained network is used without any temperature.

    As in the paper nothing makes up for the gradients, which are smaller by the temperature: multiplied by it, LeNet-5
    did not survive its usual learning rate.
    """

    class Config(ObjectiveConfig):
        """Trains at a temperature, on the labels or on a teacher's answers (defensive distillation)."""

        name: Fixed[Literal["distillation"]] = "distillation"
        temperature: Annotated[Number, Field(gt=0)] = 20.0
        """What logits are divided by before the softmax."""
        teacher: str = ""
        """Weights of a network of the same kind, whose answers are learned; default: none, the labels are."""

        def build(self, smoothing: float) -> "Distillation":
            return Distillation(smoothing, temperature=self.temperature, teacher=self.teacher)

    def __init__(self, smoothing: float = 0.0, *, temperature: float = 20.0, teacher: str = "") -> None:
        Distillation.Config(temperature=temperature, teacher=teacher)
        self.smoothing, self.temperature, self.file = smoothing, temperature, teacher

    def attach(self, model: nn.Module) -> None:
        """Makes the teacher: a network like the model with the weights of the file."""
        if self.file:
            teacher = deepcopy(model)
            load_weights(teacher, Path(self.file))
            self.teacher = teacher.eval().requires_grad_(False)

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int, clean: Tensor | None = None
    ) -> Outcome:
        logits_NK = model(images).float()
        soft_NK = logits_NK / self.temperature
        aims = self._aims(images, labels)
        smoothing = self.smoothing if self.teacher is None else 0.0
        return Outcome(F.cross_entropy(soft_NK, aims, reduction="none", label_smoothing=smoothing), logits_NK)

    def _aims(self, images: Tensor, labels: Tensor) -> Tensor:
        if self.teacher is None:
            if self.file:
                raise UserError("objective: distillation needs attach(model) before the first batch.")
            return labels
        with scoring(self.teacher, images.device):
            answers_NK = (self.teacher(images).float() / self.temperature).softmax(1)
        return torch.empty_like(answers_NK).copy_(answers_NK)  # an inference tensor can't be trained on

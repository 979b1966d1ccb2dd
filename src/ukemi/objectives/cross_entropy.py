"""Cross-entropy, with label smoothing."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ukemi.objectives.base import Objective, ObjectiveConfig, Outcome
from ukemi.schema import Fixed


class CrossEntropy(Objective):
    """`-log p(label)`; with `smoothing` s the target is (1 - s) on the label and s spread over all classes."""

    class Config(ObjectiveConfig):
        """Trains the cross-entropy of the augmented images."""

        name: Fixed[Literal["cross-entropy"]] = "cross-entropy"

        def build(self, smoothing: float) -> "CrossEntropy":
            return CrossEntropy(smoothing)

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int, clean: Tensor | None = None
    ) -> Outcome:
        logits_NK = model(images).float()
        return Outcome(F.cross_entropy(logits_NK, labels, reduction="none", label_smoothing=self.smoothing), logits_NK)

"""Cross-entropy, with label smoothing."""

from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Outcome:
    """What a forward pass gave: a loss per sample `[N]` and the logits `[N, K]`."""

    losses: Tensor
    logits: Tensor


class Objective(Protocol):
    """Turns a batch into losses; the loop takes their mean."""

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Outcome: ...


class CrossEntropy:
    """`-log p(label)`; with `smoothing` s the target is (1 - s) on the label and s spread over all classes."""

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Outcome:
        logits = model(images).float()
        return Outcome(F.cross_entropy(logits, labels, reduction="none", label_smoothing=self.smoothing), logits)

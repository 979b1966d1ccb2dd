"""Uncertainty in numbers: PCS, VR, PE and MI (section 2.2 of the paper), from one certain and T stochastic passes.

Probabilities are `[N, K]` for the certain pass and `[T, N, K]` for the stochastic ones. Entropies are in nats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ukemi.errors import UserError, check_known

Confidence = Literal["margin", "max"]
Against = Literal["prediction", "mode"]
METRICS = ("pcs", "vr", "pe", "mi")
"""the metrics by the names that results use"""
LOW_IS_UNCERTAIN = ("pcs",)
"""of these a low value says that the model does not know; of the others a high one"""


@dataclass(frozen=True)
class Sampled:
    """What a model says about N inputs: once for certain, and T times by chance (dropout masks or ensemble members)."""

    certain: Tensor
    """probabilities `[N, K]`"""
    drawn: Tensor
    """probabilities `[T, N, K]`"""


@dataclass(frozen=True)
class Uncertainty:
    """The metrics of N inputs, each `[N]`."""

    prediction: Tensor
    """int64: the class of the certain pass"""
    confidence: Tensor
    """the highest probability of the certain pass"""
    pcs: Tensor
    vr: Tensor
    pe: Tensor
    mi: Tensor
    passes: int
    """T"""

    def __len__(self) -> int:
        return len(self.prediction)

    def take(self, rows: Tensor) -> "Uncertainty":
        """The metrics of some inputs: positions, or a mask."""
        return self._each(lambda values: values[rows])

    def cpu(self) -> "Uncertainty":
        return self._each(Tensor.cpu)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Uncertainty":
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in _TENSORS}
        return replace(self, **changed)


_TENSORS = tuple(each.name for each in fields(Uncertainty) if each.name != "passes")


def joined(parts: Sequence[Uncertainty]) -> Uncertainty:
    """The metrics of several batches in a row."""
    columns: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in _TENSORS}
    return replace(parts[0], **columns)


def prediction_confidence(certain_NK: Tensor, kind: Confidence = "margin") -> Tensor:
    """PCS `[N]`: the highest probability minus the second highest (`margin`), or the highest (`max`).

    >>> prediction_confidence(torch.tensor([[0.5, 0.25, 0.25]]))
    tensor([0.2500])
    """
    check_known("confidence", kind, get_args(Confidence))
    if certain_NK.shape[1] < 2:
        raise UserError("model: at least 2 classes are needed to be sure of one beside the others, but it has 1.")
    first_N, second_N = certain_NK.topk(2, dim=1).values.unbind(1)
    return (first_N - second_N if kind == "margin" else first_N).clamp(0, 1)


def variation_ratio(drawn_TNK: Tensor, labels_N: Tensor | None = None) -> Tensor:
    """VR `[N]`: the share of passes that do not predict `labels_N`, or where none are given the most frequent class.

    >>> variation_ratio(torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]], [[0.7, 0.3]], [[0.6, 0.4]]]), torch.tensor([0]))
    tensor([0.2500])
    """
    votes_TN = drawn_TNK.argmax(2)
    if labels_N is None:
        labels_N = modes(drawn_TNK)
    # counted, then divided: 4 of 20 is 0.2, which 1 - 0.8 is not
    return (votes_TN != labels_N).to(drawn_TNK.dtype).sum(0) / len(votes_TN)


def modes(drawn_TNK: Tensor) -> Tensor:
    """The class that most passes predict, int64 `[N]`; of several the first."""
    votes_NT = drawn_TNK.argmax(2).T
    counts_NK = torch.zeros_like(drawn_TNK[0]).scatter_add_(1, votes_NT, torch.ones_like(drawn_TNK[..., 0].T))
    return counts_NK.argmax(1)


def entropy(probabilities: Tensor) -> Tensor:
    """Over the last dimension, in nats; 0 log 0 is 0."""
    return -torch.special.xlogy(probabilities, probabilities).sum(-1)


def predictive_entropy(drawn_TNK: Tensor) -> Tensor:
    """PE `[N]`: the entropy of the mean of the passes."""
    return entropy(drawn_TNK.mean(0)).clamp(min=0)


def mutual_information(drawn_TNK: Tensor) -> Tensor:
    """MI `[N]`: PE less the mean entropy of a pass: what the passes disagree about. Never below 0 nor above PE."""
    whole_N = predictive_entropy(drawn_TNK)
    return torch.minimum((whole_N - entropy(drawn_TNK).mean(0)).clamp(min=0), whole_N)


def measured(sampled: Sampled, confidence: Confidence = "margin", against: Against = "prediction") -> Uncertainty:
    """All metrics of what was sampled; `against` says which label VR counts from."""
    check_known("against", against, get_args(Against))
    certain, drawn = sampled.certain.double(), sampled.drawn.double()
    highest_N, prediction_N = certain.max(1)
    return Uncertainty(
        prediction=prediction_N,
        confidence=highest_N,
        pcs=prediction_confidence(certain, confidence),
        vr=variation_ratio(drawn, prediction_N if against == "prediction" else None),
        pe=predictive_entropy(drawn),
        mi=mutual_information(drawn),
        passes=len(drawn),
    )

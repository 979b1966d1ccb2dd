"""Does a confidence of 80 % mean right in 80 % of the cases? Reliability bins and the expected calibration error."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ukemi.errors import UserError

BINS = 15
ROUNDED = 1e-3
"""how far above 1 the rounding of a softmax may take a probability"""


@dataclass(frozen=True)
class Reliability:
    """B equal parts of [0, 1], each with what fell into it; NaN where nothing did."""

    count: Tensor
    """int64 `[B]`"""
    confidence: Tensor
    """mean confidence, float64 `[B]`"""
    accuracy: Tensor
    """share that is right, float64 `[B]`"""

    @property
    def expected_error(self) -> float:
        """The expected calibration error (Guo et al. 2017): the mean gap between the two, weighted by counts."""
        gap_B = (self.accuracy - self.confidence).abs().nan_to_num()
        return float((gap_B * self.count).sum() / self.count.sum())

    @property
    def largest_error(self) -> float:
        """The maximum calibration error."""
        return float((self.accuracy - self.confidence).abs().nan_to_num().max())


def reliability(confidence_N: Tensor, right_N: Tensor, bins: int = BINS) -> Reliability:
    """Sorts N answers by their confidence in [0, 1] into `bins` parts (b/B, (b+1)/B]; 0 is in the first.

    >>> reliability(torch.tensor([0.75, 0.75]), torch.tensor([True, False]), bins=2).expected_error
    0.25
    """
    if bins < 1:
        raise UserError(f"bins: at least 1 is needed, but {bins} was given.")
    if confidence_N.numel() == 0:
        raise UserError("confidence: there is no answer to sort into bins.")
    if confidence_N.shape != right_N.shape or confidence_N.ndim != 1:
        given = f"{list(confidence_N.shape)} and {list(right_N.shape)}"
        raise UserError(
            f"confidence: one number for each answer that is right or wrong is needed, but {given} were given."
        )
    if not bool(((confidence_N >= 0) & (confidence_N <= 1 + ROUNDED)).all()):
        raise UserError("confidence: probabilities in [0, 1] are needed, but some lie outside (are they logits?).")
    confidence_N, right_N = confidence_N.double(), right_N.double()
    edges = torch.arange(1, bins, dtype=torch.float64, device=confidence_N.device) / bins
    at_N = torch.bucketize(confidence_N, edges)
    count_B = torch.bincount(at_N, minlength=bins)
    sums = (torch.zeros(bins, dtype=torch.float64, device=at_N.device) for _ in range(2))
    confident_B, right_B = (
        sum_B.scatter_add_(0, at_N, values) for sum_B, values in zip(sums, (confidence_N, right_N), strict=True)
    )
    return Reliability(count_B, confident_B / count_B, right_B / count_B)


def expected_calibration_error(confidence_N: Tensor, right_N: Tensor, bins: int = BINS) -> float:
    """The expected calibration error of N answers."""
    return reliability(confidence_N, right_N, bins).expected_error

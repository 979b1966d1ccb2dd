"""The four patterns of uncertainty (section 2.2 of the paper): low or high PCS with low or high VR.

Where the limits lie the paper does not say. Here each is where benign and attacked validation data part best, by
Youden's J = true positives - false positives, or where the user says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from ukemi.errors import UserError, field_called
from ukemi.uncertainty.metrics import LOW_IS_UNCERTAIN, METRICS, Uncertainty, entropy

PATTERNS = ("LL", "LH", "HL", "HH")
"""PCS first, VR second; the place in this row is a pattern's number"""
BETWEEN = -1
"""the number of an input that is neither low nor high in one of the two"""
DEVIATIONS = 1.96
"""how many standard errors around a limit of VR are unstable: 19 of 20 repetitions stay inside"""


@dataclass(frozen=True)
class Thresholds:
    """High is at or above the second number, low below the first; what lies between them has no pattern."""

    pcs: tuple[float, float]
    vr: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("pcs", "vr"):
            object.__setattr__(self, name, limits_of(name, getattr(self, name)))


def limits_of(name: str, given: float | Sequence[float]) -> tuple[float, float]:
    """One number or two in (0, 1], in order, as a pair."""
    try:
        values = torch.as_tensor(given, dtype=torch.float64).flatten().tolist()
    except (TypeError, ValueError, RuntimeError):
        raise UserError(
            f"{name}-thresholds: one number or two (low, high) are needed, but {given!r} was given."
        ) from None
    if len(values) not in (1, 2):
        raise UserError(f"{name}-thresholds: one number or two (low, high) are needed, but {len(values)} were given.")
    low, high = values[0], values[-1]
    if not (0 < low <= 1 and 0 < high <= 1):
        raise UserError(f"{name}-thresholds: they should lie above 0 and up to 1, but {low:g} and {high:g} were given.")
    if low > high:
        raise UserError(f"{name}-thresholds: low should not lie above high, but {low:g} and {high:g} were given.")
    return low, high


def youden(low_N: Tensor, high_M: Tensor) -> tuple[float, float]:
    """The limit t that parts values `low_N`, wanted below it, from `high_M`, wanted at or above it; and its J.

    J = share of `high_M` at or above t - share of `low_N` at or above t. Limits lie midway between neighbouring values;
    of equally good ones the lowest is taken.
    """
    values = torch.cat([low_N, high_M]).double().unique()
    if not len(low_N) or not len(high_M) or len(values) < 2:
        raise UserError("thresholds: benign and attacked validation data do not differ; give the thresholds yourself.")
    limits_L = (values[1:] + values[:-1]) / 2
    low_L, high_L = (torch.searchsorted(part.double().sort().values, limits_L) for part in (low_N, high_M))
    gain_L = low_L * len(high_M) - high_L * len(low_N)  # whole numbers, so that ties are ties
    at = int((gain_L == gain_L.max()).nonzero()[0])
    return float(limits_L[at]), int(gain_L[at]) / (len(low_N) * len(high_M))


def found_thresholds(benign: Uncertainty, attacked: Uncertainty) -> Thresholds:
    """Both limits from validation data: attacked inputs are expected low in PCS and high in VR."""
    with field_called("pcs-thresholds", "thresholds"):
        pcs = _parting(attacked.pcs, benign.pcs, "lower")
    with field_called("vr-thresholds", "thresholds"):
        vr = _parting(benign.vr, attacked.vr, "higher")
    return Thresholds((pcs, pcs), (vr, vr))


def _parting(low_N: Tensor, high_M: Tensor, expected: str) -> float:
    """Youden's limit; one that parts no better than none would name the patterns at random, or backwards."""
    limit, gain = youden(low_N, high_M)
    if gain <= 0:
        raise UserError(
            f"thresholds: attacked validation data are not {expected} than benign ones (Youden's J is {gain:.2g} at"
            " best); give the thresholds yourself."
        )
    return limit


def number_of(pattern: str) -> int:
    """A pattern's place in `PATTERNS`."""
    if pattern.upper() not in PATTERNS:
        raise UserError(f"pattern: {pattern!r} is none of {', '.join(PATTERNS)}.")
    return PATTERNS.index(pattern.upper())


def patterns_of(pcs: Tensor, vr: Tensor, thresholds: Thresholds) -> Tensor:
    """The number of every input's pattern, int64 of the same shape; `BETWEEN` where it has none.

    >>> patterns_of(torch.tensor([0.9, 0.1]), torch.tensor([0.0, 0.6]), Thresholds((0.5, 0.5), (0.3, 0.3)))
    tensor([2, 1])
    """
    high = [values >= limits[1] for values, limits in ((pcs, thresholds.pcs), (vr, thresholds.vr))]
    low = [values < limits[0] for values, limits in ((pcs, thresholds.pcs), (vr, thresholds.vr))]
    decided = (high[0] | low[0]) & (high[1] | low[1])
    return torch.where(decided, 2 * high[0].long() + high[1].long(), BETWEEN)


def sampling_error(limit: float, passes: float) -> float:
    """The standard error of a VR that truly lies at the limit, from `passes` passes."""
    return sqrt(limit * (1 - limit) / passes)


def unstable(vr: Tensor, thresholds: Thresholds, passes: int) -> Tensor:
    """Which inputs could have another pattern under other masks: VR within sampling error of a limit, or between."""
    low, high = thresholds.vr
    near = [(vr - limit).abs() <= DEVIATIONS * sampling_error(limit, passes) for limit in (low, high)]
    return near[0] | near[1] | ((vr >= low) & (vr < high))


@dataclass(frozen=True)
class Shares:
    """How N inputs of one source spread over the patterns."""

    count: int
    patterns: dict[str, float]
    """share of each pattern"""
    between: float
    """share without a pattern"""
    unstable: float
    """share within sampling error of a limit of VR"""
    entropy: float
    """of the pattern shares, in bits: 0 where all are alike, 2 where all four are equally frequent"""


def shares_of(found: Uncertainty, thresholds: Thresholds) -> Shares:
    """The row of the pattern table for one source."""
    numbers = patterns_of(found.pcs, found.vr, thresholds)
    counts_4 = torch.stack([(numbers == at).sum() for at in range(len(PATTERNS))]).double()
    decided, total = float(counts_4.sum()), max(1, len(found))
    return Shares(
        count=len(found),
        patterns={name: float(counts_4[at]) / total for at, name in enumerate(PATTERNS)},
        between=(len(found) - decided) / total,
        unstable=float(unstable(found.vr, thresholds, found.passes).double().sum()) / total,
        entropy=float(entropy(counts_4 / max(1.0, decided))) / float(torch.tensor(2.0).log()),
    )


def auroc(negative_N: Tensor, positive_M: Tensor) -> float:
    """How often a positive's value is higher than a negative's, ties half: the area under the ROC curve, by ranks. NaN
    without any, and where one is NaN.

    >>> auroc(torch.tensor([0.1, 0.4]), torch.tensor([0.4, 0.8]))
    0.875
    """
    if not len(negative_N) or not len(positive_M) or bool(torch.cat([negative_N, positive_M]).isnan().any()):
        return float("nan")
    low, high = negative_N.double().flatten().sort().values, positive_M.double().flatten()
    wins = torch.searchsorted(low, high, right=False).double() + torch.searchsorted(low, high, right=True).double()
    return float(wins.mean() / (2 * len(low)))


def aurocs(benign: Uncertainty, attacked: Uncertainty) -> dict[str, float]:
    """How well each metric tells attacked from benign inputs: 0.5 is chance, 1 parts them all; NaN without any."""
    signs = {name: -1.0 if name in LOW_IS_UNCERTAIN else 1.0 for name in METRICS}
    return {name: auroc(sign * getattr(benign, name), sign * getattr(attacked, name)) for name, sign in signs.items()}

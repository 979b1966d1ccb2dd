"""How sure a difference is: spread and paired t interval over seeds, paired bootstrap over images, effect size.

The two intervals answer different questions and are named apart. The t interval over seeds says what would happen if
the methods were trained again, with other seeds. The bootstrap over images says what would happen if these very models
met other images of the same kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan, cos, isfinite, pi, sin, sqrt
from statistics import fmean, stdev

import torch
from torch import Tensor

from ukemi import randomness
from ukemi.errors import UserError
from ukemi.randomness import Stream

LEVEL = 0.95
ROUNDS = 10_000
"""resamples of a bootstrap: its ends are then known to about a fortieth of its width"""
FEWEST = 3
"""seeds that an interval needs: of two, the spread is a single number"""
ROUNDING = 1e-9
"""values closer than this share of the largest are equal: means of the same shares may differ in their last bits"""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Spread:
    """A number over seeds."""

    mean: float
    deviation: float | None
    """standard deviation with n - 1; None for a single seed"""
    count: int


@dataclass(frozen=True)
class Paired:
    """A method against another one with the same seeds."""

    differences: tuple[float, ...]
    """per seed, the first method's value minus the second's"""
    mean: float
    interval: Interval | None
    """t interval over the seeds; None for fewer than three, or where all differences are the same: then nothing is
    known of how they spread"""
    p: float | None
    """two-sided, of Student's paired test; None where there is no interval"""
    effect: float | None
    """Cohen's d; None for a single seed, or where neither method varies and they differ"""
    wins: int
    ties: int
    losses: int

    @property
    def different(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def verdict(self) -> str:
        """`win`, `tie` or `loss` of the first method; `unknown` without an interval, unless all seeds are equal."""
        if self.interval is None:
            return "tie" if self.ties == len(self.differences) > 1 else "unknown"
        return "tie" if not self.different else "win" if self.mean > 0 else "loss"


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation (n - 1).

    >>> spread([1.0, 2.0, 3.0])
    Spread(mean=2.0, deviation=1.0, count=3)
    """
    if not values:
        raise UserError("values: a mean needs at least one.")
    _check_finite(values)
    return Spread(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def paired(first: Sequence[float], second: Sequence[float], *, level: float = LEVEL) -> Paired:
    """Compares two methods seed by seed: `first[i]` and `second[i]` have the same seed.

    >>> found = paired([0.62, 0.61, 0.62], [0.49, 0.50, 0.51])
    >>> round(found.mean, 4), found.wins, found.verdict
    (0.1167, 3, 'win')
    """
    if len(first) != len(second) or not first:
        raise UserError(f"values: pairs are needed, but {len(first)} and {len(second)} values were given.")
    if not 0 < level < 1:
        raise UserError(f"level: it should lie between 0 and 1, but {level} was given.")
    _check_finite((*first, *second))
    rounding = _rounding(first, second)
    differences = [a - b if abs(a - b) > rounding else 0.0 for a, b in zip(first, second, strict=True)]
    mean, count = fmean(differences), len(differences)
    interval = p = None
    if count >= FEWEST and max(differences) - min(differences) > rounding:
        error = stdev(differences) / sqrt(count)
        half = student_quantile(0.5 + level / 2, count - 1) * error
        interval = (mean - half, mean + half)
        p = 2 * (1 - student_cdf(abs(mean) / error, count - 1))
    wins, losses = sum(one > 0 for one in differences), sum(one < 0 for one in differences)
    effect = cohens_d(first, second) if count > 1 else None
    return Paired(tuple(differences), mean, interval, p, effect, wins, count - wins - losses, losses)


def cohens_d(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Cohen's d (SENSEI, Table 5): the difference of the means in units of the pooled standard deviation.

    None where it is infinite: both methods have no spread and they differ.

    >>> cohens_d([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
    1.0
    """
    many, more = len(first), len(second)
    if min(many, more) < 2:
        raise UserError("values: an effect size needs at least two of each method.")
    _check_finite((*first, *second))
    squares = (many - 1) * stdev(first) ** 2 + (more - 1) * stdev(second) ** 2
    pooled, difference = sqrt(squares / (many + more - 2)), fmean(first) - fmean(second)
    rounding = _rounding(first, second)
    if abs(difference) <= rounding:
        return 0.0
    return difference / pooled if pooled > rounding else None


def _rounding(first: Sequence[float], second: Sequence[float]) -> float:
    return ROUNDING * max(map(abs, (*first, *second)))


def _check_finite(values: Sequence[float], name: str = "values") -> None:
    wrong = next((value for value in values if not isfinite(value)), None)
    if wrong is not None:
        raise UserError(f"{name}: finite numbers are needed, but {wrong} was given.")


def image_bootstrap(differences_N: Tensor, *, rounds: int = ROUNDS) -> tuple[float, Interval]:
    """The mean of a difference per image and its percentile interval over images drawn again with replacement.

    `differences_N` are a first method's outcomes minus a second's on the same image, each the mean over its seeds. They
    take few values, so how often each of them is drawn is drawn at once, from the multinomial law: the same law as
    drawing image by image, at a thousandth of the cost.
    """
    count = len(differences_N)
    if not count:
        raise UserError("images: a bootstrap needs at least one.")
    values_V, how_often_V = differences_N.double().cpu().unique(return_counts=True)
    _check_finite(values_V.tolist(), "images")
    drawn_RV = _multinomial(how_often_V.double() / count, count, rounds)
    means_R = drawn_RV @ values_V / count
    ends = means_R.quantile(torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)).tolist()
    return float(differences_N.double().mean()), (ends[0], ends[1])


def _multinomial(shares_V: Tensor, count: int, rounds: int) -> Tensor:
    """`rounds` rows of how often each value is among `count` draws: one binomial per value, of what is left."""
    generator = torch.Generator().manual_seed(randomness.key(0, Stream.BOOTSTRAP))
    left_R, rest = torch.full((rounds,), float(count), dtype=torch.float64), 1.0
    columns = []
    for share in shares_V[:-1].tolist():
        chance = torch.full_like(left_R, min(1.0, share / rest))
        columns.append(torch.binomial(left_R, chance, generator=generator))
        left_R, rest = left_R - columns[-1], max(rest - share, share * 1e-12)
    return torch.stack([*columns, left_R], 1)


def student_cdf(t: float, freedom: int) -> float:
    """Student's distribution for whole degrees of freedom, in closed form (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    >>> student_cdf(0.0, 4), round(student_cdf(1.0, 1), 12)
    (0.5, 0.75)
    """
    if freedom < 1:
        raise UserError(f"freedom: at least 1 is needed, but {freedom} was given.")
    if not isfinite(t):
        return float(t > 0)
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = 0.0
    for at in range(1 if odd else 0, freedom - 1, 2):  # cos^1, cos^3, … or cos^0, cos^2, …
        total += term
        term *= cos(angle) ** 2 * (at + 1) / (at + 2)
    middle = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return 0.5 + middle / 2


def student_quantile(share: float, freedom: int) -> float:
    """The value below which Student's distribution has `share`, by halving.

    >>> round(student_quantile(0.975, 2), 6)
    4.302653
    """
    if not 0 < share < 1:
        raise UserError(f"share: it should lie between 0 and 1, but {share} was given.")
    if share < 0.5:
        return -student_quantile(1 - share, freedom)
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < share:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if student_cdf(middle, freedom) < share else (low, middle)
    return high

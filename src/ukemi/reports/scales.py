"""From values to places on an axis, for any finite values."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from sys import float_info


@dataclass(frozen=True)
class Scale:
    """Maps `low`..`high` onto `start`..`end` of a drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        # divided first: the range of two huge values is infinite, that of their shares is not
        unit = max(abs(self.low), abs(self.high))
        share = (value / unit - self.low / unit) / (self.high / unit - self.low / unit)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))


def limits(values: Iterable[float], at_least: tuple[float, ...] = ()) -> tuple[float, float]:
    """The lowest and highest value, and `at_least`; where these are (nearly) the same, some room around them."""
    given = [*values, *at_least] or [0.0]
    low, high = min(given), max(given)
    largest = max(abs(low), abs(high))
    if high / 2 - low / 2 > 1e-9 * (largest / 2) and largest > float_info.min:
        return low, high
    room = max(largest / 10, 1e-3)
    return max(low - room, -float_info.max), min(high + room, float_info.max)


def rounded(low: float, high: float) -> tuple[float, float]:
    """Limits moved outward to the next tick, so that a chart ends at a value that is written beside it."""
    step = _step(low, high, 4)
    wide = floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step
    return wide if all(map(isfinite, wide)) else (low, high)


def ticks(low: float, high: float, about: int = 4, whole: bool = False) -> list[float]:
    """Round values inside the limits: steps of 1, 2, 2.5 or 5 times a power of ten; `whole` leaves out fractions."""
    step = _step(low, high, about)
    step = max(1.0, ceil(step)) if whole else step
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)]


def _step(low: float, high: float, about: int) -> float:
    rough = high / about - low / about
    power = 10.0 ** floor(log10(rough))
    return power * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)

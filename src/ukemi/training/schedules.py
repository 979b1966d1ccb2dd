"""Learning-rate schedules: pure functions of progress, so there is nothing to save."""

from collections.abc import Callable
from math import cos, pi

Schedule = Callable[[float], float]
"""The share of the peak learning rate at a progress of 0 to 1."""


def constant(progress: float) -> float:
    return 1.0


def cosine(progress: float) -> float:
    """From 1 to 0 along half a cosine."""
    return 0.5 * (1 + cos(pi * min(progress, 1.0)))


def one_cycle(progress: float, rise: float = 0.3, start: float = 1 / 25) -> float:
    """Smith & Topin's cycle: a cosine from `start` up to 1 over the first `rise`, then a cosine down to nearly 0."""
    if progress < rise:
        return 1 + (start - 1) * cosine(progress / rise)
    return 1e-4 * start + (1 - 1e-4 * start) * cosine((progress - rise) / (1 - rise))


def steps(progress: float, drops: tuple[float, ...] = (0.4, 0.8)) -> float:
    """A tenth of what it was from each share of the training named in `drops` on."""
    return 0.1 ** sum(progress >= drop for drop in drops)

"""What a search for inputs aims at: a pattern and a goal, as a piece-wise fitness (section 2.3 of the paper).

The paper names no formula. Ours has three pieces, each above the one before: while the goal (misclassified, or kept) is
not met, how near the certain answer is to it; then how near PCS and VR are to their sides of the limits, the farther of
the two first; then how far beyond they are. VR moves in steps of 1/T and is 0 for most inputs, so the pieces also look
at its smooth form, the mean probability that the passes give to other classes than the predicted one. PCS crowds near
1, so its distance is that of the lead that it stands for. All but the count of passes has a gradient, which climbers
follow.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil, exp, isinf, lgamma, log
from typing import Literal, get_args

import torch
from torch import Tensor

from ukemi.errors import UserError
from ukemi.uncertainty.metrics import (
    Against,
    Confidence,
    Sampled,
    prediction_confidence,
    variation_ratio,
)
from ukemi.uncertainty.patterns import PATTERNS, Thresholds, number_of, patterns_of

Goal = Literal["misclassified", "kept"]
GOALS: tuple[str, ...] = get_args(Goal)
TINY = 1e-38
"""the smallest probability that a logarithm is taken of"""
NEAR_ONE = 1 - 1e-12
"""the highest PCS that a lead is taken of"""
WORST = -3.0
"""below any fitness"""
HOLDS = 0.9
"""how likely a find should be one under other masks, too"""
SMOOTH = 0.5
"""what of VR's distance from its limit is that of its smooth form"""
BALANCE = 0.9
"""what of the second piece is the farther of PCS and VR; the rest is their mean"""


@dataclass(frozen=True)
class Target:
    """The pattern and the goal that inputs are searched for, with the limits that define the pattern."""

    pattern: str
    goal: Goal
    thresholds: Thresholds
    confidence: Confidence = "margin"
    against: Against = "prediction"

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", PATTERNS[number_of(self.pattern)])
        if self.goal not in GOALS:
            raise UserError(f"goal: {self.goal!r} is none of {', '.join(GOALS)}.")

    def scored(self, sampled: Sampled, labels_N: Tensor, passes: float | None = None) -> "Scores":
        """How well N inputs, seeds of these labels, meet the target; safely so means that VR lies where `passes` other
        passes would find it again (default: as many as were sampled; infinite where chance has no part)."""
        certain, drawn = sampled.certain.double(), sampled.drawn.double()
        prediction_N = certain.argmax(1)
        pcs_N = prediction_confidence(certain, self.confidence)
        vr_N = variation_ratio(drawn, prediction_N if self.against == "prediction" else None)
        smooth_N = 1 - drawn.mean(0).gather(1, prediction_N[:, None])[:, 0]
        at_goal_N = (prediction_N == labels_N) == (self.goal == "kept")
        met_N = at_goal_N & (patterns_of(pcs_N, vr_N, self.thresholds) == number_of(self.pattern))
        short_N, beyond_N, safe_N = self._distances(pcs_N, vr_N, smooth_N, passes or len(drawn))
        inside_N = torch.where(met_N & safe_N, 1 + beyond_N, -short_N)
        fitness_N = torch.where(at_goal_N, inside_N, -2 - self._to_goal(certain, labels_N))
        # an answer that is not finite would sort above all others
        return Scores(fitness_N.nan_to_num(nan=WORST), met_N, met_N & safe_N)

    def _distances(self, pcs: Tensor, vr: Tensor, smooth: Tensor, passes: float) -> tuple[Tensor, Tensor, Tensor]:
        """How far short of the pattern, how far beyond its limits (each in [0, 1]), and whether far enough beyond: an
        input at the very limit would have another pattern under other masks."""
        high_pcs, high_vr = (letter == "H" for letter in self.pattern)
        limit = self.aimed_vr(passes)
        pcs_short = _lead_short(pcs, self.thresholds.pcs[high_pcs], high_pcs)
        vr_short = torch.lerp(_short(vr, limit, high_vr), _short(smooth, limit, high_vr), SMOOTH)
        safe = vr >= limit if high_vr else vr <= limit
        # PCS is certain, and any side of its limit will do: only VR can be more sure than met
        return _balanced(pcs_short, vr_short), smooth if high_vr else 1 - smooth, safe

    def aimed_vr(self, passes: float) -> float:
        """Where VR should truly lie, so that nine of ten sets of `passes` masks find it on the wanted side."""
        high = self.pattern[1] == "H"
        limit = self.thresholds.vr[high]
        return limit if isinf(passes) else _lasting(limit, int(passes), high)

    def _to_goal(self, certain_NK: Tensor, labels_N: Tensor) -> Tensor:
        """How far from the goal, in [0, 1): the gap in log probability between label and best other class, squashed."""
        logs_NK = certain_NK.clamp(min=TINY).log()
        own_N1 = labels_N[:, None]
        gap_N = (logs_NK.gather(1, own_N1)[:, 0] - logs_NK.scatter(1, own_N1, -torch.inf).amax(1)).abs()
        return gap_N / (1 + gap_N)


@cache
def _lasting(limit: float, passes: int, high: bool) -> float:
    """The share nearest to the limit that a draw of `passes` repeats on its side of it with `HOLDS`.

    >>> round(_lasting(0.01, 50, False), 4)  # none of 50 may differ: 0.9979 to the power of 50 is 0.9
    0.0021
    """
    least = ceil(limit * passes - 1e-9)  # so many differ at least where VR is high

    def holds(share: float) -> bool:
        below = sum(_chance(differ, passes, share) for differ in range(least))
        return (1 - below if high else below) >= HOLDS

    away, near = (1.0, limit) if high else (0.0, limit)
    if holds(near):
        return near
    for _ in range(40):
        middle = (away + near) / 2
        away, near = (middle, near) if holds(middle) else (away, middle)
    return away


def _chance(differ: int, passes: int, share: float) -> float:
    """How likely it is that so many of all passes differ, where each does with `share`; by logarithms, since a thousand
    passes have more combinations than a float can say."""
    logs = log(max(share, 1e-300)), log(max(1 - share, 1e-300))
    ways = lgamma(passes + 1) - lgamma(differ + 1) - lgamma(passes - differ + 1)
    return exp(ways + differ * logs[0] + (passes - differ) * logs[1])


@dataclass(frozen=True)
class Scores:
    """N inputs beside a target."""

    fitness: Tensor
    """float64 `[N]`: below -2 short of the goal, -1 to 0 short of the pattern, from 1 on there"""
    met: Tensor
    """bool `[N]`: goal and pattern"""
    safe: Tensor
    """bool `[N]`: met, and VR far enough beyond its limit"""


def _balanced(first: Tensor, second: Tensor) -> Tensor:
    """Mostly the larger of two distances, so that neither is bought with the other."""
    both = torch.stack([first, second])
    return BALANCE * both.amax(0) + (1 - BALANCE) * both.mean(0)


def _lead_short(pcs: Tensor, limit: float, high: bool) -> Tensor:
    """How far PCS is on the wrong side of its limit, in leads: from 0.99 to 0.995 is as far as from 0.92 to 0.96. As a
    share of the lead that is wanted, or squashed, since a lead has no end; in [0, 1]."""
    wanted = lead(torch.tensor(limit, dtype=torch.float64)).item()
    away = (wanted - lead(pcs) if high else lead(pcs) - wanted).clamp(min=0)
    return (away / max(wanted, 1e-9)).clamp(max=1) if high else away / (1 + away)


def lead(pcs: Tensor) -> Tensor:
    """How far the first of two classes is ahead in logits where the probabilities differ by `pcs`."""
    return 2 * pcs.clamp(max=NEAR_ONE).atanh()


def _short(values: Tensor, limit: float, high: bool) -> Tensor:
    """How far values are on the wrong side of a limit, as a share of all the room there, in [0, 1]."""
    away = (limit - values) / max(limit, 1e-9) if high else (values - limit) / max(1 - limit, 1e-9)
    return away.clamp(0, 1)

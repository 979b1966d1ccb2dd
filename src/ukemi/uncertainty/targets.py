"""What a search for inputs aims at: a pattern and a goal, as a piece-wise fitness (section 2.3 of the paper).

The paper names no formula. Ours has three pieces, each above the one before: while the goal (misclassified, or kept) is
not met, how near the certain answer is to it; then how near PCS and VR are to their sides of the limits; then how far
beyond VR is. Distances are taken in logits, and have gradients, which climbers follow. PCS crowds near 1, so its
distance is that of the lead that it stands for. VR moves in steps of 1/T and is 0 for most inputs, so its distance is
that of the leads that the passes give to the predicted class: how far their mean is, in their deviations, from that of
normal leads of which such a share is below 0.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil, exp, floor, isinf, lgamma, log
from typing import Literal, get_args

import torch
from torch import Tensor

from ukemi.errors import check_known
from ukemi.uncertainty.metrics import (
    Against,
    Confidence,
    Sampled,
    modes,
    prediction_confidence,
    variation_ratio,
)
from ukemi.uncertainty.patterns import PATTERNS, Thresholds, number_of, patterns_of

Goal = Literal["misclassified", "kept"]
GOALS: tuple[Goal, ...] = get_args(Goal)
TINY = 1e-38
"""the smallest probability that a logarithm is taken of"""
NEAR_ONE = 1 - 1e-12
"""the highest PCS that a lead is taken of"""
WORST = -3.0
"""below any fitness"""
HOLDS = 0.9
"""how likely a find should be one under other masks, too"""
DECIDING = 0.1
"""what of VR's distance is that of the pass which decides on it; the rest is that of normal leads"""
STILL = 1e-6
"""no leads are taken to deviate by less, in logits"""


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
        choices = {"goal": GOALS, "confidence": get_args(Confidence), "against": get_args(Against)}
        for name, known in choices.items():
            check_known(name, getattr(self, name), known)

    def scored(self, sampled: Sampled, labels_N: Tensor, passes: float | None = None) -> "Scores":
        """How well N inputs, seeds of these labels, meet the target; safely so means that VR lies where `passes` other
        passes would find it again (default: as many as were sampled; infinite where chance has no part)."""
        certain, drawn = sampled.certain.double(), sampled.drawn.double()
        prediction_N = certain.argmax(1)
        pcs_N = prediction_confidence(certain, self.confidence)
        counted_N = prediction_N if self.against == "prediction" else modes(drawn)
        vr_N, leads_TN = variation_ratio(drawn, counted_N), leads(drawn, counted_N)
        at_goal_N = (prediction_N == labels_N) == (self.goal == "kept")
        met_N = at_goal_N & (patterns_of(pcs_N, vr_N, self.thresholds) == number_of(self.pattern))
        short_N, beyond_N, safe_N = self._distances(pcs_N, vr_N, leads_TN, passes or len(drawn))
        inside_N = torch.where(met_N & safe_N, 1 + beyond_N, -short_N)
        fitness_N = torch.where(at_goal_N, inside_N, -2 - self._to_goal(certain, labels_N))
        # an answer that is not finite would sort above all others
        return Scores(fitness_N.nan_to_num(nan=WORST), met_N, met_N & safe_N)

    def _distances(self, pcs: Tensor, vr: Tensor, leads_TN: Tensor, passes: float) -> tuple[Tensor, Tensor, Tensor]:
        """How far short of the pattern, how far beyond its limits (each in [0, 1]), and whether far enough beyond: an
        input at the very limit would have another pattern under other masks."""
        high_pcs, high_vr = (letter == "H" for letter in self.pattern)
        limit = self.aimed_vr(passes)
        pcs_short = _lead_short(pcs, self.thresholds.pcs[high_pcs], high_pcs)
        steady_TN = leads_TN / _deviation(leads_TN)
        ahead = steady_TN.mean(0)
        safe = vr >= limit if high_vr else vr <= limit
        # PCS is certain, and any side of its limit will do: only VR can be more sure than met
        beyond = torch.special.ndtr(-ahead if high_vr else ahead)
        return (pcs_short + _steady_short(steady_TN, limit, high_vr)) / 2, beyond, safe

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


def _lead_short(pcs: Tensor, limit: float, high: bool) -> Tensor:
    """How far PCS is on the wrong side of its limit, in leads: from 0.99 to 0.995 is as far as from 0.92 to 0.96. As a
    share of the lead that is wanted, or squashed, since a lead has no end; in [0, 1]."""
    wanted = lead(torch.tensor(limit, dtype=torch.float64)).item()
    away = (wanted - lead(pcs) if high else lead(pcs) - wanted).clamp(min=0)
    return (away / max(wanted, 1e-9)).clamp(max=1) if high else away / (1 + away)


def lead(pcs: Tensor) -> Tensor:
    """How far the first of two classes is ahead in logits where the probabilities differ by `pcs`."""
    return 2 * pcs.clamp(max=NEAR_ONE).atanh()


def leads(drawn_TNK: Tensor, labels_N: Tensor) -> Tensor:
    """How far each pass puts a class ahead of the best other one, in logits, `[T, N]`."""
    logs_TNK, own_TN1 = drawn_TNK.clamp(min=TINY).log(), labels_N[None, :, None].expand(len(drawn_TNK), -1, 1)
    return logs_TNK.gather(2, own_TN1)[..., 0] - logs_TNK.scatter(2, own_TN1, -torch.inf).amax(2)


def _deviation(leads_TN: Tensor) -> Tensor:
    return ((leads_TN - leads_TN.mean(0)).square().mean(0) + STILL**2).sqrt()


def _steady_short(steady_TN: Tensor, limit: float, high: bool) -> Tensor:
    """How far leads, in their deviations, are from such that a share `limit` of them is below 0, squashed to [0, 1).

    The mean sees all passes, but only of normal leads it says how many are lost; the pass that decides on the count
    leads where they are not, as those of an ensemble: both are 0 only where enough are lost, or few enough.
    """
    wanted = -torch.special.ndtri(torch.tensor(limit, dtype=torch.float64).clamp(TINY, NEAR_ONE)).item()
    passes, sign = len(steady_TN), 1 if high else -1
    at = ceil(limit * passes - 1e-9) - 1 if high else floor(limit * passes + 1e-9)
    decides = steady_TN.sort(0).values[min(max(at, 0), passes - 1)]
    normal, deciding = (sign * (steady_TN.mean(0) - wanted)).clamp(min=0), (sign * decides).clamp(min=0)
    away = torch.lerp(normal, deciding, DECIDING)
    return away / (1 + away)

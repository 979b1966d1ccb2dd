"""The piece-wise fitness beside a slow form of it, input by input."""

from math import inf, log

import pytest
import torch

from ukemi.uncertainty import GOALS, PATTERNS, Sampled, Target, Thresholds, measured
from ukemi.uncertainty.metrics import Against, Confidence
from ukemi.uncertainty.targets import lead

COUNT, PASSES, CLASSES = 80, 10, 4
GAP = Thresholds((0.3, 0.6), (0.2, 0.5))


def sampled() -> Sampled:
    generator = torch.Generator().manual_seed(5)
    own = torch.randn(COUNT, CLASSES, generator=generator, dtype=torch.float64) * 3
    spread = torch.rand(COUNT, 1, generator=generator, dtype=torch.float64) * 4
    noise = torch.randn(PASSES, COUNT, CLASSES, generator=generator, dtype=torch.float64)
    return Sampled(own.softmax(1), (own + spread * noise).softmax(2))


def short_of_lead(pcs: float, limit: float, high: bool) -> float:
    """In leads: of two classes whose probabilities differ by p, the first is log((1 + p) / (1 - p)) ahead."""
    lead, wanted = (log((1 + p) / (1 - p)) for p in (pcs, limit))
    away = max(0.0, wanted - lead if high else lead - wanted)
    return away / wanted if high else away / (1 + away)


def short_of(value: float, limit: float, high: bool) -> float:
    """On the wrong side of the limit, as a share of the room there."""
    return max(0.0, (limit - value) / limit if high else (value - limit) / (1 - limit))


@pytest.mark.parametrize("passes", [float(PASSES), inf])
@pytest.mark.parametrize(("confidence", "against"), [("margin", "prediction"), ("max", "mode")])
@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_fitness_is_that_of_a_slow_loop(
    pattern: str, goal: str, confidence: Confidence, against: Against, passes: float
) -> None:
    given, labels = sampled(), torch.arange(COUNT) % CLASSES
    target = Target(pattern, goal, GAP, confidence, against)  # type: ignore[arg-type]
    scores, known = target.scored(given, labels, passes), measured(given, confidence, against)
    high_pcs, high_vr = pattern[0] == "H", pattern[1] == "H"
    pcs_limit, vr_limit, aimed = GAP.pcs[high_pcs], GAP.vr[high_vr], target.aimed_vr(passes)
    assert aimed == vr_limit if passes == inf else (aimed > vr_limit) == high_vr
    pieces = set()
    for n in range(COUNT):
        p, pcs, vr = given.certain[n].tolist(), float(known.pcs[n]), float(known.vr[n])
        label, guess = int(labels[n]), int(known.prediction[n])
        smooth = 1 - float(given.drawn[:, n, guess].mean())
        met = (guess == label) == (goal == "kept")
        gap = abs(log(p[label]) - log(max(q for at, q in enumerate(p) if at != label)))
        wanted, piece = -2 - gap / (1 + gap), "goal"
        if met:
            met &= pcs >= pcs_limit if high_pcs else pcs < pcs_limit
            met &= vr >= vr_limit if high_vr else vr < vr_limit
            safe = met and (vr >= aimed if high_vr else vr <= aimed)
            far_vr = (short_of(vr, aimed, high_vr) + short_of(smooth, aimed, high_vr)) / 2
            far = short_of_lead(pcs, pcs_limit, high_pcs), far_vr
            wanted = 1 + (smooth if high_vr else 1 - smooth) if safe else -(0.9 * max(far) + 0.1 * sum(far) / 2)
            piece = "there" if safe else "pattern"
            assert bool(scores.safe[n]) == safe
        assert float(scores.fitness[n]) == pytest.approx(wanted, abs=1e-9) and bool(scores.met[n]) == met
        pieces.add(piece)
    assert {"goal", "pattern"} <= pieces


@pytest.mark.parametrize("ahead", [0.0, 0.3, 2.0, 9.0])
def test_the_lead_of_two_classes_is_the_difference_of_their_logits(ahead: float) -> None:
    certain = torch.tensor([[1.5 + ahead, 1.5]], dtype=torch.float64).softmax(1)
    assert float(lead(certain[:, 0] - certain[:, 1])) == pytest.approx(ahead, abs=1e-6)
    assert lead(torch.ones(1, dtype=torch.float64)).isfinite().all()

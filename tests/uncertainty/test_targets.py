"""The piece-wise fitness beside a slow form of it, input by input."""

from math import ceil, floor, inf, log
from statistics import NormalDist, fmean, pstdev

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


def short_of_steadiness(drawn: list[list[float]], counted: int, limit: float, high: bool) -> tuple[float, float]:
    """In deviations of the passes' leads: their mean beside that of normal leads, and the pass that the count hangs on;
    and the share of normal leads like these that is on the wanted side."""
    leads = sorted(log(p[counted]) - log(max(q for at, q in enumerate(p) if at != counted)) for p in drawn)
    mean, deviation = fmean(leads), pstdev(leads)
    wanted = NormalDist().inv_cdf(1 - limit)
    decides = leads[ceil(limit * PASSES) - 1 if high else floor(limit * PASSES)] / deviation
    normal, last = mean / deviation - wanted, decides
    away = 0.9 * max(0.0, normal if high else -normal) + 0.1 * max(0.0, last if high else -last)
    lost = NormalDist().cdf(-mean / deviation)
    return away / (1 + away), lost if high else 1 - lost


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
        answers = given.drawn[:, n].tolist()
        votes = given.drawn[:, n].argmax(1).bincount(minlength=CLASSES)
        counted = guess if against == "prediction" else int(votes.argmax())
        met = (guess == label) == (goal == "kept")
        gap = abs(log(p[label]) - log(max(q for at, q in enumerate(p) if at != label)))
        wanted, piece = -2 - gap / (1 + gap), "goal"
        if met:
            met &= pcs >= pcs_limit if high_pcs else pcs < pcs_limit
            met &= vr >= vr_limit if high_vr else vr < vr_limit
            safe = met and (vr >= aimed if high_vr else vr <= aimed)
            far_vr, beyond = short_of_steadiness(answers, counted, aimed, high_vr)
            far = (short_of_lead(pcs, pcs_limit, high_pcs) + far_vr) / 2
            wanted = 1 + beyond if safe else -far
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


def test_leads_that_are_not_normal_still_have_a_slope() -> None:
    """An ensemble of three, one far less sure than the others: by mean and deviation of its leads a share of 0.07
    would be below 0, but none is."""
    logits = torch.tensor([[[8.0, 0.0]], [[8.0, 0.0]], [[0.1, 0.0]]], dtype=torch.float64, requires_grad=True)
    drawn = logits.softmax(2)
    scores = Target("HH", "kept", Thresholds((0.5, 0.5), (0.07, 0.07))).scored(
        Sampled(drawn[0], drawn), torch.zeros(1, dtype=torch.int64), inf
    )
    (slopes,) = torch.autograd.grad(scores.fitness.sum(), logits)
    assert not scores.met.any() and -0.01 < float(scores.fitness.detach()) < 0
    assert float(slopes[2, 0, 0]) < 0 < float(slopes[2, 0, 1])  # the third turns


@pytest.mark.parametrize("limit", [1e-9, 0.5, 1.0])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_any_limit_has_a_fitness(pattern: str, limit: float) -> None:
    scores = Target(pattern, "kept", Thresholds((0.5, 0.5), (limit, limit))).scored(
        sampled(), torch.zeros(COUNT).long()
    )
    assert bool((scores.fitness > -3).all()) and bool((scores.fitness <= 2).all())
    assert bool((scores.fitness[scores.safe] >= 1).all()) and bool((scores.fitness[~scores.safe] <= 0).all())


def test_passes_that_agree_wholly_have_a_fitness_and_a_slope() -> None:
    logits = torch.tensor([[3.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    drawn = logits.softmax(1).expand(PASSES, 1, 3)
    scores = Target("HH", "kept", GAP).scored(Sampled(logits.softmax(1), drawn), torch.zeros(1, dtype=torch.int64))
    (slopes,) = torch.autograd.grad(scores.fitness.sum(), logits)
    assert -1 <= float(scores.fitness.detach()) < 0 and slopes.isfinite().all()

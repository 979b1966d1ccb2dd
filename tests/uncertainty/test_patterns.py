"""Patterns, thresholds and AUROC beside slow references; calibration beside its definition."""

from itertools import pairwise
from math import isnan, log2, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ukemi import UserError
from ukemi.uncertainty import (
    PATTERNS,
    Thresholds,
    Uncertainty,
    auroc,
    aurocs,
    expected_calibration_error,
    found_thresholds,
    patterns_of,
    reliability,
    shares_of,
    unstable,
    youden,
)

VALUES = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 1.0]), min_size=1, max_size=12)


def uncertain(pcs: list[float], vr: list[float], passes: int = 50) -> Uncertainty:
    zeros = torch.zeros(len(pcs), dtype=torch.float64)
    p, v = torch.tensor(pcs, dtype=torch.float64), torch.tensor(vr, dtype=torch.float64)
    return Uncertainty(zeros.long(), zeros, p, v, zeros, zeros, passes)


@given(VALUES, VALUES)
def test_auroc_is_the_share_of_pairs_in_order(negative: list[float], positive: list[float]) -> None:
    pairs = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative]
    low, high = torch.tensor(negative), torch.tensor(positive)
    assert auroc(low, high) == pytest.approx(sum(pairs) / len(pairs)) == auroc(low[:, None], high[:, None])


def test_every_metric_is_judged_by_its_own_direction() -> None:
    benign, attacked = uncertain([0.9, 0.8], [0.0, 0.1]), uncertain([0.1, 0.2], [0.5, 0.6])
    assert aurocs(benign, attacked) == {"pcs": 1.0, "vr": 1.0, "pe": 0.5, "mi": 0.5}
    assert isnan(auroc(torch.tensor([1.0]), torch.tensor([])))
    assert isnan(auroc(torch.tensor([torch.nan, 0.3]), torch.tensor([0.5])))


@given(VALUES, VALUES)
def test_youdens_limit_is_the_best_of_all(low: list[float], high: list[float]) -> None:
    values = sorted({*low, *high})
    if len(values) < 2:
        return
    limit, gain = youden(torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64))

    def j(t: float) -> float:
        return sum(v >= t for v in high) / len(high) - sum(v >= t for v in low) / len(low)

    tried = [(a + b) / 2 for a, b in pairwise(values)]
    assert gain == pytest.approx(j(limit)) and gain == pytest.approx(max(map(j, tried)))
    assert limit == pytest.approx(min(t for t in tried if j(t) > max(map(j, tried)) - 1e-12))


def test_thresholds_part_benign_from_attacked() -> None:
    found = found_thresholds(uncertain([0.9, 0.8, 0.4], [0.0, 0.0, 0.1]), uncertain([0.1, 0.2, 0.3], [0.3, 0.5, 0.9]))
    assert found.pcs == pytest.approx((0.35, 0.35)) and found.vr == pytest.approx((0.2, 0.2))
    with pytest.raises(UserError, match=r"^vr-thresholds: .* do not differ"):
        found_thresholds(uncertain([0.5], [0.0]), uncertain([0.4], [0.0]))
    with pytest.raises(UserError, match=r"^pcs-thresholds: .* do not differ"):
        found_thresholds(uncertain([0.5], [0.0]), uncertain([0.5], [0.2]))


def test_a_limit_that_parts_worse_than_none_is_no_threshold() -> None:
    """Where attacked inputs are the surer ones, the best limit between two values would still name them backwards."""
    with pytest.raises(UserError, match=r"^pcs-thresholds: attacked validation data are not lower than benign"):
        found_thresholds(uncertain([0.4, 0.5], [0.0, 0.0]), uncertain([0.8, 0.9], [0.3, 0.5]))
    with pytest.raises(UserError, match=r"^vr-thresholds: attacked validation data are not higher than benign"):
        found_thresholds(uncertain([0.9, 0.8], [0.1, 0.2]), uncertain([0.4, 0.5], [0.0, 0.1]))
    with pytest.raises(UserError, match=r"^pcs-thresholds: .* \(Youden's J is 0 at best\)"):
        found_thresholds(uncertain([0.2, 0.8], [0.0, 0.0]), uncertain([0.2, 0.8], [0.5, 0.5]))


def test_patterns_are_low_and_high_of_both() -> None:
    limits = Thresholds((0.3, 0.7), (0.2, 0.5))
    pcs = torch.tensor([0.1, 0.1, 0.9, 0.9, 0.3, 0.7, 0.1])
    vr = torch.tensor([0.1, 0.6, 0.1, 0.6, 0.1, 0.5, 0.2])
    assert patterns_of(pcs, vr, limits).tolist() == [0, 1, 2, 3, -1, 3, -1]
    one = Thresholds((0.5, 0.5), (0.2, 0.2))
    assert patterns_of(torch.tensor([0.5, 0.499]), torch.tensor([0.2, 0.199]), one).tolist() == [3, 0]


def test_shares_count_what_there_is() -> None:
    limits = Thresholds((0.5, 0.5), (0.3, 0.3))
    row = shares_of(uncertain([0.9, 0.9, 0.1, 0.9], [0.0, 0.0, 0.8, 0.32]), limits)
    assert row.count == 4 and row.between == 0
    assert row.patterns == {"LL": 0, "LH": 0.25, "HL": 0.5, "HH": 0.25}
    assert row.entropy == pytest.approx(-(0.25 * log2(0.25) * 2 + 0.5 * log2(0.5)))
    assert row.unstable == 0.25
    assert shares_of(uncertain([0.9] * 4, [0.0] * 4), limits).entropy == pytest.approx(0)
    even = shares_of(uncertain([0.1, 0.1, 0.9, 0.9], [0.0, 0.9, 0.0, 0.9]), limits)
    gap = shares_of(uncertain([0.1, 0.4, 0.9], [0.0, 0.0, 0.0]), Thresholds((0.3, 0.7), (0.3, 0.3)))
    assert gap.between == pytest.approx(1 / 3) and gap.entropy == pytest.approx(1)  # of those that have a pattern
    assert even.entropy == pytest.approx(2) and set(even.patterns) == set(PATTERNS)


def test_unstable_is_within_sampling_error_or_between() -> None:
    error = 1.96 * sqrt(0.3 * 0.7 / 50)
    vr = torch.tensor([0.3 - error - 1e-3, 0.3 - error + 1e-3, 0.3, 0.3 + error - 1e-3, 0.3 + error + 1e-3])
    assert unstable(vr, Thresholds((0.5, 0.5), (0.3, 0.3)), 50).tolist() == [False, True, True, True, False]
    wide = Thresholds((0.5, 0.5), (0.1, 0.9))
    assert unstable(torch.tensor([0.05, 0.5, 0.91, 0.95]), wide, 1_000).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("pcs", "vr", "said"),
    [
        ((0.7, 0.3), (0.2, 0.2), "pcs-thresholds: low should not lie above high, but 0.7 and 0.3"),
        ((0.5, 0.5), (0.6, 0.2), "vr-thresholds: low should not lie above high"),
        ((0.0, 0.5), (0.2, 0.2), "pcs-thresholds: they should lie above 0 and up to 1"),
        ((0.5, 0.5), (0.2, 1.5), "vr-thresholds: they should lie above 0 and up to 1"),
        ((0.1, 0.2, 0.3), (0.2, 0.2), "one number or two"),
    ],
)
def test_crossed_thresholds_are_named(pcs: tuple[float, float], vr: tuple[float, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Thresholds(pcs, vr)


CONFIDENCES = st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])  # also at the ends of bins


@given(st.lists(st.tuples(CONFIDENCES, st.booleans()), min_size=1, max_size=30), st.sampled_from([1, 2, 4, 7, 12]))
def test_calibration_is_its_definition(answers: list[tuple[float, bool]], bins: int) -> None:
    bucket: dict[int, list[tuple[float, bool]]] = {}
    for confidence, right in answers:
        at = next(b for b in range(bins) if confidence <= (b + 1) / bins or b == bins - 1)
        bucket.setdefault(at, []).append((confidence, right))
    wanted = sum(
        abs(sum(c for c, _ in rows) / len(rows) - sum(r for _, r in rows) / len(rows)) * len(rows) / len(answers)
        for rows in bucket.values()
    )
    confidence_N = torch.tensor([c for c, _ in answers], dtype=torch.float64)
    right_N = torch.tensor([r for _, r in answers])
    assert expected_calibration_error(confidence_N, right_N, bins) == pytest.approx(wanted, abs=1e-12)
    found = reliability(confidence_N, right_N, bins)
    assert found.count.tolist() == [len(bucket.get(b, [])) for b in range(bins)]
    gaps = [abs(sum(c for c, _ in rows) - sum(r for _, r in rows)) / len(rows) for rows in bucket.values()]
    assert found.largest_error == pytest.approx(max(gaps), abs=1e-12)
    assert len(reliability(confidence_N, right_N).count) == 15  # what measured numbers have


def test_calibration_of_nothing_is_an_error() -> None:
    with pytest.raises(UserError, match="no answer"):
        reliability(torch.tensor([]), torch.tensor([]))
    with pytest.raises(UserError, match="bins: at least 1"):
        reliability(torch.tensor([0.5]), torch.tensor([True]), 0)


@pytest.mark.parametrize(
    ("confidence", "said"),
    [
        ([0.5, torch.nan], "probabilities in"),
        ([0.5, 7.3], "are they logits"),
        ([0.5, -0.1], "probabilities in"),
        ([0.5, 1.01], "probabilities in"),
        ([0.5], "one number for each answer that is right or wrong is needed, but .1. and .2. were given"),
    ],
)
def test_what_is_no_confidence_is_named(confidence: list[float], said: str) -> None:
    """A NaN counted as no gap at all."""
    with pytest.raises(UserError, match=f"^confidence: .*{said}"):
        expected_calibration_error(torch.tensor(confidence), torch.tensor([True, False]))
    assert expected_calibration_error(torch.tensor([1 + 1e-6]), torch.tensor([True])) == pytest.approx(1e-6, rel=0.1)


@pytest.mark.parametrize("shape", [(), (2, 1)])
def test_what_is_no_row_of_confidences_is_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"^confidence: one number for each answer .* but .* were given"):
        reliability(torch.full(shape, 0.5), torch.ones(shape, dtype=torch.bool))

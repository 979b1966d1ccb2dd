"""Intervals and effect sizes against SciPy, closed forms and a slow bootstrap; and how often they cry wolf."""

from math import inf, nan, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ukemi.errors import UserError
from ukemi.measures.statistics import (
    cohens_d,
    image_bootstrap,
    paired,
    spread,
    student_cdf,
    student_quantile,
)

SHARES = st.integers(0, 10_000).map(lambda right: right / 10_000)
PAIRS = st.lists(st.tuples(SHARES, SHARES), min_size=3, max_size=12)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 29, 30, 101])
def test_students_distribution_is_scipys(freedom: int) -> None:
    for t in (-40.0, -3.1, -0.2, 0.0, 0.7, 2.2, 12.7, 300.0):
        assert student_cdf(t, freedom) == pytest.approx(stats.t.cdf(t, freedom), abs=1e-12)
    for share in (0.001, 0.025, 0.4, 0.5, 0.9, 0.975, 0.9995):
        assert student_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-8, abs=1e-9)


@given(PAIRS)
def test_the_t_interval_and_p_are_scipys(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = paired(first, second)
    assert found.wins + found.ties + found.losses == len(pairs)
    assert found.wins == sum(a > b for a, b in pairs) and found.losses == sum(a < b for a, b in pairs)
    differences = np.subtract(first, second)
    assert found.mean == pytest.approx(differences.mean(), abs=1e-12)
    if differences.std() < 1e-9:
        return
    wanted = stats.ttest_rel(first, second)
    interval = wanted.confidence_interval(0.95)
    assert found.interval == pytest.approx((interval.low, interval.high), rel=1e-7, abs=1e-10)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-10)
    if abs(found.p - 0.05) > 1e-6:
        assert found.different == (wanted.pvalue < 0.05)


def test_cohens_d_is_its_formula() -> None:
    first, second = [0.70, 0.74, 0.72, 0.69], [0.61, 0.66, 0.60]
    pooled = sqrt((3 * np.var(first, ddof=1) + 2 * np.var(second, ddof=1)) / 5)
    assert cohens_d(first, second) == pytest.approx((np.mean(first) - np.mean(second)) / pooled)
    assert cohens_d([1.0, 1.0], [1.0, 1.0]) == 0 and cohens_d([2.0, 2.0], [1.0, 1.0]) is None


def test_without_a_spread_over_three_seeds_there_is_no_interval() -> None:
    same = paired([0.5, 0.6], [0.5, 0.6])
    assert (same.mean, same.interval, same.p, same.effect, same.verdict, same.ties) == (0, None, None, 0, "tie", 2)
    apart = paired([0.75, 0.75], [0.5, 0.5])
    assert (apart.interval, apart.p, apart.effect, apart.verdict, apart.wins) == (None, None, None, "unknown", 2)
    two = paired([0.7, 0.8], [0.5, 0.5])
    assert (two.interval, two.p, two.verdict, two.wins) == (None, None, "unknown", 2) and not two.different
    shifted = paired([0.3, 0.4, 0.5], [0.1, 0.2, 0.3])  # the same to rounding
    assert len(set(shifted.differences)) > 1 and (shifted.interval, shifted.verdict) == (None, "unknown")
    one = paired([0.5], [0.75])
    assert (one.interval, one.p, one.effect, one.verdict, one.losses) == (None, None, None, "unknown", 1)
    assert paired([0.5], [0.5]).verdict == "unknown" and paired([0.5] * 3, [0.5] * 3).verdict == "tie"
    assert paired([0.5, 0.5, 0.51], [0.75, 0.75, 0.75]).verdict == "loss"
    assert spread([0.5]).deviation is None


def test_means_that_differ_in_their_last_bits_are_equal() -> None:
    """(0.3 + 0.5) / 2 is 0.4 and (0.1 + 0.7) / 2 is 0.39999999999999997: means over two cases."""
    same = paired([(0.3 + 0.5) / 2] * 3, [(0.1 + 0.7) / 2] * 3)
    assert (same.differences, same.mean, same.ties, same.effect, same.verdict) == ((0, 0, 0), 0, 3, 0, "tie")
    still = paired([(0.3 + 0.5) / 2, (0.1 + 0.7) / 2, 0.4], [0.25, 0.25, 0.25])
    assert (still.wins, still.effect, still.interval) == (3, None, None)


def test_the_bootstrap_is_that_of_drawing_image_by_image() -> None:
    rng = np.random.default_rng(3)
    differences = rng.choice([-1, -1 / 3, 0, 1 / 3, 1], 300, p=[0.05, 0.1, 0.6, 0.1, 0.15])
    mean, (low, high) = image_bootstrap(torch.from_numpy(differences))
    slow = [rng.choice(differences, 300).mean() for _ in range(10_000)]
    width = np.std(differences) / sqrt(300)
    assert mean == pytest.approx(differences.mean())
    assert [low, high] == pytest.approx(list(np.quantile(slow, [0.025, 0.975])), abs=0.1 * width)
    wanted = stats.bootstrap((differences,), np.mean, method="percentile", random_state=0)
    assert [low, high] == pytest.approx(list(wanted.confidence_interval), abs=0.1 * width)


@pytest.mark.parametrize("values", [[0.0], [1.0, 1.0, 1.0], [0.0] * 999 + [1.0]])
def test_the_bootstrap_stays_among_the_values(values: list[float]) -> None:
    mean, (low, high) = image_bootstrap(torch.tensor(values), rounds=500)
    assert min(values) <= low <= mean <= high <= max(values) and mean == pytest.approx(np.mean(values))
    assert image_bootstrap(torch.tensor(values), rounds=500) == (mean, (low, high))


def within_binomial_error(called: int, trials: int, rate: float = 0.05) -> bool:
    """Two-sided at 1 in 1,000."""
    return bool(stats.binomtest(called, trials, rate).pvalue > 0.001)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_a_method_against_itself_is_called_different_in_five_percent_of_cases(seeds: int) -> None:
    """Each seed shifts both methods alike (its data order), each run by itself; then images are counted."""
    rng = np.random.default_rng(seeds)
    level = 0.6 + 0.02 * rng.normal(size=(1000, seeds, 1)) + 0.01 * rng.normal(size=(1000, seeds, 2))
    accuracy = rng.binomial(1000, level.clip(0, 1)) / 1000
    called = sum(paired(list(one[:, 0]), list(one[:, 1])).different for one in accuracy)
    assert within_binomial_error(called, 1000), called


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_bootstrap_calls_equal_models_different_in_five_percent_of_cases(seeds: int) -> None:
    """Models that are right on each image with the same chance, which differs from image to image."""
    rng = np.random.default_rng(seeds)
    chance = rng.beta(2, 1, size=(1000, 1, 400))
    first, second = (rng.random((1000, seeds, 400)) < chance for _ in range(2))
    differences = torch.from_numpy(first.mean(1) - second.mean(1))
    called = 0
    for one in differences:
        _, (low, high) = image_bootstrap(one, rounds=500)
        called += not low <= 0 <= high
    assert within_binomial_error(called, 1000), called


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: paired([1.0], [1.0, 2.0]), "pairs are needed, but 1 and 2"),
        (lambda: paired([], []), "pairs are needed"),
        (lambda: paired([1.0], [1.0], level=1.0), "level: it should lie between 0 and 1"),
        (lambda: paired([1.0, nan, 2.0], [1.0, 2.0, 4.0]), "values: finite numbers are needed, but nan"),
        (lambda: paired([inf, 1.0, 2.0], [1.0, 2.0, 3.0]), "values: finite numbers are needed, but inf"),
        (lambda: cohens_d([1.0, nan], [1.0, 2.0]), "values: finite numbers are needed"),
        (lambda: spread([1.0, nan]), "values: finite numbers are needed"),
        (lambda: image_bootstrap(torch.tensor([1.0, nan])), "images: finite numbers are needed"),
        (lambda: spread([]), "at least one"),
        (lambda: cohens_d([1.0], [1.0, 2.0]), "at least two of each"),
        (lambda: image_bootstrap(torch.zeros(0)), "at least one"),
        (lambda: student_cdf(1.0, 0), "freedom: at least 1"),
        (lambda: student_quantile(1.0, 3), "share: it should lie between 0 and 1"),
    ],
)
def test_mistakes_are_named(call, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=said):
        call()

"""Surprise adequacy, against SciPy and slow loops."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gaussian_kde
from torch import Tensor

from ukemi.activations import densities, distance_surprise, likelihood_surprise, neighbours, surprise


def traces_of(seed: int, count: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """Correlated traces around a centre per class; every class has some."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    mix = torch.randn(classes, width, width, generator=generator, dtype=torch.float64)
    drawn = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return 3 * labels[:, None] + torch.einsum("td,tde->te", drawn, mix[labels]), labels


@given(st.integers(0, 999), st.integers(1, 6), st.integers(1, 3))
def test_likelihood_surprise_is_scipys(seed: int, width: int, classes: int) -> None:
    traces, labels = traces_of(seed, 40 * classes, width, classes)
    asked, asked_labels = traces_of(seed + 1, 11, width, classes)
    got = likelihood_surprise(asked, asked_labels, densities(traces, labels, classes))
    for row, label, value in zip(asked, asked_labels, got, strict=True):
        expected = -gaussian_kde(traces[labels == label].T.numpy()).logpdf(row.numpy())[0]
        assert value.item() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_flat_unit_is_left_out() -> None:
    traces, labels = traces_of(0, 60, 3, 2)
    asked, asked_labels = traces_of(1, 9, 3, 2)
    still = 1e-4 * torch.randn(60, 1, dtype=torch.float64)  # a variance of 1e-8
    wide = densities(torch.cat([traces[:, :1], still, traces[:, 1:]], 1), labels, 2)
    moved = torch.cat([asked[:, :1], torch.full((9, 1), 77.0, dtype=torch.float64), asked[:, 1:]], 1)
    expected = likelihood_surprise(asked, asked_labels, densities(traces, labels, 2))
    assert torch.allclose(likelihood_surprise(moved, asked_labels, wide), expected, rtol=1e-9)


def test_a_unit_is_left_out_of_the_class_in_which_it_is_flat() -> None:
    traces, labels = traces_of(3, 60, 3, 2)
    traces[labels == 0, 1] = 5.0
    asked = torch.randn(4, 3, dtype=torch.float64)
    kde = densities(traces, labels, 2)
    for label, units in ((0, [0, 2]), (1, [0, 1, 2])):
        reference = gaussian_kde(traces[labels == label][:, units].T.numpy())
        got = likelihood_surprise(asked, torch.full((4,), label), kde)
        assert got.tolist() == pytest.approx((-reference.logpdf(asked[:, units].T.numpy())).tolist(), rel=1e-6)


def test_a_singular_covariance_and_far_traces_stay_finite_and_in_order() -> None:
    traces, labels = traces_of(0, 8, 20, 2)  # four traces per class in 20 dimensions
    kde = densities(traces, labels, 2)
    steps = torch.tensor([0.0, 1.0, 10.0, 1e3, 1e6], dtype=torch.float64)
    away = traces[0] + steps[:, None] * torch.ones(20, dtype=torch.float64)
    got = likelihood_surprise(away, torch.zeros(5, dtype=torch.long), kde)
    assert got.isfinite().all() and (got.diff() > 0).all()


def test_classes_with_one_or_no_trace_surprise_nobody() -> None:
    traces, labels = torch.randn(5, 3), torch.tensor([0, 0, 0, 0, 2])
    asked = torch.randn(3, 3)
    got = likelihood_surprise(asked, torch.tensor([1, 2, 0]), densities(traces, labels, 4))
    assert got[:2].tolist() == [0, 0] and got[2] != 0
    near = distance_surprise(asked, torch.tensor([1, 3, 0]), neighbours(traces, labels, 4))
    assert near[:2].tolist() == [0, 0] and near[2] > 0


def slow_distance_surprise(row: Tensor, label: int, traces: Tensor, labels: Tensor) -> float:
    own = [trace for trace, its in zip(traces, labels.tolist(), strict=True) if its == label]
    others = [trace for trace, its in zip(traces, labels.tolist(), strict=True) if its != label]
    nearest = min(own, key=lambda trace: float((row - trace).norm()))
    gap = min(float((nearest - other).norm()) for other in others)
    return float((row - nearest).norm()) / gap


@given(st.integers(0, 999), st.integers(1, 8), st.integers(2, 4))
def test_distance_surprise_equals_the_slow_one(seed: int, width: int, classes: int) -> None:
    traces, labels = traces_of(seed, 30, width, classes)
    asked, asked_labels = traces_of(seed + 1, 7, width, classes)
    got = distance_surprise(asked, asked_labels, neighbours(traces, labels, classes))
    expected = [
        slow_distance_surprise(row, int(label), traces, labels) for row, label in zip(asked, asked_labels, strict=True)
    ]
    assert got.tolist() == pytest.approx(expected, rel=1e-9)


def test_distance_surprise_in_closed_form() -> None:
    traces, labels = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])
    reference = neighbours(traces, labels, 2)
    asked = torch.tensor([[1.0], [3.0], [-2.0], [5.5]])
    assert distance_surprise(asked, torch.tensor([0, 0, 0, 1]), reference).tolist() == [0, 2 / 4, 2 / 5, 0.5 / 4]
    alone = neighbours(traces[:2], labels[:2], 2)
    assert distance_surprise(asked[:2], torch.tensor([0, 0]), alone).tolist() == [0, 0]
    same = neighbours(torch.zeros(2, 1), torch.tensor([0, 1]), 2)
    assert distance_surprise(torch.ones(1, 1), torch.tensor([0]), same).isfinite().all()


def test_likelihood_surprise_in_closed_form() -> None:
    """Two traces at -1 and 1: variance 2, bandwidth 2^(-1/5)."""
    kde = densities(torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 0]), 1)
    variance = 2 * 2 ** (-2 / 5)
    expected = 1 / (2 * variance) + log(2 * torch.pi * variance) / 2
    got = likelihood_surprise(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long), kde)
    assert got.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("pairs", [1, 100, 1000])
def test_chunks_of_any_size_give_the_same(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    traces, labels = traces_of(5, 50, 4, 3)
    asked, asked_labels = traces_of(6, 23, 4, 3)

    def both() -> Tensor:
        kde, reference = densities(traces, labels, 3), neighbours(traces, labels, 3)
        found = likelihood_surprise(asked, asked_labels, kde), distance_surprise(asked, asked_labels, reference)
        return torch.stack(found)

    whole = both()
    monkeypatch.setattr(surprise, "PAIRS", pairs)
    assert torch.allclose(both(), whole, rtol=1e-10)


def test_no_variants_give_no_numbers() -> None:
    traces, labels = traces_of(5, 50, 4, 3)
    none, no_labels = torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)
    assert likelihood_surprise(none, no_labels, densities(traces, labels, 3)).shape == (0,)
    assert distance_surprise(none, no_labels, neighbours(traces, labels, 3)).shape == (0,)

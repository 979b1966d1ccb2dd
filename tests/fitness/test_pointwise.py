"""Fitness of logits alone, against plain Python and closed forms."""

from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ukemi import UserError
from ukemi.fitness import Scored, binary_cross_entropy, cross_entropy, divergence, margin, misclassified_first

numbers = st.lists(st.floats(-30, 30, width=32), min_size=3, max_size=3)


def scored(logits: list[list[float]], labels: list[int], clean: list[list[float]] | None = None) -> Scored:
    before = None if clean is None else torch.tensor(clean)
    return Scored(nn.Identity(), torch.zeros(len(labels), 1, 2, 2), torch.tensor(labels), torch.tensor(logits), before)


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    parts = [exp(value - top) for value in row]
    return [part / sum(parts) for part in parts]


@given(numbers, st.integers(0, 2))
def test_each_equals_its_formula(row: list[float], label: int) -> None:
    one, p = scored([row], [label]), softmax(row)
    loss = max(row) + log(sum(exp(value - max(row)) for value in row)) - row[label]
    others = [value for at, value in enumerate(row) if at != label]
    clipped = [min(max(value, 1e-8), 1 - 1e-8) for value in p]
    binary = -sum(log(value if at == label else 1 - value) for at, value in enumerate(clipped))
    wrong = row.index(max(row)) != label
    assert cross_entropy(one).item() == pytest.approx(loss, rel=1e-5, abs=1e-5)
    assert margin(one).item() == pytest.approx(max(others) - row[label], rel=1e-6, abs=1e-6)
    assert binary_cross_entropy(one).item() == pytest.approx(binary, rel=1e-6, abs=1e-9)
    assert misclassified_first(one).item() == pytest.approx(loss + 1e6 * wrong, rel=1e-5, abs=1e-5)


@given(numbers, numbers)
def test_divergence_is_kl_from_the_clean_prediction(row: list[float], before: list[float]) -> None:
    q, p = softmax(row), softmax(before)
    expected = sum(b * (log(b) - log(a)) for a, b in zip(q, p, strict=True))
    found = divergence(scored([row], [0], [before])).item()
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9) and found > -1e-12
    assert divergence(scored([row], [0], [row])).item() == 0


def test_only_divergence_reads_the_clean_logits() -> None:
    assert divergence.clean and not divergence.outputs  # type: ignore[attr-defined]
    assert not any(hasattr(each, "clean") for each in (cross_entropy, margin, binary_cross_entropy))
    with pytest.raises(UserError, match=r"fitness: divergence .* Scored\.clean is missing"):
        divergence(scored([[0.0, 1.0]], [0]))


def test_the_clip_bounds_binary_cross_entropy() -> None:
    """Fully sure: one clipped term per class, which float32 could not tell from 0 or infinity."""
    right, wrong = binary_cross_entropy(scored([[500.0, 0.0, 0.0], [500.0, 0.0, 0.0]], [0, 1])).tolist()
    assert right == pytest.approx(-3 * log(1 - 1e-8), rel=1e-6)
    assert wrong == pytest.approx(-2 * log(1e-8) - log(1 - 1e-8), rel=1e-9)


def test_misclassified_variants_come_first_and_keep_their_order() -> None:
    logits = [[0.0, 0.1], [9.0, 0.0], [0.0, 8.0], [0.2, 0.0]]
    found = misclassified_first(scored(logits, [0, 0, 0, 0]))
    assert found.argsort(descending=True).tolist() == [2, 0, 3, 1] and found.dtype == torch.float64
    # two misclassified variants that differ by less than float32 can show beside 1e6 stay apart
    near: Tensor = misclassified_first(scored([[0.0, 1.0], [0.0, 1.0001]], [0, 0]))
    assert near[1] > near[0]


def test_margin_tells_wrong_from_right() -> None:
    found = margin(scored([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]], [0, 0]))
    assert found.tolist() == [-1, 2]

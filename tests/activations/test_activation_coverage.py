"""Neurons as numbers, against plain Python."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ukemi import UserError
from ukemi.activations import scaled_means, sections, unit_means

SHAPES = [(5,), (4, 3, 2), (2, 1, 1), (7, 3)]


def outputs_of(seed: int, count: int, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, *shape, generator=generator, dtype=torch.float64) for shape in shapes]


def slow_means(outputs: list[Tensor], scaled: bool) -> list[list[float]]:
    """Image by image, layer by layer, unit by unit."""
    rows = []
    for at in range(len(outputs[0])):
        row = []
        for output in outputs:
            layer = output[at].T if output.ndim == 3 else output[at]  # tokens come before units
            numbers = layer.flatten().tolist()
            low, high = min(numbers), max(numbers)
            for unit in layer:
                values = unit.flatten().tolist()
                if scaled:
                    values = [(value - low) / (high - low) if high > low else 0.0 for value in values]
                row.append(sum(values) / len(values))
        rows.append(row)
    return rows


@given(st.integers(0, 99), st.integers(1, 4), st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
def test_means_equal_the_slow_ones(seed: int, count: int, shapes: list[tuple[int, ...]]) -> None:
    outputs = outputs_of(seed, count, shapes)
    for function, scaled in ((unit_means, False), (scaled_means, True)):
        expected = torch.tensor(slow_means(outputs, scaled), dtype=torch.float64)
        assert torch.allclose(function(outputs), expected, rtol=1e-12, atol=1e-12)


@given(st.integers(0, 99), st.floats(0.01, 100), st.floats(-50, 50))
def test_scaled_means_lie_in_0_to_1_and_forget_scale_and_shift(seed: int, scale: float, shift: float) -> None:
    outputs = outputs_of(seed, 3, SHAPES)
    means = scaled_means(outputs)
    assert means.min() >= 0 and means.max() <= 1
    assert torch.allclose(scaled_means([scale * output + shift for output in outputs]), means, atol=1e-9)


def test_a_row_does_not_depend_on_the_others() -> None:
    outputs = outputs_of(0, 9, SHAPES)
    for function in (unit_means, scaled_means):
        alone = [function([output[at : at + 1] for output in outputs]) for at in range(9)]
        assert torch.allclose(torch.cat(alone), function(outputs), rtol=1e-12, atol=1e-14)


def test_a_constant_layer_is_0_and_half_precision_is_averaged_in_float32() -> None:
    assert torch.equal(scaled_means([torch.full((2, 3, 4, 4), 7.0)]), torch.zeros(2, 3))
    output = (1 + torch.rand(2, 3, 32, 32)).bfloat16()
    assert unit_means([output]).dtype == torch.float32 == scaled_means([output]).dtype
    assert torch.allclose(unit_means([output]), output.double().mean((2, 3)).float(), atol=1e-6)
    last = output.contiguous(memory_format=torch.channels_last)
    assert torch.allclose(scaled_means([last]), scaled_means([output]), atol=1e-6)


def test_outputs_that_do_not_fit_are_named() -> None:
    with pytest.raises(UserError, match="no layer's output was given"):
        unit_means([])
    with pytest.raises(UserError, match="one row per image, but they gave 2, 3 rows"):
        scaled_means([torch.rand(2, 3), torch.rand(3, 3)])
    with pytest.raises(UserError, match=r"a layer gave \[4\], but \[M, units, \.\.\.\] is needed"):
        unit_means([torch.rand(4)])


def slow_section(value: float, low: float, high: float, count: int) -> int:
    if not low <= value <= high:
        return -1
    return min(count - 1, int((value - low) / ((high - low) or 1) * count))


@given(
    st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.3, 0.75, 1.0, 2.5, 3.0, 9.0]), min_size=1, max_size=6),
    st.integers(1, 12),
)
def test_sections_equal_the_slow_ones(values: list[float], count: int) -> None:
    low, high = torch.tensor([-1.0, 0.0, 0.3, 1.0]).double(), torch.tensor([1.0, 3.0, 0.3, 2.5]).double()
    values_MU = torch.tensor(values).double()[:, None].expand(-1, 4)
    got = sections(values_MU, low, high, count)
    expected = [
        [slow_section(v, a, b, count) for v, a, b in zip(row, low.tolist(), high.tolist(), strict=True)]
        for row in values_MU.tolist()
    ]
    assert got.dtype == torch.int64 and got.tolist() == expected


@given(st.integers(0, 99), st.integers(1, 50))
def test_the_data_that_made_a_range_lie_inside_it(seed: int, count: int) -> None:
    values = torch.randn(20, 3, generator=torch.Generator().manual_seed(seed))
    found = sections(values, values.amin(0), values.amax(0), count)
    assert found.min() == 0 and found.max() == count - 1
    assert (sections(values + 100, values.amin(0), values.amax(0), count) == -1).all()


def test_nan_and_infinity_are_outside() -> None:
    values = torch.tensor([[float("nan")], [float("inf")], [-float("inf")]])
    assert sections(values, torch.zeros(1), torch.ones(1), 5).flatten().tolist() == [-1, -1, -1]

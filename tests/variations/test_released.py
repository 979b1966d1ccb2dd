"""SENSEI's released operators, against a slow chain that builds every canvas pixel by pixel."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from ukemi import T3, T6, Gene, Space, named_grid, vary
from ukemi.spaces import PROTOCOLS, space_of
from ukemi.variations.released import canvas
from ukemi.variations.warp import _PROTOCOLS

Array = NDArray[np.float64]
RELEASED = space_of("t6-released")
WIDE = Space(
    (
        Gene("rotation", -180, 180, 0, 1),
        Gene("translate_x", -1, 1, 0, 0.1),
        Gene("translate_y", -1, 1, 0, 0.1),
        Gene("shear", -0.5, 0.5, 0, 0.1),
        Gene("zoom", 0.25, 4, 1, 0.25),
        Gene("brightness", -1, 1, 0, 0.1),
        Gene("contrast", 0, 4, 1, 0.5),
    ),
    protocol="released",
)


def row_of(space: Space, **values: float) -> Tensor:
    row = space.identity()
    for name, value in values.items():
        row[[gene.name for gene in space.genes].index(name)] = value
    return row[None]


def textured(height: int, width: int, channels: int = 1, count: int = 1) -> Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(1))


def pixel(image: Array, row: int, column: int) -> float:
    inside = 0 <= row < image.shape[0] and 0 <= column < image.shape[1]
    return float(image[row, column]) if inside else 0.0


def bilinear(image: Array, x: float, y: float) -> float:
    left, top = math.floor(x), math.floor(y)
    total = 0.0
    for row in (top, top + 1):
        for column in (left, left + 1):
            total += (1 - abs(y - row)) * (1 - abs(x - column)) * pixel(image, row, column)
    return total


def turned(image: Array, degrees: float) -> Array:
    """On a larger canvas, clockwise: the pixel (W // 2, H // 2) goes to the canvas's own."""
    height, width = image.shape
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    rows, columns = int(height * abs(cos) + width * abs(sin)), int(height * abs(sin) + width * abs(cos))
    out = np.zeros((rows, columns))
    for i in range(rows):
        for j in range(columns):
            x, y = j - columns // 2, i - rows // 2
            out[i, j] = bilinear(image, cos * x + sin * y + width // 2, -sin * x + cos * y + height // 2)
    return out


def moved(image: Array, right: int, down: int) -> Array:
    rows, columns = image.shape
    return np.array([[pixel(image, i - down, j - right) for j in range(columns)] for i in range(rows)])


def sheared(image: Array, factor: float) -> Array:
    rows, columns = image.shape
    out = np.array([[bilinear(image, j + factor * i, i) for j in range(columns)] for i in range(rows)])
    cut = int(abs(factor) * columns + 1e-9)
    if cut == 0:
        return out
    return out[:, :-cut] if factor > 0 else out[:, cut:]


def resized(image: Array, height: int, width: int) -> Array:
    rows, columns = image.shape
    out = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            y, x = (i + 0.5) * rows / height - 0.5, (j + 0.5) * columns / width - 0.5
            out[i, j] = bilinear(image, min(max(x, 0), columns - 1), min(max(y, 0), rows - 1))
    return out


def chain(image: Array, row: list[float]) -> Array:
    """Four operators, each on what the one before left, then back to the image's size."""
    height, width = image.shape
    rotation, right, down, shear = row[:4]
    out = moved(turned(image, rotation), round(right * width), round(down * height))
    return resized(sheared(out, shear), height, width)


def test_every_protocol_has_its_operators() -> None:
    assert list(_PROTOCOLS) == list(PROTOCOLS)


@pytest.mark.parametrize(("degrees", "side"), [(0, 32), (10, 37), (20, 41), (30, 43), (-30, 43), (90, 32), (180, 32)])
def test_the_canvas_grows(degrees: int, side: int) -> None:
    rows, columns = canvas(torch.tensor([float(degrees)]), 32, 32)
    assert (rows.item(), columns.item()) == (side, side) == turned(np.ones((32, 32)), degrees).shape


def test_the_canvas_of_a_wide_image() -> None:
    rows, columns = canvas(torch.tensor([90.0, 30.0]), 20, 40)
    assert (rows.tolist(), columns.tolist()) == ([40, 37], [20, 44])


@pytest.mark.parametrize(("degrees", "scale"), [(10, 0.86), (20, 0.78), (30, 0.74), (-30, 0.74)])
def test_rotation_shrinks_and_turns_clockwise(degrees: int, scale: float) -> None:
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    dots = torch.stack([torch.exp(-((x - right) ** 2 + (y - 16) ** 2) / 8) for right in (8, 24)])[:, None]
    found = vary(dots, row_of(RELEASED, rotation=degrees).expand(2, -1), RELEASED)[:, 0]
    centres = torch.stack([(found * axis).sum((1, 2)) / found.sum((1, 2)) for axis in (x, y)])
    right, down = (centres[:, 1] - centres[:, 0]).tolist()
    assert math.hypot(right, down) / 16 == pytest.approx(scale, abs=0.006)
    assert math.degrees(math.atan2(down, right)) == pytest.approx(degrees, abs=0.2)


@pytest.mark.parametrize("degrees", [10, -20, 30, 45])
def test_rotation_crops_nothing(degrees: int) -> None:
    side = canvas(torch.tensor([float(degrees)]), 32, 32)[0].item()
    found = vary(torch.ones(1, 1, 32, 32), row_of(WIDE, rotation=degrees), WIDE)
    assert found.sum().item() * (side / 32) ** 2 == pytest.approx(1024, rel=0.02)
    assert found[0, 0, [0, 0, -1, -1], [0, -1, 0, -1]].max() == 0


genes_of_the_warp = st.tuples(
    st.floats(-60, 60), st.floats(-0.3, 0.3), st.floats(-0.3, 0.3), st.integers(-40, 40).map(lambda share: share / 100)
)


@pytest.mark.parametrize("size", [(12, 12), (9, 14), (15, 10)])
@given(row=genes_of_the_warp)
def test_equals_the_chain_on_a_slope(size: tuple[int, int], row: tuple[float, float, float, float]) -> None:
    """Bilinear resampling keeps a slope, however often it is done: away from black the chain is exact."""
    height, width = size
    slope = 0.2 + 0.03 * np.arange(width)[None, :] + 0.02 * np.arange(height)[:, None]
    genes = torch.tensor([[*row, 1.0, 0.0, 1.0]], dtype=torch.float64)
    images = torch.stack([torch.from_numpy(slope), torch.ones(size, dtype=torch.float64)])[:, None]
    found = vary(images, genes.expand(2, -1), WIDE)[:, 0].numpy()
    lit = chain(np.ones(size), list(row))
    clear = lit > 1 - 1e-9
    assert np.abs(found[0] - chain(slope, list(row)))[clear].max(initial=0) < 1e-9
    # towards black a chain of resamplings is softer, but black and image lie in the same places
    assert np.abs(found[1] - lit).mean() < 0.06
    assert not ((lit < 1e-9) & (found[1] > 0.5)).any()


@pytest.mark.parametrize("size", [(12, 12), (9, 14), (15, 10)])
@given(right=st.integers(-14, 14), down=st.integers(-14, 14), share=st.floats(-0.99, 0.99))
@example(right=-10, down=0, share=-0.5)  # moved out of a frame of ten columns
def test_equals_the_chain_where_it_resamples_once(size: tuple[int, int], right: int, down: int, share: float) -> None:
    """A shear of less than a column crops nothing: black included, every pixel is the chain's."""
    height, width = size
    row = [0.0, right / width, down / height, share / width]
    image = textured(height, width).double()
    found = vary(image, torch.tensor([[*row, 1, 0, 1]], dtype=torch.float64), WIDE)[0, 0].numpy()
    assert np.abs(found - chain(image[0, 0].numpy(), row)).max() < 1e-9


@pytest.mark.parametrize(
    "row", [(30, 0.1, -0.1, 0.1), (-30, -0.1, 0.1, -0.1), (30, 0, 0, 0), (0, 0.1, 0.1, 0.1), (0, 0, 0, -0.1)]
)
def test_is_near_the_chain_on_a_picture(row: tuple[float, float, float, float]) -> None:
    y, x = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
    picture = 0.5 + 0.25 * np.sin(x / 4) + 0.25 * np.cos(y / 5)
    found = vary(torch.from_numpy(picture)[None, None], torch.tensor([[*row, 1, 0, 1]]), WIDE)[0, 0].numpy()
    assert np.abs(found - chain(picture, list(row))).mean() < 0.02


@pytest.mark.parametrize(("right", "down"), [(3, 0), (0, -3), (-2, 1), (3, 3)])
def test_translation_is_in_whole_pixels(right: int, down: int) -> None:
    image = textured(28, 36)
    expected = torch.from_numpy(moved(image[0, 0].double().numpy(), right, down)).float()
    for part in (-0.4, 0.0, 0.4):
        genes = row_of(WIDE, translate_x=(right + part) / 36, translate_y=(down - part) / 28)
        assert (vary(image, genes, WIDE)[0, 0] - expected).abs().max() < 1e-4
    less_than_half = row_of(WIDE, translate_x=0.4 / 36, translate_y=-0.4 / 28)
    assert torch.equal(vary(image, less_than_half, WIDE), image)


def test_a_tenth_of_a_side_is_three_pixels() -> None:
    for side in (28, 32):
        shifts = (T3.decode(torch.arange(7)[:, None].expand(7, 4))[:, 1] * side).round()
        assert shifts.tolist() == [-3, -2, -1, 0, 1, 2, 3]


@pytest.mark.parametrize("shear", [0.1, -0.1])
def test_shear_moves_rows_and_crops_the_emptied_columns(shear: float) -> None:
    found = vary(torch.ones(1, 1, 32, 32), row_of(WIDE, shear=shear), WIDE)
    assert found.min() > 0.85  # without the crop a wedge of three columns were black
    line = torch.zeros(1, 1, 32, 32)
    line[..., 16] = 1
    found = vary(line, row_of(WIDE, shear=shear), WIDE)[0, 0]
    centres = (found * torch.arange(32)).sum(1) / found.sum(1)
    first = (16 - (3 if shear < 0 else 0) + 0.5) * 32 / 29 - 0.5
    assert centres[0].item() == pytest.approx(first, abs=0.3)
    assert (centres[-1] - centres[0]).item() == pytest.approx(-shear * 31 * 32 / 29, abs=0.3)


@given(zoom=st.floats(0.9, 1.1), seed=st.integers(0, 100))
def test_zoom_changes_nothing(zoom: float, seed: int) -> None:
    genes = RELEASED.sample(torch.arange(4), seed=seed)[:, 0]
    zoomed = genes.clone()
    zoomed[:, 4] = zoom
    images = textured(16, 16, channels=3, count=4)
    assert torch.equal(vary(images, genes, RELEASED), vary(images, zoomed, RELEASED))
    assert torch.equal(vary(images, row_of(RELEASED, zoom=zoom).expand(4, -1), RELEASED), images)


@given(brightness=st.floats(-1, 1), contrast=st.floats(0, 4))
def test_brightness_then_contrast_each_clipped(brightness: float, contrast: float) -> None:
    image = textured(8, 8).double()
    genes = torch.tensor([[0, 0, 0, 0, 1, brightness, contrast]], dtype=torch.float64)
    expected = torch.empty_like(image)
    for i in range(8):
        for j in range(8):
            bright = min(max(image[0, 0, i, j].item() + brightness, 0), 1)
            expected[0, 0, i, j] = min(max((bright - 127 / 255) * contrast + 127 / 255, 0), 1)
    assert (vary(image, genes, WIDE) - expected).abs().max() < 1e-12


@pytest.mark.parametrize(("name", "distinct"), [("t3-81-released", 81), ("t6-2187-released", 729)])
def test_distinct_images_of_the_grids(name: str, distinct: int) -> None:
    image = 0.25 + 0.5 * textured(16, 16)
    space, grid = named_grid(name, (16, 16))
    variants = vary(image.expand(len(grid), -1, -1, -1), grid, space).flatten(1)
    assert len(torch.unique(variants, dim=0)) == distinct


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (33, 47), (5, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_identity_returns_the_image_bit_for_bit(size: tuple[int, int], dtype: torch.dtype) -> None:
    images = textured(*size, channels=3, count=4).to(dtype)
    for space in (RELEASED, space_of("t3-released"), WIDE):
        found = vary(images, space.identity().expand(4, -1), space)
        assert found.dtype == dtype and torch.equal(found, images)


@pytest.mark.parametrize("size", [(28, 28), (17, 30), (6, 1)])
@given(seed=st.integers(0, 1000))
def test_batch_equals_loop_and_stays_in_range(size: tuple[int, int], seed: int) -> None:
    images = textured(*size, channels=3, count=11)
    before = images.clone()
    genes = WIDE.continuous().sample(torch.arange(11), seed=seed)[:, 0]
    genes[5] = WIDE.identity()
    together = vary(images, genes, WIDE)
    alone = torch.cat([vary(images[i : i + 1], genes[i : i + 1], WIDE) for i in range(11)])
    assert torch.equal(together, alone) and torch.equal(together[5], images[5]) and torch.equal(images, before)
    assert together.min() >= 0 and together.max() <= 1


def test_float64_agrees_with_float32() -> None:
    images = textured(32, 20, channels=3, count=50)
    genes = RELEASED.sample(torch.arange(50), seed=2)[:, 0]
    double = vary(images.double(), genes.double(), RELEASED)
    assert double.dtype == torch.float64 and (double - vary(images, genes, RELEASED)).abs().max() < 1e-4


def test_no_value_is_looked_at() -> None:
    """On the meta device there are no values."""
    genes = RELEASED.sample(torch.arange(3), seed=0)[:, 0].to("meta")
    assert vary(torch.empty(3, 3, 8, 8, device="meta"), genes, RELEASED).shape == (3, 3, 8, 8)


def test_kernels_follow() -> None:
    def darker(images: Tensor, values: Tensor) -> Tensor:
        return images * (1 - values)[:, None, None, None]

    shade = Gene("shade", 0, 1, 0, 0.5, kernel=darker)
    space = replace(space_of("t3-released"), genes=(*T3.genes, shade))
    images = textured(16, 16, count=2)
    genes = torch.tensor([[0, 0, 0, 0, 0.5], [30, 0, 0, 0.1, 0.5]])
    plain = vary(images, genes[:, :4], space_of("t3-released"))
    assert torch.equal(vary(images, genes, space), plain / 2)
    only = Space((shade,), protocol="released")
    assert torch.equal(vary(images, torch.zeros(2, 1), only), images)


def test_our_own_operators_are_others() -> None:
    images, genes = textured(32, 32, count=9), T6.sample(torch.arange(9), seed=0)[:, 0]
    assert not torch.equal(vary(images, genes, T6), vary(images, genes, RELEASED))

"""The one warp, against closed forms, torch.rot90, a slow loop and kornia."""

import math

import kornia
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ukemi import T3, T6, Gene, Space, UserError, vary
from ukemi.spaces import space_of
from ukemi.variations.warp import sampling_grid

SIZES = [(28, 28), (32, 32), (33, 47), (5, 1)]
WIDE = Space(
    (
        Gene("rotation", -180, 180, 0, 1),
        Gene("translate_x", -1, 1, 0, 0.1),
        Gene("translate_y", -1, 1, 0, 0.1),
        Gene("shear", -2, 2, 0, 0.1),
        Gene("zoom", 0.25, 4, 1, 0.25),
        Gene("brightness", -1, 1, 0, 0.1),
        Gene("contrast", 0, 4, 1, 0.5),
    )
)


def chromosome(**values: float) -> Tensor:
    row = WIDE.identity()
    for name, value in values.items():
        row[[gene.name for gene in WIDE.genes].index(name)] = value
    return row[None]


def textured(height: int, width: int, channels: int = 1, count: int = 1) -> Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(1))


def slow_vary(image: Tensor, row: Tensor, space: Space) -> Tensor:
    """One pixel after the other, in Python floats: where each pixel comes from, and bilinear with black outside."""
    value = {gene.name: float(v) for gene, v in zip(space.genes, row, strict=True)}
    angle = math.radians(value.get("rotation", 0.0))
    zoom, shear = value.get("zoom", 1.0), value.get("shear", 0.0)
    _, height, width = image.shape
    right, down = value.get("translate_x", 0.0) * width, value.get("translate_y", 0.0) * height
    out = torch.zeros_like(image)
    for i in range(height):
        for j in range(width):
            x, y = (j - (width - 1) / 2) / zoom, (i - (height - 1) / 2) / zoom
            x = x - shear * y
            x, y = x - right, y - down
            x, y = x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)
            x, y = x + (width - 1) / 2, y + (height - 1) / 2
            for a in (math.floor(y), math.floor(y) + 1):
                for b in (math.floor(x), math.floor(x) + 1):
                    if 0 <= a < height and 0 <= b < width:
                        out[:, i, j] += (1 - abs(y - a)) * (1 - abs(x - b)) * image[:, a, b]
    return (value.get("contrast", 1.0) * (out + value.get("brightness", 0.0))).clamp(0, 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("space", [T3, T6, WIDE])
def test_identity_returns_the_image_bit_for_bit(size: tuple[int, int], space: Space) -> None:
    images = textured(*size, channels=3, count=4)
    assert torch.equal(vary(images, space.identity().expand(4, -1), space), images)


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (33, 47)])
@pytest.mark.parametrize(("right", "down"), [(1, 0), (0, 1), (-3, 2), (5, -4)])
def test_a_shift_moves_a_delta_image(size: tuple[int, int], right: int, down: int) -> None:
    height, width = size
    image = torch.zeros(1, 1, height, width)
    image[0, 0, 12, 15] = 1
    moved = torch.zeros_like(image)
    moved[0, 0, 12 + down, 15 + right] = 1
    found = vary(image, chromosome(translate_x=right / width, translate_y=down / height), WIDE)
    assert (found - moved).abs().max() < 1e-5 * max(size)


@pytest.mark.parametrize("size", [(28, 28), (32, 32)])
@pytest.mark.parametrize("turns", [1, -1, 2])
def test_a_right_angle_equals_rot90(size: tuple[int, int], turns: int) -> None:
    image = textured(*size, channels=3)
    found = vary(image, chromosome(rotation=90 * turns), WIDE)
    assert (found - torch.rot90(image, turns, (-2, -1))).abs().max() < 1e-5 * max(size)


def test_shear_moves_row_r_by_s_times_r_minus_c() -> None:
    image = torch.zeros(1, 1, 33, 33)
    image[0, 0, :, 16] = 1
    found = vary(image, chromosome(shear=0.5), WIDE)[0, 0]
    centres = (found * torch.arange(33)).sum(1) / found.sum(1)
    expected = 16 + 0.5 * (torch.arange(33) - 16)
    assert (centres - expected).abs().max() < 1e-4


def test_zoom_scales_the_second_moment_by_its_square() -> None:
    y, x = torch.meshgrid(torch.arange(65.0) - 32, torch.arange(65.0) - 32, indexing="ij")
    blob = torch.exp(-(x**2 + y**2) / (2 * 6**2))[None, None]

    def moment(image: Tensor) -> float:
        return float((image[0, 0] * (x**2 + y**2)).sum() / image[0, 0].sum())

    for zoom in (0.75, 1.5):
        assert abs(moment(vary(blob, chromosome(zoom=zoom), WIDE)) / moment(blob) / zoom**2 - 1) < 0.02


def test_rotation_back_and_forth_is_the_identity_inside_the_disc() -> None:
    y, x = torch.meshgrid(torch.arange(41.0) - 20, torch.arange(41.0) - 20, indexing="ij")
    smooth = (0.5 + 0.25 * torch.sin(x / 6) + 0.25 * torch.cos(y / 7))[None, None]
    back = vary(vary(smooth, chromosome(rotation=25), WIDE), chromosome(rotation=-25), WIDE)
    inside = (x**2 + y**2) < 15**2
    assert (back - smooth)[0, 0][inside].abs().max() < 0.01


@pytest.mark.parametrize("size", [(9, 9), (8, 13)])
@given(rows=st.lists(st.floats(0, 1), min_size=7, max_size=7))
def test_equals_the_slow_loop(size: tuple[int, int], rows: list[float]) -> None:
    low, high = (torch.tensor([getattr(gene, end) for gene in WIDE.genes]) for end in ("low", "high"))
    genes = (low + (high - low) * torch.tensor(rows))[None]
    image = textured(*size, channels=2)
    slow = slow_vary(image[0].double(), genes[0].double(), WIDE)
    # a pixel that looks exactly at the image's edge may fall to either side by rounding
    found = vary(image.double(), genes.double(), WIDE)[0]
    assert ((found - slow).abs() < 1e-6).float().mean() > 0.98


def test_brightness_adds_contrast_scales_one_clamp() -> None:
    image = textured(8, 8)
    found = vary(image, chromosome(brightness=-0.3, contrast=2.0), WIDE)
    assert torch.allclose(found, (2 * (image - 0.3)).clamp(0, 1))
    black_corner = vary(torch.ones(1, 1, 8, 8), chromosome(rotation=45, brightness=0.2), WIDE)[0, 0, 0, 0]
    assert abs(black_corner.item() - 0.2) < 1e-6  # colour comes after the warp, so the border shifts too


@pytest.mark.parametrize(("space", "count"), [(T3, 81), (T6, 2187)])
def test_every_variant_of_the_grid_is_another_image(space: Space, count: int) -> None:
    image = 0.25 + 0.5 * textured(32, 32, channels=1)
    grid = space.grid(3)
    variants = vary(image.expand(count, -1, -1, -1), grid, space).flatten(1)
    assert len(torch.unique(variants, dim=0)) == count


@pytest.mark.parametrize("size", [(28, 28), (17, 30)])
def test_batch_equals_loop(size: tuple[int, int]) -> None:
    images = textured(*size, channels=3, count=23)
    genes = T6.sample(torch.arange(23), seed=4)[:, 0]
    genes[5] = T6.identity()
    together = vary(images, genes, T6)
    alone = torch.cat([vary(images[i : i + 1], genes[i : i + 1], T6) for i in range(23)])
    assert torch.equal(together, alone)
    assert torch.equal(together[5], images[5])
    assert together.min() >= 0 and together.max() <= 1


def test_agrees_with_kornia_on_a_rotation() -> None:
    images = textured(32, 32, channels=3, count=4)
    angles = torch.tensor([10.0, -25.0, 30.0, 3.0])
    genes = T3.identity().repeat(4, 1)
    genes[:, 0] = angles
    theirs = kornia.geometry.transform.rotate(images, angles, align_corners=True)
    assert (vary(images, genes, T3) - theirs).abs().max() < 1e-4


def darker(images: Tensor, values: Tensor) -> Tensor:
    return images * (1 - values)[:, None, None, None]


def test_a_gene_of_ones_own() -> None:
    shade = Gene("shade", 0, 1, 0, 0.5, kernel=darker)
    space = Space((T3.genes[0], shade))
    images = textured(16, 16, count=3)
    genes = torch.tensor([[0, 0], [0, 0.5], [30, 1.0]])
    found = vary(images, genes, space)
    assert torch.equal(found[0], images[0]) and torch.allclose(found[1], images[1] / 2) and found[2].max() == 0
    by_name = Gene("shade", 0, 1, 0, 0.5, kernel=f"{__name__}:darker")
    assert by_name.kernel == f"{__name__}:darker" and by_name.function() is not None


def test_a_kernel_that_works_in_place_or_changes_the_shape() -> None:
    def in_place(images: Tensor, values: Tensor) -> Tensor:
        images += values[:, None, None, None]
        return images

    space = Space((Gene("add", 0, 1, 0, 0.5, kernel=in_place),))
    images = textured(8, 8, channels=3, count=2)
    before = images.clone()
    found = vary(images, torch.tensor([[0.0], [0.5]]), space)
    assert torch.equal(images, before) and torch.equal(found[0], before[0]) and not torch.equal(found[1], before[1])
    grey = Space((Gene("grey", 0, 1, 0, 0.5, kernel=lambda images, values: images.mean(1, keepdim=True)),))
    with pytest.raises(UserError, match=r"gene 'grey': its kernel gave \[2, 1, 8, 8\] for \[2, 3, 8, 8\]"):
        vary(images, torch.ones(2, 1), grey)


@pytest.mark.parametrize("space", [T3, T6])
def test_the_images_type_is_kept(space: Space) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        images = textured(8, 8).to(dtype)
        assert vary(images, space.sample(torch.arange(1), seed=0)[:, 0], space).dtype == dtype


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(UserError, match="float tensor"):
        vary(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.zeros(1, 4), T3)
    with pytest.raises(UserError, match=r"genes: the shape \[2, 4\]"):
        vary(torch.zeros(2, 1, 8, 8), torch.zeros(1, 4), T3)
    with pytest.raises(UserError, match=r"^genes: a float tensor is needed, but a list was given\.$"):
        vary(torch.zeros(1, 1, 8, 8), [[0.0] * 4], T3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"^space: a ukemi\.Space is needed \(T3, say\), but 't3' was given\.$"):
        vary(torch.zeros(1, 1, 8, 8), torch.zeros(1, 4), "t3")  # type: ignore[arg-type]


def test_the_grid_is_exact_in_the_middle() -> None:
    grid = sampling_grid({"rotation": torch.tensor([37.0])}, 5, 7)
    assert torch.equal(grid[0, 2, 3], torch.zeros(2))


@pytest.mark.parametrize("space", [T3, space_of("t3-released"), space_of("t3-kaist")])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_genes_that_are_not_finite_are_refused(space: Space, wrong: float) -> None:
    genes = torch.zeros(3, 4)
    genes[1, 2] = wrong
    with pytest.raises(UserError, match="genes: translate_y of row 1 should be a finite number, not"):
        vary(torch.rand(3, 1, 8, 8), genes, space)

"""The AUGMENTATION paper's operators, against a slow chain of nearest-pixel warps."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ukemi import T3, T6, Gene, Space, UserError, named_grid, vary
from ukemi.spaces import space_of
from ukemi.variations.kaist import FILL

KAIST = space_of("t3-kaist")
WIDE = Space(
    (
        Gene("rotation", -180, 180, 0, 1),
        Gene("translate_x", -6, 6, 0, 1),
        Gene("translate_y", -6, 6, 0, 1),
        Gene("shear", -60, 60, 0, 1),
    ),
    protocol="kaist",
)


def textured(height: int, width: int, channels: int = 3, count: int = 1) -> Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(1))


def nearest(image: Tensor, back: tuple[float, float, float, float], right: float = 0, down: float = 0) -> Tensor:
    """One warp of `[C, H, W]`: every pixel takes the pixel nearest to where `back` leads about the centre."""
    _, height, width = image.shape
    out = torch.tensor(FILL, dtype=image.dtype)[:, None, None].expand_as(image).clone()
    for i in range(height):
        for j in range(width):
            x, y = j - (width - 1) / 2, i - (height - 1) / 2
            column = round(back[0] * x + back[1] * y + (width - 1) / 2 - right)
            row = round(back[2] * x + back[3] * y + (height - 1) / 2 - down)
            if 0 <= row < height and 0 <= column < width:
                out[:, i, j] = image[:, row, column]
    return out


def chain(image: Tensor, row: list[float]) -> Tensor:
    rotation, right, down, shear = row
    cos, sin = math.cos(math.radians(rotation)), math.sin(math.radians(rotation))
    out = nearest(image, (cos, sin, -sin, cos))
    out = nearest(out, (1, 0, 0, 1), right=right)
    out = nearest(out, (1, 0, 0, 1), down=down)
    return nearest(out, (1, math.tan(math.radians(shear)), 0, 1))


@pytest.mark.parametrize("size", [(10, 10), (9, 12)])
@given(
    row=st.tuples(
        st.one_of(st.sampled_from([-30.0, 0.0, 30.0]), st.floats(-180, 180)),
        st.floats(-5, 5),
        st.floats(-5, 5),
        st.floats(-50, 50),
    )
)
def test_equals_the_chain(size: tuple[int, int], row: tuple[float, float, float, float]) -> None:
    image = textured(*size).double()
    found = vary(image, torch.tensor([row], dtype=torch.float64), WIDE)[0]
    # a pixel that looks exactly between two others may take either by rounding
    assert (found == chain(image[0], list(row))).all(0).float().mean() > 0.9


@pytest.mark.parametrize("row", [[30, 0, 0, 0], [-30, 0.1, -0.1, 0.1], [17, 2, -3, 20], [0, 3, 0, 0], [0, 0, 0, 30]])
def test_equals_the_chain_in_every_pixel(row: list[float]) -> None:
    image = textured(14, 20)
    assert torch.equal(vary(image, torch.tensor([row]), WIDE)[0], chain(image[0], row))


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (96, 64)])
@pytest.mark.parametrize("channels", [1, 3])
def test_three_distinct_images_of_81(size: tuple[int, int], channels: int) -> None:
    space, grid = named_grid("t3-81-kaist", size)
    assert torch.equal(grid, T3.grid(3)) and space is KAIST
    variants = vary(textured(*size, channels=channels).expand(81, -1, -1, -1), grid, space)
    assert len(torch.unique(variants.flatten(1), dim=0)) == 3
    for at in range(3):
        assert (variants[27 * at : 27 * at + 27] == variants[27 * at]).all()


def test_translation_is_in_pixels_and_shear_in_degrees() -> None:
    image = textured(13, 13)
    found = vary(image, torch.tensor([[0, 2, -1, 0]]), WIDE)
    assert torch.equal(found[:, :, :12, 2:], image[:, :, 1:, :11])
    assert (vary(image, torch.tensor([[0, 0.4, -0.4, 2.0]]), WIDE) == image).all()
    found = vary(image, torch.tensor([[0, 0, 0, 45.0]]), WIDE)
    assert torch.equal(found[0, :, 0, 6:], image[0, :, 0, :7]) and (found[0, 0, 0, :6] == FILL[0]).all()


@pytest.mark.parametrize("turns", [1, -1, 2])
def test_rotation_is_in_place_and_clockwise(turns: int) -> None:
    image = textured(28, 28)
    found = vary(image, torch.tensor([[90.0 * turns, 0, 0, 0]]), WIDE)
    assert torch.equal(found, torch.rot90(image, -turns, (-2, -1)))


@pytest.mark.parametrize("degrees", [-30.0, -7.0, 13.0, 30.0])
def test_rotation_takes_the_pixels_of_torchs_nearest_sampling(degrees: float) -> None:
    image = textured(32, 32, channels=1)
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    grid = F.affine_grid(torch.tensor([[[cos, sin, 0], [-sin, cos, 0]]]), [1, 1, 32, 32], align_corners=False)
    theirs = F.grid_sample(image, grid, mode="nearest", align_corners=False)
    assert torch.equal(vary(image, torch.tensor([[degrees, 0, 0, 0]]), KAIST), theirs)


def test_colour_images_are_filled_with_the_mean_and_others_with_black() -> None:
    row = torch.tensor([[30.0, 0, 0, 0]])
    for channels, fill in ((1, [0.0]), (3, list(FILL)), (4, [0.0] * 4)):
        corner = vary(0.5 + 0.5 * textured(32, 32, channels=channels), row, KAIST)[0, :, 0, 0]
        assert torch.equal(corner, torch.tensor(fill))


@pytest.mark.parametrize("size", [(28, 28), (33, 47), (5, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_identity_returns_the_image_bit_for_bit(size: tuple[int, int], dtype: torch.dtype) -> None:
    images = textured(*size, count=4).to(dtype)
    found = vary(images, KAIST.identity().expand(4, -1), KAIST)
    assert found.dtype == dtype and torch.equal(found, images) and found.data_ptr() != images.data_ptr()


@pytest.mark.parametrize("size", [(28, 28), (17, 30)])
@given(seed=st.integers(0, 1000))
def test_batch_equals_loop_and_stays_in_range(size: tuple[int, int], seed: int) -> None:
    images = textured(*size, count=11)
    before = images.clone()
    genes = WIDE.continuous().sample(torch.arange(11), seed=seed)[:, 0]
    genes[5] = WIDE.identity()
    together = vary(images, genes, WIDE)
    alone = torch.cat([vary(images[i : i + 1], genes[i : i + 1], WIDE) for i in range(11)])
    assert torch.equal(together, alone) and torch.equal(together[5], images[5]) and torch.equal(images, before)
    assert together.min() >= 0 and together.max() <= 1


def test_channels_last_gives_the_same() -> None:
    images, genes = textured(16, 16, count=3), WIDE.sample(torch.arange(3), seed=0)[:, 0]
    assert torch.equal(vary(images.to(memory_format=torch.channels_last), genes, WIDE), vary(images, genes, WIDE))


def test_no_value_is_looked_at() -> None:
    """On the meta device there are no values."""
    genes = KAIST.sample(torch.arange(3), seed=0)[:, 0].to("meta")
    assert vary(torch.empty(3, 3, 8, 8, device="meta"), genes, KAIST).shape == (3, 3, 8, 8)


def test_kernels_follow() -> None:
    def darker(images: Tensor, values: Tensor) -> Tensor:
        return images * (1 - values)[:, None, None, None]

    shade = Gene("shade", 0, 1, 0, 0.5, kernel=darker)
    images = textured(16, 16, count=2)
    genes = torch.tensor([[0, 0.5], [30, 0.5]])
    found = vary(images, genes, Space((T3.genes[0], shade), protocol="kaist"))
    assert torch.equal(found, vary(images, genes[:, :1], Space((T3.genes[0],), protocol="kaist")) / 2)
    assert torch.equal(vary(images, torch.zeros(2, 1), Space((shade,), protocol="kaist")), images)


def test_other_genes_are_refused() -> None:
    with pytest.raises(UserError, match=r"'kaist' has rotation, .* but not zoom, brightness, contrast"):
        Space(T6.genes, protocol="kaist")

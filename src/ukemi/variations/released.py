"""The protocol `released`: the six operators as SENSEI's released code applies them, for regression only.

A row of genes is read as that code reads it, signs included: positive rotation is clockwise, and positive shear moves
lower rows to the left. It works on a canvas that changes its size:

1. rotation about the pixel (W // 2, H // 2), on a canvas that grows to hold the turned image: 32 pixels become 37, 41
   and 43 at 10, 20 and 30 degrees, so the content ends up at 0.86, 0.78 and 0.74 of its size;
2. translation in whole pixels of that canvas (a gene times the image's side, rounded);
3. shear by [[1, -s, 0], [0, 1, 0]], which is not centred; then int(|s| x columns) columns, those emptied, are cropped;
4. zoom: nothing, as the last step undoes it;
5. the canvas is resized to the image's size; brightness +b and contrast (x - 127/255) c + 127/255, a clip after each.

What differs from that code: it resamples at every step (rotation, shear, zoom, resize), rounds to bytes after each and
colours before it resizes; here one map leads from the variant to the image, with one bilinear resampling, so variants
are a little sharper. On CIFAR-10 it also cuts the canvas to its middle square, with an even side, before the resize;
here the whole canvas is resized, as that code does on its other data sets. Integer halves are those of Python 2, in
which it is written.
"""

from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

_GEOMETRIC = ("rotation", "translate_x", "translate_y", "shear")
_GREY = 127 / 255


def released(images_NCHW: Tensor, values: dict[str, Tensor]) -> Tensor:
    """Variants of `images` under SENSEI's released operators; `values` holds a tensor `[N]` for every gene's name."""
    out = _warped(images_NCHW, {name: values[name] for name in _GEOMETRIC if name in values})
    if "brightness" in values:
        out = (out + _column(values["brightness"], out)).clamp(0, 1)
    if "contrast" in values:
        contrast = _column(values["contrast"], out)
        # written so that a contrast of 1 is exact
        out = (out * contrast + (1 - contrast) * _GREY).clamp(0, 1)
    return out


def canvas(rotation_N: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of the canvas that holds an image turned by `rotation` degrees, float64 `[N]` each.

    >>> [int(side) for side in canvas(torch.tensor([10, 20, 30]), 32, 32)[0]]
    [37, 41, 43]
    """
    angle_N = rotation_N.double() * (pi / 180)
    cos, sin = torch.cos(angle_N).abs(), torch.sin(angle_N).abs()
    return torch.floor(height * cos + width * sin), torch.floor(height * sin + width * cos)


def _column(values_N: Tensor, like: Tensor) -> Tensor:
    return values_N[:, None, None, None].to(like.dtype)


def _warped(images_NCHW: Tensor, values: dict[str, Tensor]) -> Tensor:
    if not values:
        return images_NCHW
    height, width = images_NCHW.shape[2:]
    some = next(iter(values.values()))
    # counted in float64, so that no size loses a pixel to rounding
    zero_N = torch.zeros_like(some, dtype=torch.float64)
    rotation, right, down, shear = (values[name].double() if name in values else zero_N for name in _GEOMETRIC)
    right, down = (right * width).round(), (down * height).round()
    moved_N = (rotation != 0) | (right != 0) | (down != 0) | (shear != 0)
    kind = torch.promote_types(some.dtype, torch.float32)
    grid_NHW2, cover_NHW = _sampling_grid(rotation, right, down, shear, (height, width), kind)
    out = F.grid_sample(images_NCHW, grid_NHW2.to(images_NCHW.dtype), align_corners=False)
    return torch.where(moved_N[:, None, None, None], out * cover_NHW[:, None].to(out.dtype), images_NCHW)


def _sampling_grid(
    rotation_N: Tensor, right_N: Tensor, down_N: Tensor, shear_N: Tensor, size: tuple[int, int], kind: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Where each pixel of the variant looks in the image, `[N, H, W, 2]`, and how much of it shows, `[N, H, W]`.

    The steps of the module's docstring from the last to the first. Translations are given in pixels.
    """

    def cell(number_N: Tensor) -> Tensor:
        return number_N.to(kind)[:, None, None]

    height, width = size
    rows_N, columns_N = canvas(rotation_N, height, width)
    # a factor of 0.03 is a little less in float32, and 100 columns times it are still 3
    cut_N = torch.minimum(torch.floor(shear_N.abs() * columns_N + 1e-5), columns_N - 1)
    u_NW = _resized(width, columns_N - cut_N) + torch.where(shear_N < 0, cut_N, 0)[:, None]
    u_N1W, v_NH1 = u_NW[:, None, :].to(kind), _resized(height, rows_N)[:, :, None].to(kind)
    x_NHW, cover_x_NHW = _on_canvas(u_N1W + cell(shear_N) * v_NH1, cell(right_N), cell(columns_N))
    y_NH1, cover_y_NH1 = _on_canvas(v_NH1, cell(down_N), cell(rows_N))
    across_NHW, along_NH1 = x_NHW - cell(right_N + columns_N // 2), y_NH1 - cell(down_N + rows_N // 2)
    cos, sin = cell(torch.cos(rotation_N * (pi / 180))), cell(torch.sin(rotation_N * (pi / 180)))
    from_x_NHW = cos * across_NHW + sin * along_NH1 + width // 2
    from_y_NHW = cos * along_NH1 - sin * across_NHW + height // 2
    grid_NHW2 = torch.stack(((2 * from_x_NHW + 1) / width - 1, (2 * from_y_NHW + 1) / height - 1), -1)
    return grid_NHW2, cover_x_NHW * cover_y_NH1


def _resized(count: int, side_N: Tensor) -> Tensor:
    """Where `count` pixels look on a side of `side` pixels, `[N, count]`: centres at halves, the edge repeated."""
    at = (torch.arange(count, device=side_N.device) + 0.5) * (side_N / count)[:, None] - 0.5
    return torch.minimum(at.clamp(min=0), side_N[:, None] - 1)


def _on_canvas(at: Tensor, moved: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest place on a side of `side` pixels that was moved within its frame, and how much of it shows.

    All of it on the canvas, nothing a pixel off it, bilinear between: what was moved out of the frame is lost.
    """
    first, last = moved.clamp(min=0), side - 1 + moved.clamp(max=0)
    cover = torch.minimum(at - first + 1, last + 1 - at).clamp(0, 1) * (first <= last)
    return torch.minimum(torch.maximum(at, first), last), cover

"""The protocol `kaist`: T3 as the code of the AUGMENTATION paper (SENSEI-RW, SENSEI-T) applies it, for regression only.

One affine map per gene, one after the other, each about the centre with nearest-pixel resampling. A row of genes is
read as that code reads it: positive rotation is clockwise, in place; a translation is a number of *pixels* and a shear
a number of *degrees*. Translations of 0.1 then move nothing, nor do shears of 0.1 on images below 570 rows: of a grid's
81 variants only three differ, and robust accuracy on it is that of three rotations.

That code normalises first and warps after, so what it fills with 0 shows the mean colour. It ran on CIFAR-10 only:
images of three channels are filled with CIFAR-10's mean colour here, all others with black.

Nearest maps lead from pixel to pixel, so the chain is followed on positions, rounded after each step, and every pixel
is fetched once: the pixels are those of warping four times.
"""

from math import pi

import torch
from torch import Tensor

FILL = (0.4914, 0.4822, 0.4465)
"""The mean colour with which that code normalises CIFAR-10."""
_GENES = ("rotation", "translate_x", "translate_y", "shear")


def kaist(images_NCHW: Tensor, values: dict[str, Tensor]) -> Tensor:
    """Variants of `images` under that paper's operators; `values` holds a tensor `[N]` for every gene's name."""
    if not values:
        return images_NCHW
    channels, height, width = images_NCHW.shape[1:]
    x_NHW, y_NHW, outside_NHW = _origins(values, height, width)
    index_NP = (y_NHW * width + x_NHW).flatten(1)
    out = images_NCHW.flatten(2).gather(2, index_NP[:, None].expand(-1, channels, -1)).view_as(images_NCHW)
    for channel, colour in enumerate(FILL if channels == len(FILL) else (0.0,) * channels):
        out[:, channel].masked_fill_(outside_NHW, colour)
    return out


def _origins(values: dict[str, Tensor], height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Column and row that each pixel of the variant shows, and whether there is none: int64, int64, bool `[N, H, W]`.

    The maps are undone from the last to the first: shear, translate_y, translate_x, rotation.
    """
    some = next(iter(values.values()))
    kind = torch.promote_types(some.dtype, torch.float32)
    zero_N = torch.zeros_like(some)
    angle, right, down, shear = (values.get(name, zero_N)[:, None, None].to(kind) for name in _GENES)
    angle, slope = angle * (pi / 180), torch.tan(shear * (pi / 180))
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    x_11W = torch.arange(width, device=some.device, dtype=kind)[None, None]
    y_1H1 = torch.arange(height, device=some.device, dtype=kind)[None, :, None]
    sheared_NHW = (x_11W + slope * (y_1H1 - middle_y)).round()
    moved_x_NHW, moved_y_NH1 = (sheared_NHW - right).round(), (y_1H1 - down).round()
    across_NHW, along_NH1 = moved_x_NHW - middle_x, moved_y_NH1 - middle_y
    x_NHW = (torch.cos(angle) * across_NHW + torch.sin(angle) * along_NH1 + middle_x).round()
    y_NHW = (torch.cos(angle) * along_NH1 - torch.sin(angle) * across_NHW + middle_y).round()
    inside_NHW = _within(sheared_NHW, width) & _within(moved_x_NHW, width) & _within(moved_y_NH1, height)
    inside_NHW = inside_NHW & _within(x_NHW, width) & _within(y_NHW, height)
    return x_NHW.clamp(0, width - 1).long(), y_NHW.clamp(0, height - 1).long(), ~inside_NHW


def _within(at: Tensor, side: int) -> Tensor:
    return (at >= 0) & (at < side)

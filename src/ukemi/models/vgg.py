"""The convolutions of VGG (Simonyan & Zisserman 2015), on which networks of several papers stand."""

from collections.abc import Callable, Sequence

from ukemi.models.layers import Conv, Pool, Row

VGG16 = (2, 2, 3, 3, 3)
VGG19 = (2, 2, 4, 4, 4)
"""How many convolutions each block has."""


def vgg_rows(depths: Sequence[int], conv: Callable[[int], Conv] = Conv, *, ceil: bool = False) -> list[Row]:
    """Blocks of 64, 128, 256, 512, 512 filters: as many Conv3 as `depths` says, then max-pool 2/2."""
    rows: list[Row] = []
    for width, depth in zip((64, 128, 256, 512, 512), depths, strict=False):
        rows += [*[conv(width)] * depth, Pool(ceil=ceil)]
    return rows

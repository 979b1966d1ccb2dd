"""The networks of DARE, in the form for 32x32 images."""

from collections.abc import Sequence
from functools import partial

from torch import nn

from ukemi.models.layers import Conv, Dense, Drop, Flat, Pool, plain
from ukemi.models.shape import Shape
from ukemi.models.vgg import VGG16, VGG19, vgg_rows


def vgg16(shape: Shape) -> nn.Module:
    """VGG-16's convolutions, each without bias and with BatchNorm; global average, then fc 4096 twice, dropout 0.5.

    Pooling keeps the rest at the edge, so that 28x28 images pass all five blocks. DARE's code takes the average behind
    the two dense layers; at 32x32 and 28x28 the map is 1x1, and the function is the same.
    """
    return _vgg(shape, VGG16)


def vgg19(shape: Shape) -> nn.Module:
    """As `vgg16` with VGG-19's convolutions."""
    return _vgg(shape, VGG19)


def _vgg(shape: Shape, depths: Sequence[int]) -> nn.Module:
    features = vgg_rows(depths, partial(Conv, bias=False, norm=True), ceil=True)
    return plain(shape, [*features, Flat(average=True), *[Dense(4096), Drop(0.5)] * 2])


def alexnet(shape: Shape) -> nn.Module:
    """Conv3 96 and 256 valid with BatchNorm, each with max-pool 3/2; Conv3 384, 384, 256 same, max-pool 3/2;
    fc 2048 twice, each with dropout 0.5. 1024 numbers reach the dense layers at 32x32, 256 at 28x28."""
    stem = [Conv(96, same=False, norm=True), Pool(3), Conv(256, same=False, norm=True), Pool(3)]
    features = [*stem, Conv(384), Conv(384), Conv(256), Pool(3)]
    return plain(shape, [*features, Flat(), *[Dense(2048), Drop(0.5)] * 2])

"""SENSEI's networks for traffic signs. They work at 48x48: images of another size are resized inside, bilinearly."""

from collections.abc import Sequence

from torch import nn

from ukemi.models.layers import Conv, Dense, Drop, Flat, Norm, Pool, Row, plain
from ukemi.models.shape import Shape
from ukemi.models.vgg import VGG16, vgg_rows

SIZE = (48, 48)


def gtsrb_1(shape: Shape) -> nn.Module:
    """Three blocks of Conv3 same, Conv3 valid, max-pool 2/2, dropout 0.2 (32, 64, 128); fc 512, dropout 0.5."""
    return _at_48(shape, [*_pairs(32, 64, 128), Flat(), Dense(512), Drop(0.5)])


def gtsrb_1_t6(shape: Shape) -> nn.Module:
    """As `gtsrb_1` with a fourth block of 128, the form of the runs with six variations."""
    return _at_48(shape, [*_pairs(32, 64, 128, 128), Flat(), Dense(512), Drop(0.5)])


def gtsrb_2(shape: Shape) -> nn.Module:
    """VGG-16's convolutions, the second one valid; fc 4096 twice, each with dropout 0.5."""
    first, _, *others = vgg_rows(VGG16)
    features = [first, Conv(64, same=False), *others]
    return _at_48(shape, [*features, Flat(), *[Dense(4096), Drop(0.5)] * 2])


def gtsrb_3(shape: Shape) -> nn.Module:
    """As `gtsrb_1` with BatchNorm behind the ReLU of each second convolution and behind the dropout of fc 512."""
    features = _pairs(32, 64, 128, between=[Norm()])
    return _at_48(shape, [*features, Flat(), Dense(512), Drop(0.5), Norm(flat=True)])


def gtsrb_4(shape: Shape) -> nn.Module:
    """VGG-16's convolutions; fc 256, dropout 0.5: the code's form, the paper's web page shows another."""
    return _at_48(shape, [*vgg_rows(VGG16), Flat(), Dense(256), Drop(0.5)])


def _pairs(*widths: int, between: Sequence[Row] = ()) -> list[Row]:
    rows: list[Row] = []
    for width in widths:
        rows += [Conv(width), Conv(width, same=False), *between, Pool(), Drop(0.2)]
    return rows


def _at_48(shape: Shape, rows: Sequence[Row]) -> nn.Sequential:
    network = plain(shape._replace(size=SIZE), rows)
    if shape.size == SIZE:
        return network
    return nn.Sequential(nn.Upsample(SIZE, mode="bilinear"), *network)

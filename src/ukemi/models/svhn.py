"""SENSEI's networks for street-view house numbers."""

from torch import nn

from ukemi.models.layers import Conv, Dense, Drop, Flat, Norm, Pool, Row, plain
from ukemi.models.shape import Shape


def svhn_1(shape: Shape) -> nn.Module:
    """Three blocks of Conv3, Conv3, each with BatchNorm, max-pool 2/2, dropout 0.3 (32, 64, 128; the first convolution
    of the second and third block valid); fc 512, dropout 0.3."""
    features: list[Row] = []
    for width, same in ((32, True), (64, False), (128, False)):
        features += [Conv(width, same=same, norm=True), Conv(width, norm=True), Pool(), Drop(0.3)]
    return plain(shape, [*features, Flat(), Dense(512), Drop(0.3)])


def svhn_2(shape: Shape) -> nn.Module:
    """Conv3 32 same, 32 valid, max-pool 2/2, Conv3 64 same, 64 valid, max-pool 2/2, dropout 0.2, BatchNorm; fc 1024,
    dropout 0.2. The paddings are inferred: of the likely ones they alone give the paper's 29 MB with Adam's state."""
    features = [Conv(32), Conv(32, same=False), Pool(), Conv(64), Conv(64, same=False), Pool(), Drop(0.2), Norm()]
    return plain(shape, [*features, Flat(), Dense(1024), Drop(0.2)])

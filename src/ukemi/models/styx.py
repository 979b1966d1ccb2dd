"""The networks of STYX."""

from torch import nn

from ukemi.models.layers import Conv, Dense, Drop, Flat, Pool, Row, plain
from ukemi.models.shape import Shape


def styx_mlp(shape: Shape) -> nn.Module:
    """fc 512 twice, each with dropout 0.2."""
    return plain(shape, [Flat(), *[Dense(512), Drop(0.2)] * 2])


def styx_cnn(shape: Shape) -> nn.Module:
    """Conv3 32 valid, Conv3 64 valid, max-pool 2/2, dropout 0.25; fc 128, dropout 0.5."""
    features = [Conv(32, same=False), Conv(64, same=False), Pool(), Drop(0.25)]
    return plain(shape, [*features, Flat(), Dense(128), Drop(0.5)])


def styx_cifar_cnn(shape: Shape) -> nn.Module:
    """Two blocks of Conv3 same, Conv3 valid, max-pool 2/2, dropout 0.25 (32, 64); fc 512, dropout 0.5."""
    features: list[Row] = []
    for width in (32, 64):
        features += [Conv(width), Conv(width, same=False), Pool(), Drop(0.25)]
    return plain(shape, [*features, Flat(), Dense(512), Drop(0.5)])

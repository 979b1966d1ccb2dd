"""SENSEI's networks for Fashion-MNIST."""

from torch import nn

from ukemi.models.layers import Conv, Dense, Drop, Flat, Norm, Pool, plain
from ukemi.models.shape import Shape
from ukemi.models.vgg import VGG16, vgg_rows


def fm_1(shape: Shape) -> nn.Module:
    """Blocks 1 to 4 of VGG-16; fc 4096, fc 4096, dropout 0.5."""
    return plain(shape, [*vgg_rows(VGG16[:4]), Flat(), Dense(4096), Dense(4096), Drop(0.5)])


def fm_2(shape: Shape) -> nn.Module:
    """Conv5 32, Conv5 64, Conv1 128, each with max-pool 2/2 that keeps the rest at the edge; fc 1024, fc 512,
    each with dropout 0.5 and incoming weights of length 3 at most."""
    pool = Pool(ceil=True)
    features = [Conv(32, 5), pool, Conv(64, 5), pool, Conv(128, 1), pool]
    head = [Dense(1024, max_norm=3), Drop(0.5), Dense(512, max_norm=3), Drop(0.5)]
    return plain(shape, [*features, Flat(), *head])


def fm_3(shape: Shape) -> nn.Module:
    """BatchNorm; Conv4 64 same, max-pool, dropout 0.1; Conv4 64 valid, max-pool, dropout 0.3; fc 256, dropout 0.5;
    fc 64, BatchNorm."""
    features = [Norm(), Conv(64, 4), Pool(), Drop(0.1), Conv(64, 4, same=False), Pool(), Drop(0.3)]
    return plain(shape, [*features, Flat(), Dense(256), Drop(0.5), Dense(64), Norm(flat=True)])

"""LeNet-5 (LeCun et al. 1998), as it is built today."""

from torch import nn

from ukemi.models.layers import Conv, Dense, Drop, Flat, Pool, plain
from ukemi.models.shape import Shape


def lenet5(shape: Shape) -> nn.Module:
    """Conv5 6 same, max-pool 2/2, Conv5 16 valid, max-pool 2/2; fc 120, fc 84, dropout 0.5; ReLU everywhere."""
    features = [Conv(6, 5), Pool(), Conv(16, 5, same=False), Pool()]
    return plain(shape, [*features, Flat(), Dense(120), Dense(84), Drop(0.5)])


def lenet5_dropout(shape: Shape) -> nn.Module:
    """The same with dropout 0.5 behind both hidden dense layers: where it stands before the classifier alone, the mean
    lead of the first class over the masks is its certain lead, and hardly an input is of high PCS and high VR."""
    features = [Conv(6, 5), Pool(), Conv(16, 5, same=False), Pool()]
    return plain(shape, [*features, Flat(), Dense(120), Drop(0.5), Dense(84), Drop(0.5)])

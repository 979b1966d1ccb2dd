"""Network in network (Lin et al. 2014), in the form for CIFAR-10."""

from torch import nn

from ukemi.models.layers import Conv, Drop, Flat, Pool, he_normal, sequential
from ukemi.models.shape import Shape


def nin(shape: Shape) -> nn.Module:
    """Conv5 192, Conv1 160, Conv1 96, max-pool 3/2, dropout 0.5; Conv5 192, Conv1 192, Conv1 192, average pool 3/2,
    dropout 0.5; Conv3 192, Conv1 192, Conv1 to the classes, global average.

    No ReLU stands behind the last convolution, so that a logit may be negative. Weights are He normal: without
    BatchNorm nine layers need it.
    """
    first = [Conv(192, 5), Conv(160, 1), Conv(96, 1), Pool(3, ceil=True), Drop(0.5)]
    second = [Conv(192, 5), Conv(192, 1), Conv(192, 1), Pool(3, ceil=True, average=True), Drop(0.5)]
    third = [Conv(192), Conv(192, 1), Conv(shape.classes, 1, relu=False), Flat(average=True)]
    return he_normal(sequential(shape, [*first, *second, *third]))

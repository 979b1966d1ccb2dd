"""The network of the demo: small enough for two slow cores."""

from torch import nn

from ukemi.models.layers import Conv, Dense, Flat, sequential
from ukemi.models.shape import Shape


def demo_cnn(shape: Shape) -> nn.Module:
    """Conv5/2 16, Conv3/2 32, Conv3/2 64, each with BatchNorm and ReLU, then flatten and Linear."""
    rows = [Conv(width, kernel, 2, bias=False, norm=True) for width, kernel in ((16, 5), (32, 3), (64, 3))]
    return sequential(shape, [*rows, Flat(), Dense(shape.classes, relu=False)])

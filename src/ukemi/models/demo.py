"""The network of the demo: small enough for two slow cores."""

from torch import nn

from ukemi.models.layers import conv_bn, flat_features
from ukemi.models.shape import Shape


def demo_cnn(shape: Shape) -> nn.Module:
    """Conv5/2 16, Conv3/2 32, Conv3/2 64, each with BatchNorm and ReLU, then flatten and Linear."""
    features = nn.Sequential(
        *conv_bn(shape.channels, 16, kernel=5, stride=2),
        *conv_bn(16, 32, stride=2),
        *conv_bn(32, 64, stride=2),
        nn.Flatten(),
    )
    return nn.Sequential(*features, nn.Linear(flat_features(features, shape), shape.classes))

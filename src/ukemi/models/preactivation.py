"""Pre-activation residual networks: SENSEI's ResNets for CIFAR-10 (6n+2 layers) and the wide one."""

from collections.abc import Sequence

from torch import Tensor, nn

from ukemi.models.layers import he_normal
from ukemi.models.shape import Shape


class PreActivationBlock(nn.Module):
    """BatchNorm, ReLU, Conv3 (stride), BatchNorm, ReLU, Conv3, plus the input.

    Where the size changes, a 1x1 convolution of the first activation is added in place of the input.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(inputs), nn.ReLU()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        changes = stride != 1 or inputs != outputs
        self.projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, outputs, H / stride, W / stride]."""
        active_NCHW = self.relu1(self.norm1(x_NCHW))
        residual_NCHW = self.conv2(self.relu2(self.norm2(self.conv1(active_NCHW))))
        return residual_NCHW + (x_NCHW if self.projection is None else self.projection(active_NCHW))


def preactivation(shape: Shape, blocks: int, widths: Sequence[int]) -> nn.Sequential:
    """Conv3 16, three stages of `blocks` blocks (strides 1, 2, 2), BatchNorm, ReLU, global average, Linear.

    Weights are He normal; BatchNorm keeps 0.9 of its statistics per step (torch: momentum 0.1) with eps 1e-5.
    No convolution has a bias (those of SENSEI's 6n+2 networks had one): the BatchNorm that follows, at once or after
    the addition, takes a constant out again, and adding it costs time.
    """
    layers: list[nn.Module] = [nn.Conv2d(shape.channels, 16, 3, padding=1, bias=False)]
    inputs = 16
    for stage, outputs in enumerate(widths):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(PreActivationBlock(inputs, outputs, stride))
            inputs = outputs
    layers += [nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return he_normal(nn.Sequential(*layers, nn.Linear(inputs, shape.classes)))


def resnet20(shape: Shape) -> nn.Module:
    """6n+2 layers with n = 3: 16, 32, 64 filters."""
    return preactivation(shape, 3, (16, 32, 64))


def resnet32(shape: Shape) -> nn.Module:
    """6n+2 layers with n = 5: 16, 32, 64 filters."""
    return preactivation(shape, 5, (16, 32, 64))


def resnet50_6n2(shape: Shape) -> nn.Module:
    """6n+2 layers with n = 8: 16, 32, 64 filters."""
    return preactivation(shape, 8, (16, 32, 64))


def wrn_28_10(shape: Shape) -> nn.Module:
    """Wide ResNet of 28 layers, ten times as wide: n = 4, 160, 320, 640 filters."""
    return preactivation(shape, 4, (160, 320, 640))

"""MobileNet (Howard et al. 2017, version 1)."""

from torch import nn

from ukemi.models.shape import Shape

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""Width and stride of each depthwise-separable block."""


def mobilenet(shape: Shape) -> nn.Module:
    """The form for 32x32: as `mobilenet_224`, but the first convolution has stride 1, which leaves a 2x2 map."""
    return _mobilenet(shape, 1)


def mobilenet_224(shape: Shape) -> nn.Module:
    """Conv3/2 32; thirteen blocks of depthwise Conv3 and Conv1, each convolution with BatchNorm and ReLU; global
    average; Linear."""
    return _mobilenet(shape, 2)


def _mobilenet(shape: Shape, stride: int) -> nn.Sequential:
    layers, inputs = _conv_norm(shape.channels, 32, 3, stride), 32
    for outputs, block_stride in BLOCKS:
        layers += _conv_norm(inputs, inputs, 3, block_stride, groups=inputs)
        layers += _conv_norm(inputs, outputs, 1)
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, shape.classes))


def _conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

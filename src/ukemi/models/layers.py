"""The building blocks that several networks share."""

import torch
from torch import nn

from ukemi.models.shape import Shape


def conv_bn(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    """Convolution without bias (padding kernel // 2), BatchNorm and ReLU."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def flat_features(features: nn.Module, shape: Shape) -> int:
    """How many numbers `features` (ending in a flatten) gives per image; leaves its statistics untouched."""
    was_training = features.training
    with torch.no_grad():
        outputs = features.eval()(torch.zeros(1, shape.channels, *shape.size))
    features.train(was_training)
    return int(outputs.shape[1])

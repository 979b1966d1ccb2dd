"""Post-activation residual networks (He et al. 2016), for small images and with the stem for ImageNet."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from ukemi.models.shape import Shape


class Block(nn.Module):
    """`path` plus the input (through Conv1 and BatchNorm where the size changes), then ReLU."""

    def __init__(self, path: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path, self.relu = path, nn.ReLU()
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(*_conv_norm(inputs, outputs, 1, stride))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, outputs, H / stride, W / stride]."""
        return self.relu(self.path(x_NCHW) + self.shortcut(x_NCHW))


BlockFactory = Callable[[int, int, int], tuple[Block, int]]
"""From inputs, width and stride to a block and its number of outputs."""


def basic(inputs: int, width: int, stride: int) -> tuple[Block, int]:
    """Conv3 (stride), BatchNorm, ReLU, Conv3, BatchNorm; and its number of outputs."""
    path = nn.Sequential(*_conv_norm(inputs, width, 3, stride), nn.ReLU(), *_conv_norm(width, width, 3))
    return Block(path, inputs, width, stride), width


def bottleneck(inputs: int, width: int, stride: int) -> tuple[Block, int]:
    """Conv1, BatchNorm, ReLU, Conv3 (stride), BatchNorm, ReLU, Conv1 to four times the width, BatchNorm."""
    path = nn.Sequential(
        *(*_conv_norm(inputs, width, 1), nn.ReLU()),
        *(*_conv_norm(width, width, 3, stride), nn.ReLU()),
        *_conv_norm(width, 4 * width, 1),
    )
    return Block(path, inputs, 4 * width, stride), 4 * width


def resnet18(shape: Shape) -> nn.Module:
    """Conv3 64, BatchNorm, ReLU; basic blocks 2, 2, 2, 2 of 64, 128, 256, 512; global average; Linear."""
    stem = [*_conv_norm(shape.channels, 64, 3), nn.ReLU()]
    return nn.Sequential(*stem, *_stages(shape, basic, (2, 2, 2, 2)))


def resnet50(shape: Shape) -> nn.Module:
    """Conv3 64, BatchNorm, ReLU; bottlenecks 3, 4, 6, 3 of 64, 128, 256, 512; global average; Linear."""
    stem = [*_conv_norm(shape.channels, 64, 3), nn.ReLU()]
    return nn.Sequential(*stem, *_stages(shape, bottleneck, (3, 4, 6, 3)))


def resnet50_imagenet(shape: Shape) -> nn.Module:
    """As `resnet50` with ImageNet's stem: Conv7/2 64, BatchNorm, ReLU, max-pool 3/2; convolutions He normal (fan out).

    The augmentation paper trains it on 32x32 images and leaves the head at 1000 classes.
    """
    stem = [*_conv_norm(shape.channels, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    network = nn.Sequential(*stem, *_stages(shape, bottleneck, (3, 4, 6, 3)))
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return network


def _stages(shape: Shape, block: BlockFactory, blocks: Sequence[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    inputs = 64
    for stage, count in enumerate(blocks):
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            layer, inputs = block(inputs, 64 * 2**stage, stride)
            layers.append(layer)
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, shape.classes)]


def _conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]

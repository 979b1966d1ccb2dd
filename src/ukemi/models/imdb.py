"""SENSEI's networks for faces, and the freezing of their first layers."""

from itertools import islice

from torch import nn

from ukemi.models.layers import Dense, Flat, plain
from ukemi.models.shape import Shape
from ukemi.models.vgg import VGG16, VGG19, vgg_rows


def imdb_1(shape: Shape) -> nn.Module:
    """VGG-16's convolutions, global average, fc 1024. The paper starts from ImageNet weights; here they are drawn."""
    return plain(shape, [*vgg_rows(VGG16), Flat(average=True), Dense(1024)])


def imdb_2(shape: Shape) -> nn.Module:
    """VGG-19's convolutions, global average, fc 1024. The paper starts from ImageNet weights; here they are drawn."""
    return plain(shape, [*vgg_rows(VGG19), Flat(average=True), Dense(1024)])


def freeze_first(model: nn.Module, layers: int = 15) -> None:
    """Stops the gradient of the first `layers` layers, counted as Keras does: the input, convolutions and pools.

    The paper's 15 are VGG-16's blocks 1 to 4, and VGG-19's up to the third convolution of block 4.
    """
    counted = (layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.MaxPool2d))
    for layer in islice(counted, layers - 1):
        layer.requires_grad_(False)

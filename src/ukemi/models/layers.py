"""Networks without branches, built from a table of rows, and the ways their weights start."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from torch import Tensor, nn
from torch.nn import functional as F

from ukemi.models.shape import Shape

Network = TypeVar("Network", bound=nn.Module)


class Extent(NamedTuple):
    """What one image is at some depth of a network; after a flatten it is `channels` numbers."""

    channels: int
    height: int
    width: int


class Row(ABC):
    """One row of a network's table."""

    @abstractmethod
    def layers(self, channels: int) -> list[nn.Module]:
        """The layers of this row for an input of `channels`."""

    def after(self, extent: Extent) -> Extent:
        """What an image is behind this row."""
        return extent


@dataclass(frozen=True)
class Conv(Row):
    """Convolution, BatchNorm if `norm`, ReLU if `relu`; `same` pads so that stride 1 keeps the size."""

    outputs: int
    kernel: int = 3
    stride: int = 1
    same: bool = True
    bias: bool = True
    norm: bool = False
    relu: bool = True

    def layers(self, channels: int) -> list[nn.Module]:
        """Convolution, normalisation and activation."""
        before, after = ((self.kernel - 1) // 2, self.kernel // 2) if self.same else (0, 0)
        layers: list[nn.Module] = []
        if before != after:
            # An even kernel needs one pixel more at the right and bottom, which a convolution can't pad by itself.
            layers.append(nn.ZeroPad2d((before, after, before, after)))
        padding = before if before == after else 0
        layers.append(nn.Conv2d(channels, self.outputs, self.kernel, self.stride, padding, bias=self.bias))
        if self.norm:
            layers.append(nn.BatchNorm2d(self.outputs))
        if self.relu:
            layers.append(nn.ReLU())
        return layers

    def after(self, extent: Extent) -> Extent:
        """`outputs` channels; smaller by the stride, and by the kernel unless `same`."""
        lost = 1 if self.same else self.kernel
        return Extent(self.outputs, *((side - lost) // self.stride + 1 for side in extent[1:]))


@dataclass(frozen=True)
class Pool(Row):
    """Max-pooling or, if `average`, average pooling; `ceil` keeps the rest at the edge."""

    kernel: int = 2
    stride: int = 2
    ceil: bool = False
    average: bool = False

    def layers(self, channels: int) -> list[nn.Module]:
        """The pooling."""
        kind = nn.AvgPool2d if self.average else nn.MaxPool2d
        return [kind(self.kernel, self.stride, ceil_mode=self.ceil)]

    def after(self, extent: Extent) -> Extent:
        """Fewer pixels."""
        rest = self.stride - 1 if self.ceil else 0
        return Extent(extent.channels, *((side - self.kernel + rest) // self.stride + 1 for side in extent[1:]))


@dataclass(frozen=True)
class Drop(Row):
    """Dropout."""

    rate: float

    def layers(self, channels: int) -> list[nn.Module]:
        """The dropout."""
        return [nn.Dropout(self.rate)]


@dataclass(frozen=True)
class Norm(Row):
    """BatchNorm of maps, or of numbers if `flat`."""

    flat: bool = False

    def layers(self, channels: int) -> list[nn.Module]:
        """The normalisation."""
        return [nn.BatchNorm1d(channels) if self.flat else nn.BatchNorm2d(channels)]


@dataclass(frozen=True)
class Flat(Row):
    """All maps as one row of numbers; if `average`, one number per map: its mean."""

    average: bool = False

    def layers(self, channels: int) -> list[nn.Module]:
        """Pooling if asked for, and a flatten."""
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if self.average else [nn.Flatten()]

    def after(self, extent: Extent) -> Extent:
        """A row of numbers."""
        pixels = 1 if self.average else extent.height * extent.width
        return Extent(extent.channels * pixels, 1, 1)


@dataclass(frozen=True)
class Dense(Row):
    """Linear and, if `relu`, ReLU; with `max_norm` no unit's incoming weights are longer than that."""

    outputs: int
    relu: bool = True
    max_norm: float | None = None

    def layers(self, channels: int) -> list[nn.Module]:
        """Linear and activation."""
        if self.max_norm is None:
            linear = nn.Linear(channels, self.outputs)
        else:
            linear = MaxNormLinear(channels, self.outputs, self.max_norm)
        return [linear, nn.ReLU()] if self.relu else [linear]

    def after(self, extent: Extent) -> Extent:
        """`outputs` numbers."""
        return Extent(self.outputs, 1, 1)


class MaxNormLinear(nn.Linear):
    """A Linear that scales each unit's incoming weights down to length `longest` where they are longer.

    Keras' max-norm constraint shortens the stored weights after each step of the optimiser; here the stored weights
    are free and the shortened ones are used, so that the function obeys the constraint in every forward pass and no
    forward pass writes to a weight.
    """

    def __init__(self, inputs: int, outputs: int, longest: float) -> None:
        super().__init__(inputs, outputs)
        self.longest = longest

    def forward(self, features_NF: Tensor) -> Tensor:
        """The affine map with shortened weights: [N, inputs] -> [N, outputs]."""
        return F.linear(features_NF, self.shortened(), self.bias)

    def shortened(self) -> Tensor:
        """The weights that are used, [outputs, inputs]."""
        lengths = self.weight.norm(dim=1, keepdim=True)
        return self.weight * (self.longest / lengths.clamp(min=self.longest))


def sequential(shape: Shape, rows: Sequence[Row]) -> nn.Sequential:
    """The layers of a table, with torch's own initial weights."""
    extent, layers = Extent(shape.channels, *shape.size), list[nn.Module]()
    for row in rows:
        layers += row.layers(extent.channels)
        extent = row.after(extent)
    return nn.Sequential(*layers)


def plain(shape: Shape, rows: Sequence[Row]) -> nn.Sequential:
    """The layers of a table and a Linear to the classes, with weights as `glorot` draws them."""
    return glorot(sequential(shape, [*rows, Dense(shape.classes, relu=False)]))


def glorot(network: Network) -> Network:
    """Glorot uniform weights and zero biases, where Keras starts unless told otherwise; returns its argument."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            _zero(layer.bias)
    return network


def he_normal(network: Network) -> Network:
    """Normal weights of variance 2 / inputs (He et al. 2015) and zero biases; returns its argument."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            _zero(layer.bias)
    return network


def _zero(bias: Tensor | None) -> None:
    if bias is not None:
        nn.init.zeros_(bias)

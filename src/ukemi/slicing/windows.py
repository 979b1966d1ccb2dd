"""The windows of convolutions and pools: which places of a map each output is made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """F places per output, at `outputs` (rows, columns) of them; pairs are (vertical, horizontal)."""

    kernel: Pair
    stride: Pair
    before: Pair
    """padding above and on the left"""
    dilation: Pair
    inputs: Pair
    outputs: Pair

    @property
    def padded(self) -> Pair:
        """The map's size with as much padding as its last window needs."""
        high, wide = (
            max((self.outputs[d] - 1) * self.stride[d] + self.dilation[d] * (self.kernel[d] - 1) + 1, self._least(d))
            for d in (0, 1)
        )
        return high, wide

    def _least(self, d: int) -> int:
        return self.before[d] + self.inputs[d]

    def columns(self, maps_NCHW: Tensor, fill: float = 0.0) -> Tensor:
        """The numbers in every window, `[N, C, F, L]` for L outputs; `fill` stands in the padding."""
        (top, left), (high, wide), (rows, columns) = self.before, self.padded, self.inputs
        sides = (left, wide - left - columns, top, high - top - rows)
        padded = F.pad(maps_NCHW, sides, value=fill)
        flat = F.unfold(padded, self.kernel, dilation=self.dilation, stride=self.stride)
        return flat.unflatten(1, (maps_NCHW.shape[1], -1))

    def folded(self, columns_NCFL: Tensor) -> Tensor:
        """The sums over all windows at each place of the map, `[N, C, H, W]`."""
        flat = columns_NCFL.flatten(1, 2)
        padded = F.fold(flat, self.padded, self.kernel, dilation=self.dilation, stride=self.stride)
        (top, left), (rows, columns) = self.before, self.inputs
        return padded[:, :, top : top + rows, left : left + columns]


def pair(value: int | Sequence[int]) -> Pair:
    """A setting for both directions."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def of_convolution(layer: nn.Conv2d, inputs: Pair, outputs: Pair) -> Window:
    """The windows of a convolution; `same` padding puts the odd pixel at the right and bottom."""
    kernel, dilation = pair(layer.kernel_size), pair(layer.dilation)
    if layer.padding == "same":
        before = pair([d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True)])
    else:
        before = (0, 0) if isinstance(layer.padding, str) else pair(layer.padding)
    return Window(kernel, pair(layer.stride), before, dilation, inputs, outputs)


def even(inputs: Pair, outputs: Pair) -> Window | None:
    """Windows side by side that share a map evenly, or None where it does not divide."""
    if inputs[0] % outputs[0] or inputs[1] % outputs[1]:
        return None
    kernel = inputs[0] // outputs[0], inputs[1] // outputs[1]
    return Window(kernel, kernel, (0, 0), (1, 1), inputs, outputs)

"""The layer that turns pixels in [0, 1] into what a network was trained on."""

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ukemi.errors import UserError


class Normalize(nn.Module):
    """Pixels in [0, 1] minus `mean`, divided by `std`, per channel: images_NCHW -> images_NCHW."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        _check(mean, std)
        self.register_buffer("mean", torch.tensor(list(mean), dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(list(std), dtype=torch.float32).view(-1, 1, 1))

    def forward(self, images_NCHW: Tensor) -> Tensor:
        """The normalised images."""
        return (images_NCHW - self.mean) / self.std

    def extra_repr(self) -> str:
        """What a printed model says of it."""
        mean, std = ([float(f"{value:.4g}") for value in side.flatten().tolist()] for side in (self.mean, self.std))
        return f"mean={mean}, std={std}"


def behind_normalize(normalize: Normalize, network: nn.Module) -> nn.Sequential:
    """A Sequential of `normalize` and `network`, under these names."""
    return nn.Sequential(OrderedDict(normalize=normalize, network=network))


def _check(mean: Sequence[float], std: Sequence[float]) -> None:
    for field, given in (("mean", mean), ("std", std)):
        if isinstance(given, str | float | int):
            raise UserError(f"{field}: one number per channel is needed, as [0.5], but {given!r} was given.")
    if len(mean) != len(std) or not len(mean):
        raise UserError(f"mean: {len(mean)} numbers with {len(std)} in std were given, but one per channel is needed.")
    if not all(math.isfinite(value) for value in mean):
        raise UserError(f"mean: finite numbers are expected, but {list(mean)} was given.")
    if not all(0 <= value <= 1 for value in mean):
        raise UserError(
            f"mean: that of pixels in [0, 1] is expected, but {list(mean)} was given (of pixels up to 255, divide mean"
            " and std by 255)."
        )
    if not all(math.isfinite(value) and value > 0 for value in std):
        raise UserError(f"std: numbers above 0 are expected, but {list(std)} was given.")

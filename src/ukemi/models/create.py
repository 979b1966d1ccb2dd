"""Makes a network of the table by its name."""

from collections.abc import Sequence

from torch import nn

from ukemi.errors import UserError
from ukemi.models.normalize import Normalize, behind_normalize
from ukemi.models.registry import MODELS
from ukemi.models.shape import Entry, Shape


def create(
    name: str,
    *,
    classes: int,
    channels: int,
    size: tuple[int, int],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Sequential:
    """The named network behind `Normalize`, as a Sequential of `normalize` and `network`.

    Takes pixels in [0, 1] of `size` (height, width), gives logits [N, classes]. Without `mean` it subtracts 0,
    without `std` it divides by 1. Weights are drawn from torch's global generator and from nothing else.
    """
    shape = Shape(channels, size, classes)
    entry = _entry(name)
    _check(name, entry, shape)
    return behind_normalize(_normalize(name, channels, mean, std), entry.factory(shape))


def _entry(name: str) -> Entry:
    if name not in MODELS:
        raise UserError(f"model: {name!r} is not a known network; known are {', '.join(MODELS)}.")
    return MODELS[name]


def _check(name: str, entry: Entry, shape: Shape) -> None:
    if shape.channels < 1:
        raise UserError(f"model: {name} takes images of 1 channel or more, but {shape.channels} was given.")
    if shape.classes < 2:
        raise UserError(f"model: {name} tells 2 classes or more apart, but {shape.classes} was given.")
    if min(shape.size) < entry.smallest:
        given, least = "×".join(map(str, shape.size)), entry.smallest
        raise UserError(f"model: {name} takes images of {least}×{least} pixels or more, but {given} was given.")


def _normalize(name: str, channels: int, mean: Sequence[float] | None, std: Sequence[float] | None) -> Normalize:
    mean = [0.0] * channels if mean is None else mean
    std = [1.0] * channels if std is None else std
    for field, values in {"mean": mean, "std": std}.items():
        if len(values) != channels:
            raise UserError(f"{field}: {name} has {channels} channels, but {len(values)} numbers were given.")
    return Normalize(mean, std)

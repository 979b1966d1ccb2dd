"""Makes a network of the table by its name."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

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
    size: int | tuple[int, int],
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
) -> nn.Sequential:
    """The named network behind `Normalize`, as a Sequential of `normalize` and `network`.

    Takes pixels in [0, 1] of `size` (height and width, or one number for both), gives logits [N, classes]. Without
    `mean` it subtracts 0, without `std` it divides by 1; one number is that of every channel. Weights are drawn from
    torch's global generator and from nothing else.
    """
    shape = Shape(channels, (size, size) if isinstance(size, int) else size, classes)
    entry = _entry(name)
    _check(name, entry, shape)
    return behind_normalize(_normalize(name, channels, mean, std), entry.factory(shape))


def _entry(name: str) -> Entry:
    if name not in MODELS:
        raise not_known(name)
    return MODELS[name]


def not_known(name: str) -> UserError:
    """What to say of a name that is in no table."""
    if Path(name).is_file():
        return UserError(
            f"model: {name} is a file; give package.module:factory, a function of yours that makes the network (or"
            " loads it, as torch.jit.load does), and a state dictionary as --weights."
        )
    near = get_close_matches(name, MODELS, 1, 0.75)
    meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(MODELS)}."
    return UserError(f"model: {name!r} is neither a known network nor your own as package.module:factory; {meant}")


def _check(name: str, entry: Entry, shape: Shape) -> None:
    if shape.channels < 1:
        raise UserError(f"model: {name} takes images of 1 channel or more, but {shape.channels} was given.")
    if shape.classes < 2:
        raise UserError(f"model: {name} tells 2 classes or more apart, but {shape.classes} was given.")
    if min(shape.size) < entry.smallest:
        given, least = "×".join(map(str, shape.size)), entry.smallest
        raise UserError(f"model: {name} takes images of {least}×{least} pixels or more, but {given} was given.")


def _normalize(
    name: str, channels: int, mean: float | Sequence[float] | None, std: float | Sequence[float] | None
) -> Normalize:
    mean, std = _each(mean, 0.0, channels), _each(std, 1.0, channels)
    for field, values in {"mean": mean, "std": std}.items():
        if len(values) != channels:
            raise UserError(f"{field}: {name} has {channels} channels, but {len(values)} numbers were given.")
    return Normalize(mean, std)


def _each(given: float | Sequence[float] | None, default: float, channels: int) -> Sequence[float]:
    """A number per channel."""
    given = default if given is None else given
    return [given] * channels if isinstance(given, int | float) else given

"""Pixel mutators (STYX, Algorithm 2): a share of an image's pixels is blackened, averaged, redrawn or made noisy.

A mutator is `(images, mask, draw) -> images`: `images` `[N, C, H, W]` in [0, 1], `mask` bool that broadcasts to it and
is true where a pixel changes. `draw(n)` gives n fields of uniform numbers `[n, N, C, H, W]`. They hold at the places
that change and are 0 elsewhere, so that only numbers that are needed are made.

Which pixels change is drawn by key: *places* `[N, k]` are the numbers of the pixels in the image, different ones, and
always exactly round(ratio x pixels) of them (Python's round). A pixel is a position with all its channels, or, as in
the released code, the value of one channel. Numbers at a place hang on the sample, never on its batch.
"""

from collections.abc import Callable
from functools import partial
from math import pi
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ukemi import randomness
from ukemi.errors import UserError
from ukemi.randomness import Stream
from ukemi.schema import called, chosen

Draw = Callable[[int], Tensor]
Mutator = Callable[[Tensor, Tensor, Draw], Tensor]
Pixels = Literal["position", "channel"]
SIGMA = 0.5
ROWWISE = ("cpu",)
"""Where only the rows that change are computed. A GPU keeps its shapes and never waits to count rows."""


def zero(images: Tensor, mask: Tensor, draw: Draw) -> Tensor:
    """Black."""
    return images.masked_fill(mask, 0.0)


def average(images: Tensor, mask: Tensor, draw: Draw) -> Tensor:
    """The mean of the 8 neighbours in the same channel, as many of them as exist, all as they were before mutation.

    The only pixel of an image of one has no neighbour and stays.
    """
    height, width = images.shape[2:]
    if height * width == 1:
        return images
    padded = F.pad(images, (1, 1, 1, 1))
    above_and_below = padded[:, :, :-2] + padded[:, :, 2:]
    columns = above_and_below + padded[:, :, 1:-1]
    # no sum holds the pixel itself, so nothing is subtracted that rounding could leave a trace of
    sums = columns[..., :-2] + columns[..., 2:] + above_and_below[..., 1:-1]
    return torch.where(mask, sums / _neighbours(images), images)


def _neighbours(images: Tensor) -> Tensor:
    """How many neighbours each position has, `[H, W]`."""

    def along(side: int) -> Tensor:
        at = torch.arange(side, device=images.device)
        return 1 + (at > 0).to(images.dtype) + (at < side - 1).to(images.dtype)

    return along(images.shape[2])[:, None] * along(images.shape[3]) - 1


def random(images: Tensor, mask: Tensor, draw: Draw) -> Tensor:
    """A value drawn evenly from [0, 1)."""
    return torch.where(mask, draw(1)[0].to(images.dtype), images)


def gaussian(images: Tensor, mask: Tensor, draw: Draw, sigma: float = SIGMA) -> Tensor:
    """Normal noise of deviation `sigma` added, clipped to [0, 1]."""
    first, second = draw(2)
    noise = (-2 * torch.log1p(-first)).sqrt() * torch.cos(2 * pi * second)
    return torch.where(mask, (images + sigma * noise.to(images.dtype)).clamp(0, 1), images)


MUTATORS: dict[str, Mutator] = {"zero": zero, "average": average, "random": random, "gaussian": gaussian}
"""The paper's mutators by name."""
MIXTURE = "mixture"
"""One of `MUTATORS` drawn for each image."""


def mutators_of(given: Any, sigma: float = SIGMA, field: str = "mutator") -> tuple[Mutator, ...]:
    """What a name, `package.module:name` or a function means; `mixture` means all four."""
    if isinstance(given, str) and given == MIXTURE:
        return tuple(_with(mutator, sigma, field) for mutator in MUTATORS.values())
    # the table also lends its names to the sentence that a wrong one gets
    return (_with(chosen(given, {**MUTATORS, MIXTURE: zero}, field), sigma, field),)


def _with(mutator: Mutator, sigma: float, field: str) -> Mutator:
    if mutator is gaussian:
        return partial(gaussian, sigma=sigma)
    return mutator if mutator in MUTATORS.values() else partial(_own, mutator, field)


def _own(mutator: Mutator, field: str, images: Tensor, mask: Tensor, draw: Draw) -> Tensor:
    """Someone's own mutator, held to the mask and to [0, 1]."""
    made = called(mutator, field, images, mask, draw)
    if not isinstance(made, Tensor) or made.shape != images.shape:
        given = list(made.shape) if isinstance(made, Tensor) else repr(made)
        raise UserError(f"{field}: images of {list(images.shape)} should come out of it, but {given} came.")
    return torch.where(mask, made.to(images.dtype).clamp(0, 1), images)


def places(
    index: Tensor, shape: tuple[int, ...], ratio: float, *, pixels: Pixels = "position", seed: int = 0, turn: int = 0
) -> Tensor:
    """The numbers of the pixels that change in each image of `shape` (C, H, W), int64 `[N, round(ratio x pixels)]`.

    They are a function of (seed, index, turn); a turn is an epoch where every epoch has masks of its own.

    >>> places(torch.tensor([4, 7]), (3, 32, 32), 0.1).shape
    torch.Size([2, 102])
    """
    channels, height, width = shape
    count = height * width if pixels == "position" else channels * height * width
    own_N1 = randomness.bits(index, seed=seed, stream=Stream.MUTATION_MASK, epoch=turn)[:, None]
    numbers_P = torch.arange(count, device=index.device)
    # the hash maps different numbers to different ones, so there are no ties and the order is the same everywhere
    bits_NP = randomness.bits(own_N1 + numbers_P, seed=seed, stream=Stream.MUTATION_MASK, epoch=turn)
    return bits_NP.topk(round(ratio * count), dim=1, largest=False, sorted=True).indices


def mask_of(places_Nk: Tensor, shape: tuple[int, ...], pixels: Pixels = "position") -> Tensor:
    """True at the places: bool `[N, 1, H, W]` where a pixel is a position, `[N, C, H, W]` where it is one channel's."""
    channels = 1 if pixels == "position" else shape[0]
    size = (len(places_Nk), channels, *shape[1:])
    mask_NP = torch.zeros(size, dtype=torch.bool, device=places_Nk.device).flatten(1)
    return mask_NP.scatter(1, places_Nk, True).view(size)


def mutate(
    images: Tensor,
    index: Tensor,
    places_Nk: Tensor,
    mutators: tuple[Mutator, ...],
    *,
    pixels: Pixels = "position",
    picked: Tensor | None = None,
    seed: int = 0,
    turn: int = 0,
) -> Tensor:
    """The images with their pixels at `places` (`[1, k]`: the same ones in all) mutated; of several mutators each image
    draws one. `picked` bool `[N]` says which images change; None is all."""
    if len(mutators) > 1:
        drawn_N = randomness.uniform(index, seed=seed, stream=Stream.MIXTURE, epoch=turn).flatten()
        which_N = (drawn_N * len(mutators)).long()
        for number, mutator in enumerate(mutators):
            mine_N = which_N == number if picked is None else (which_N == number) & picked
            images = mutate(images, index, places_Nk, (mutator,), pixels=pixels, picked=mine_N, seed=seed, turn=turn)
        return images
    if picked is None or images.device.type not in ROWWISE:
        return _masked(images, index, places_Nk, mutators[0], pixels, picked, seed, turn)
    rows = picked.nonzero().flatten()
    if len(places_Nk) > 1:
        places_Nk = places_Nk[rows]
    made = _masked(images[rows], index[rows], places_Nk, mutators[0], pixels, None, seed, turn)
    return images.index_copy(0, rows, made)


def _masked(
    images: Tensor,
    index: Tensor,
    places_Nk: Tensor,
    mutator: Mutator,
    pixels: Pixels,
    picked: Tensor | None,
    seed: int,
    turn: int,
) -> Tensor:
    mask = mask_of(places_Nk, tuple(images.shape[1:]), pixels)
    if picked is not None:
        mask = mask & picked[:, None, None, None]
    return mutator(images, mask, partial(_draw, images, index, places_Nk, pixels, seed, turn))


def _draw(
    images: Tensor, index: Tensor, places_Nk: Tensor, pixels: Pixels, seed: int, turn: int, fields: int
) -> Tensor:
    """Uniform numbers at the places, 0 elsewhere: `[fields, N, C, H, W]`."""
    count, channels, height, width = images.shape
    each = channels if pixels == "position" else 1
    rows, numbers = fields * each, channels // each * height * width
    drawn = randomness.uniform(index, rows, places_Nk.shape[1], seed=seed, stream=Stream.MUTATION_MASK, epoch=turn)
    blank = torch.zeros(count, rows, numbers, device=images.device)
    field = blank.scatter(2, places_Nk[:, None].expand(count, rows, -1), drawn)
    return field.view(count, fields, channels, height, width).movedim(1, 0)

"""Genetic operators on pixels inside an Linf ball: noise, pixel exchange, mutation. Tensors only.

Individuals are `[N, K, C, H, W]`; a box is the lowest and the highest image `[N, C, H, W]` of the ball around each
seed, cut with [0, 1], and no operator leaves it. Every draw is a function of (seed, generation, index, individual,
pixel).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ukemi.randomness import Stream, uniform

Box = tuple[Tensor, Tensor]


Grains = Sequence[int]
"""sides of the square patches whose pixels get one draw; individuals take them in turns"""


def noisy(
    box: Box,
    index_N: Tensor,
    count: int,
    *,
    seed: int,
    generation: int = 0,
    edge: float = 0.0,
    grains: Grains = (1,),
) -> Tensor:
    """`count` random individuals per seed, even within the ball; with probability `edge` a pixel is at an end of it."""
    u_NKCHW = _drawn(box, index_N, count, Stream.NOISE, seed, generation, grains)
    if edge:
        # the same number decides and says where: what is below `edge` is spread to the two ends, the rest anew
        u_NKCHW = torch.where(u_NKCHW < edge, (u_NKCHW < edge / 2).to(u_NKCHW), (u_NKCHW - edge) / (1 - edge))
    return between(u_NKCHW, box)


def between(share_NKCHW: Tensor, box: Box) -> Tensor:
    """The points that lie this share of the way from the ball's low to its high end, inside after rounding too."""
    low, high = (end[:, None] for end in box)
    return torch.minimum(torch.maximum(low + share_NKCHW.to(low.dtype) * (high - low), low), high)


def exchanged(
    first_NKCHW: Tensor, second_NKCHW: Tensor, index_N: Tensor, *, share: float, seed: int, generation: int
) -> Tensor:
    """Children of two: each pixel, with all its channels, is the second's with probability `share`."""
    count, (height, width) = first_NKCHW.shape[1], first_NKCHW.shape[3:]
    u = uniform(index_N, count, height * width, seed=seed, stream=Stream.EXCHANGE, epoch=generation)
    swapped = (u < share).view(*first_NKCHW.shape[:2], 1, height, width)
    return torch.where(swapped, second_NKCHW, first_NKCHW)


def mutated(
    images_NKCHW: Tensor,
    box: Box,
    index_N: Tensor,
    *,
    rate: float,
    seed: int,
    generation: int,
    edge: float = 0.0,
    grains: Grains = (1,),
) -> Tensor:
    """A share `rate` of all values drawn anew within the ball, with probability `edge` at an end of it."""
    if not rate:
        return images_NKCHW
    u_NKCHW = _drawn(box, index_N, images_NKCHW.shape[1], Stream.PIXELS, seed, generation, grains)
    place = (u_NKCHW / rate).clamp(max=1)  # where a value changes, this is even in [0, 1)
    if edge:
        place = torch.where(place < edge, (place < edge / 2).to(place), (place - edge) / (1 - edge))
    return torch.where(u_NKCHW < rate, between(place, box), images_NKCHW)


def rows_of(individuals: Tensor, which_NC: Tensor) -> Tensor:
    """The individuals numbered `which_NC` of each seed."""
    wide = which_NC.view(*which_NC.shape, *(1,) * (individuals.ndim - 2))
    return individuals.gather(1, wide.expand(-1, -1, *individuals.shape[2:]))


def _drawn(box: Box, index_N: Tensor, count: int, stream: Stream, seed: int, generation: int, grains: Grains) -> Tensor:
    """Numbers in [0, 1), one for each channel of each patch, `[N, count, C, H, W]`."""
    channels, height, width = box[0].shape[1:]
    u_NKV = uniform(index_N, count, channels * height * width, seed=seed, stream=stream, epoch=generation)
    u_NKCP = u_NKV.view(-1, count, channels, height * width)
    if set(grains) != {1}:
        places_KP = _patches(height, width, count, grains, u_NKV.device)
        u_NKCP = u_NKCP.gather(3, places_KP[None, :, None].expand_as(u_NKCP))
    return u_NKCP.view(-1, count, channels, height, width)


def _patches(height: int, width: int, count: int, grains: Grains, device: torch.device) -> Tensor:
    """The first pixel of every pixel's patch, int64 `[count, H x W]`."""
    rows_H1, columns_W = torch.arange(height, device=device)[:, None], torch.arange(width, device=device)
    firsts = [((rows_H1 // side) * side * width + (columns_W // side) * side).flatten() for side in grains]
    return torch.stack([firsts[at % len(firsts)] for at in range(count)])

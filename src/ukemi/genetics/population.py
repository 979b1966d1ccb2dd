"""Populations: chromosomes as positions on their space's lattice, one row of them per training sample."""

import torch
from torch import Tensor

from ukemi.randomness import Stream
from ukemi.spaces import Space

_OFFSET = 32767


def first_population(index_N: Tensor, size: int, space: Space, *, seed: int, identity: bool = False) -> Tensor:
    """`size` random chromosomes per sample, int32 codes `[N, size, G]`; with `identity` the first changes nothing."""
    codes_NKG = space.sample_codes(index_N, size, seed=seed, stream=Stream.POPULATION)
    if identity:
        codes_NKG[:, 0] = space.encode(space.identity(index_N.device))
    return codes_NKG


def packed(codes: Tensor) -> Tensor:
    """Codes as int16: ten chromosomes of T6 for 1.28 million samples take 179 MB."""
    return (codes - _OFFSET).to(torch.int16)


def unpacked(stored: Tensor) -> Tensor:
    """Codes from what `packed` gave."""
    return stored.int() + _OFFSET

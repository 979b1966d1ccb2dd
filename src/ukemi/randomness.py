"""Keyed random numbers: randomness is a function of its key, never a state.

Every number is `uniform(seed, stream, epoch, index, candidate, gene)`, computed on the device by the 64-bit SplitMix
finaliser. Nothing depends on batch order, batch size, worker or rank count, and there is no generator to save.
"""

from enum import IntEnum
from functools import partial

import torch
from torch import Tensor

from ukemi.fused import fusable

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


class Stream(IntEnum):
    """What a number is drawn for. A stream's number is a promise: changing it changes every run."""

    ORDER = 0
    FLIP = 1
    GENES = 2
    SPLIT = 3
    STEP = 4
    WEIGHTS = 5
    SUBSET = 6
    POPULATION = 7
    CHILDREN = 8
    SELECTION = 9
    CROSSOVER = 10
    MUTATION = 11
    COIN = 12
    START = 13
    MUTATION_MASK = 14
    MIXTURE = 15
    DROPOUT = 40
    NOISE = 41
    TOURNAMENT = 42
    EXCHANGE = 43
    PIXELS = 44
    FUZZ = 45
    DEFLECTION = 60
    WEIGHT_MUTATION = 61
    HALVES = 62
    BOOTSTRAP = 63


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix_int(z: int) -> int:
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """A logical shift: int64's own shift copies the sign bit."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift_right(z, 30)) * _signed(_FIRST)
    z = (z ^ _shift_right(z, 27)) * _signed(_SECOND)
    return z ^ _shift_right(z, 31)


def key(*values: int) -> int:
    """A 64-bit key from a row of integers, such as (seed, stream, epoch)."""
    k = 0
    for value in values:
        k = _mix_int((k + (value + 1) * _GOLDEN) & _MASK)
    return k


def bits(index_N: Tensor, *, seed: int, stream: Stream, epoch: int = 0) -> Tensor:
    """One 64-bit hash per index, as int64 `[N]`."""
    return _mix(index_N.long() * _signed(_GOLDEN) + _signed(key(seed, stream, epoch)))


def uniform(
    index_N: Tensor, candidates: int = 1, genes: int = 1, *, seed: int, stream: Stream, epoch: int = 0, first: int = 0
) -> Tensor:
    """Numbers in [0, 1), float32 `[N, candidates, genes]`, on a lattice of 2^-24; candidates count from `first`.

    >>> uniform(torch.tensor([7]), seed=0, stream=Stream.GENES).shape
    torch.Size([1, 1, 1])
    """
    device = index_N.device
    # a key that is filled in on the device, so that one compiled kernel serves every key
    key_1 = torch.full((), _signed(key(seed, stream, epoch)), dtype=torch.int64, device=device)
    candidate_K = torch.arange(first + 1, first + candidates + 1, device=device)
    return _numbers(index_N.long(), key_1, candidate_K, torch.arange(1, genes + 1, device=device))


@partial(fusable, sizes=True)
def _numbers(index_N: Tensor, key_1: Tensor, candidate_K: Tensor, gene_G: Tensor) -> Tensor:
    step = _signed(_GOLDEN)
    h_N11 = _mix(index_N * step + key_1)[:, None, None]
    h_NK1 = _mix(h_N11 + candidate_K[:, None] * step)
    h_NKG = _mix(h_NK1 + gene_G * step)
    return _shift_right(h_NKG, 40).float() * 2.0**-24


def permutation(count: int, *, seed: int, stream: Stream, epoch: int = 0, device: torch.device | str = "cpu") -> Tensor:
    """A shuffled `arange(count)` that is a function of its key alone."""
    return torch.argsort(bits(torch.arange(count, device=device), seed=seed, stream=stream, epoch=epoch), stable=True)

"""Keyed randomness: a function of its key, uniform and independent."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ukemi.randomness import Stream, bits, key, permutation, uniform

MASK = (1 << 64) - 1
G = 0x9E3779B97F4A7C15


def slow_mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def slow_uniform(seed: int, stream: int, epoch: int, index: int, candidate: int, gene: int) -> float:
    """The definition, in Python integers."""
    k = 0
    for value in (seed, stream, epoch):
        k = slow_mix((k + (value + 1) * G) & MASK)
    h = slow_mix((index * G + k) & MASK)
    h = slow_mix((h + (candidate + 1) * G) & MASK)
    h = slow_mix((h + (gene + 1) * G) & MASK)
    return (h >> 40) * 2.0**-24


@given(
    seed=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 10_000),
    index=st.integers(0, 2**40),
    stream=st.sampled_from(list(Stream)),
)
def test_equals_the_slow_definition(seed: int, epoch: int, index: int, stream: Stream) -> None:
    found = uniform(torch.tensor([index]), 3, 2, seed=seed, stream=stream, epoch=epoch)
    for candidate in range(3):
        for gene in range(2):
            assert found[0, candidate, gene].item() == slow_uniform(seed, stream, epoch, index, candidate, gene)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=40, unique=True), st.integers(1, 7))
def test_does_not_depend_on_batch_or_order(indices: list[int], size: int) -> None:
    whole = torch.tensor(indices)
    together = uniform(whole, 4, 3, seed=5, stream=Stream.GENES, epoch=2)
    parts = torch.cat([uniform(part, 4, 3, seed=5, stream=Stream.GENES, epoch=2) for part in whole.split(size)])
    assert torch.equal(together, parts)
    back = uniform(whole.flip(0), 4, 3, seed=5, stream=Stream.GENES, epoch=2).flip(0)
    assert torch.equal(together, back)
    fewer = uniform(whole, 2, 3, seed=5, stream=Stream.GENES, epoch=2)
    assert torch.equal(together[:, :2], fewer)


def numbers(**changed: int) -> torch.Tensor:
    values = {"seed": 1, "epoch": 0} | changed
    return uniform(torch.arange(50_000), 2, 3, stream=Stream.GENES, **values)  # type: ignore[arg-type]


def test_uniform() -> None:
    u = numbers().flatten()
    assert u.min() >= 0 and u.max() < 1
    counts = torch.histc(u.double(), 256, 0, 1).numpy()
    assert stats.chisquare(counts).pvalue > 1e-3
    assert abs(u.double().mean().item() - 0.5) < 4 * (1 / 12 / len(u)) ** 0.5


def pairs() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    u = numbers()
    return {
        "index": (u[:-1].flatten(), u[1:].flatten()),
        "candidate": (u[:, 0].flatten(), u[:, 1].flatten()),
        "gene": (u[..., 0].flatten(), u[..., 1].flatten()),
        "epoch": (u.flatten(), numbers(epoch=1).flatten()),
        "seed": (u.flatten(), numbers(seed=2).flatten()),
    }


@pytest.mark.parametrize("along", ["index", "candidate", "gene", "epoch", "seed"])
def test_neighbours_along_every_key_are_independent(along: str) -> None:
    a, b = pairs()[along]
    cells = (a * 16).long() * 16 + (b * 16).long()
    counts = torch.bincount(cells, minlength=256).numpy()
    assert stats.chisquare(counts).pvalue > 1e-3


def test_streams_differ_and_hashes_do_not_collide() -> None:
    index = torch.arange(200_000)
    hashes = [bits(index, seed=0, stream=stream) for stream in (Stream.ORDER, Stream.GENES)]
    assert len(torch.unique(torch.cat(hashes))) == 400_000
    assert key(0, 1) != key(1, 0)


@given(st.integers(1, 300), st.integers(0, 100), st.integers(0, 50))
def test_permutation_is_one(count: int, seed: int, epoch: int) -> None:
    order = permutation(count, seed=seed, stream=Stream.ORDER, epoch=epoch)
    assert torch.equal(order.sort().values, torch.arange(count))
    assert torch.equal(order, permutation(count, seed=seed, stream=Stream.ORDER, epoch=epoch))


def test_permutation_places_are_uniform() -> None:
    places = torch.stack([permutation(8, seed=s, stream=Stream.ORDER) for s in range(4000)])
    for at in range(8):
        assert stats.chisquare(torch.bincount(places[:, at], minlength=8).numpy()).pvalue > 1e-3

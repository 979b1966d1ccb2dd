"""Genetics against Algorithm 3 in plain Python, frequencies and invariants."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ukemi import T3, T6, Space
from ukemi.genetics import bred, elitism, first_population, packed, roulette, tournament, unpacked
from ukemi.genetics.breeding import TRIES
from ukemi.randomness import Stream, uniform


def slow_children(
    parents: list[list[int]], index: int, size: int, space: Space, seed: int, epoch: int, crossover: float, edge: float
) -> list[list[int]]:
    """Algorithm 3 as written, a sample at a time: draw until the set of children is full, ten more tries per child."""
    draws = uniform(torch.tensor([index]), size * (TRIES + 1), 8, seed=seed, stream=Stream.CHILDREN, epoch=epoch)[0]
    last = [int(code) for code in space.last_codes().tolist()]
    children: list[list[int]] = []
    for child in range(size):
        for turn in range(TRIES + 1):
            u = draws[child * (TRIES + 1) + turn].double().tolist()
            one = int(u[1] * len(parents))
            if u[0] < crossover:
                others = [at for at in range(len(parents)) if at != one] or [one]
                two = others[int(u[2] * len(others))]
                cut = 1 + int(u[3] * len(space))
                made = parents[one][:cut] + parents[two][cut:]
            else:
                gene = int(u[4] * len(space))
                value = min(int(u[5] * (last[gene] + 1)), last[gene])
                if u[6] < edge:
                    value = 0 if u[7] < 0.5 else last[gene]
                made = [*parents[one]]
                made[gene] = value
            if made not in children or turn == TRIES:
                children.append(made)
                break
    return children


@pytest.mark.parametrize("space", [T3, T6.continuous()])
@pytest.mark.parametrize(("crossover", "edge"), [(0.4, 0.0), (1.0, 0.0), (0.0, 0.5)])
def test_children_equal_the_slow_algorithm_over_generations(space: Space, crossover: float, edge: float) -> None:
    index = torch.tensor([3, 17, 40_000])
    population = first_population(index, 10, space, seed=5)
    alive = torch.tensor([10, 10, 10])
    for epoch in range(1, 6):
        children = bred(population, alive, index, 10, space, seed=5, epoch=epoch, crossover=crossover, edge=edge)
        for at in range(3):
            parents = population[at, : alive[at]].tolist()
            slow = slow_children(parents, int(index[at]), 10, space, 5, epoch, crossover, edge)
            assert children[at].tolist() == slow
        population, alive = children, torch.tensor([4, 1, 10])


@given(
    seed=st.integers(0, 1000),
    crossover=st.floats(0, 1),
    edge=st.floats(0, 1),
    size=st.integers(2, 12),
    generations=st.integers(1, 5),
)
def test_genes_stay_in_range_and_siblings_differ(
    seed: int, crossover: float, edge: float, size: int, generations: int
) -> None:
    index = torch.arange(7)
    codes = first_population(index, size, T6, seed=seed)
    for epoch in range(generations):
        alive = torch.full((7,), size if epoch == 0 else max(1, size // 2))
        codes = bred(codes, alive, index, size, T6, seed=seed, epoch=epoch, crossover=crossover, edge=edge)
        assert T6.contains(T6.decode(codes)).all() and codes.min() >= 0
        assert torch.equal(unpacked(packed(codes)), codes) and packed(codes).dtype == torch.int16
        if crossover < 0.5:
            assert all(len(torch.unique(row, dim=0)) == size for row in codes)


def test_children_do_not_depend_on_batch_or_order_and_touch_no_parent() -> None:
    index = torch.arange(20)
    parents = first_population(index, 10, T6, seed=1)
    before = parents.clone()
    alive = torch.full((20,), 4)
    whole = bred(parents, alive, index, 10, T6, seed=1, epoch=2)
    mixed = torch.randperm(20)
    part = bred(parents[mixed[:7]], alive[:7], index[mixed[:7]], 10, T6, seed=1, epoch=2)
    assert torch.equal(part, whole[mixed[:7]]) and torch.equal(parents, before)
    whole[0, 0] += 1
    assert torch.equal(parents, before)


def test_crossover_and_mutation_come_as_often_as_told() -> None:
    index = torch.arange(4000)
    codes = T6.encode(torch.stack([T6.clip(torch.full((7,), -1e6)), T6.clip(torch.full((7,), 1e6))]))
    parents = codes[None].expand(4000, -1, -1)
    children = bred(parents, torch.full((4000,), 2), index, 2, T6.continuous(), seed=0, epoch=1)[:, 0]
    low, high = codes
    ends = ((children == low) | (children == high)).all(1)
    # of the crossovers, the mutations that hit an end by chance are a few in 65,535
    assert abs(ends.double().mean().item() - 0.4) < 0.03


def test_the_first_population_holds_the_identity_where_asked() -> None:
    index = torch.arange(5)
    with_it = T6.decode(first_population(index, 10, T6, seed=0, identity=True))
    assert torch.equal(with_it[:, 0], T6.identity().expand(5, -1))
    without = first_population(index, 10, T6, seed=0)
    assert torch.equal(T6.encode(with_it)[:, 1:], without[:, 1:])


@given(st.lists(st.floats(-5, 5, width=32), min_size=10, max_size=10), st.integers(1, 9))
def test_elite_survivors_are_never_less_fit_than_the_discarded(values: list[float], keep: int) -> None:
    fitness = torch.tensor([values])
    kept = elitism(fitness, torch.tensor([0]), keep, seed=0, epoch=0)[0]
    lost = [at for at in range(10) if at not in kept.tolist()]
    assert len(set(kept.tolist())) == keep and fitness[0, kept].min() >= fitness[0, lost].max()
    assert kept.tolist() == sorted(range(10), key=lambda at: (-values[at], at))[:keep]


def test_roulette_draws_in_proportion() -> None:
    index = torch.arange(3000)
    weights = torch.tensor([1.0, 0.0, 3.0, 6.0])
    drawn = roulette(weights.expand(3000, -1), index, 10, seed=0, epoch=1)
    counts = torch.bincount(drawn.flatten(), minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]].numpy(), 30_000 * torch.tensor([0.1, 0.3, 0.6]).numpy()).pvalue > 1e-3
    shifted = roulette((weights - 2).expand(3000, -1), index, 10, seed=0, epoch=1)
    expected = 30_000 * torch.tensor([1, 3, 6]) / 10
    assert (
        stats.chisquare(torch.bincount(shifted.flatten(), minlength=4)[[0, 2, 3]].numpy(), expected.numpy()).pvalue
        > 1e-3
    )
    even = torch.bincount(roulette(torch.zeros(3000, 4), index, 10, seed=0, epoch=1).flatten(), minlength=4)
    assert stats.chisquare(even.numpy()).pvalue > 1e-3


def test_tournaments_are_won_as_often_as_combinatorics_says() -> None:
    index, fitness = torch.arange(3000), torch.tensor([0.3, 0.9, 0.1, 0.5, 0.7])
    drawn = tournament(fitness.expand(3000, -1), index, 10, seed=0, epoch=1)
    counts = torch.bincount(drawn.flatten(), minlength=5).double()
    # the one of rank r (0 is best) of 5 wins where none better was drawn, but itself was
    rank = fitness.argsort(descending=True).argsort().double()
    expected = 30_000 * (((5 - rank) / 5) ** 5 - ((4 - rank) / 5) ** 5)
    assert stats.chisquare(counts.numpy(), expected.numpy()).pvalue > 1e-3


def test_a_store_for_a_large_set_is_small() -> None:
    row = packed(first_population(torch.arange(1), 10, T6, seed=0))
    assert row.numel() * row.element_size() * 1_280_000 < 200e6

"""Genetics against Algorithm 3 in plain Python, frequencies and invariants."""

from operator import ne

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ukemi import T3, T6, Gene, Space, UserError
from ukemi.genetics import (
    Breeding,
    bred,
    elitism,
    first_population,
    operators,
    packed,
    roulette,
    tournament,
    unpacked,
)
from ukemi.genetics.breeding import TRIES
from ukemi.randomness import Stream, uniform

PAPER = Breeding()
STREAMS = {"choice": (Stream.CHILDREN, 3), "crossover": (Stream.CROSSOVER, 9), "mutation": (Stream.MUTATION, 28)}


def slow_children(
    parents: list[list[int]],
    index: int,
    size: int,
    space: Space,
    seed: int,
    epoch: int,
    how: Breeding = PAPER,
    calm: bool = True,
    coin: float | None = None,
) -> list[list[int]]:
    """Algorithm 3 as written, a sample at a time: draw until the set of children is full, ten more tries per child; the
    released code's operators where `how` names them."""
    sample, many = torch.tensor([index]), size * (TRIES + 1)
    u = {
        name: uniform(sample, many, count, seed=seed, stream=stream, epoch=epoch)[0].double().tolist()
        for name, (stream, count) in STREAMS.items()
    }
    last = [int(code) for code in space.last_codes().tolist()]
    children: list[list[int]] = []
    for child in range(size):
        for turn in range(TRIES + 1):
            at = child * (TRIES + 1) + turn
            operator, one_u, two_u = u["choice"][at]
            if how.parents == "random":
                one = int(one_u * len(parents))
                others = [other for other in range(len(parents)) if other != one] or [one]
                two = others[int(two_u * len(others))]
            else:
                one = 0
                two = max(range(len(parents)), key=lambda m: (sum(map(ne, parents[0], parents[m])), -m))
            if (operator if coin is None else coin) < how.rate:
                made = slow_crossover(parents[one], parents[two], u["crossover"][at], how)
            else:
                made = slow_mutation(parents[one], u["mutation"][at], space, last, how, calm)
            clipped = [min(max(code, 0), end) for code, end in zip(made, last, strict=True)]
            bad = (clipped != made and how.invalid == "redraw") or (how.apart and clipped in parents)
            if (clipped not in children and not bad) or turn == TRIES:
                children.append(clipped)
                break
    return children


def slow_crossover(one: list[int], two: list[int], u: list[float], how: Breeding) -> list[int]:
    if how.crossover is operators.uniform:
        mask = [value < 0.5 for value in u[: len(one)]]
        if len(set(mask)) == 1:
            turned = int(u[len(one)] * len(one))
            mask[turned] = not mask[turned]
        return [a if own else b for own, a, b in zip(mask, one, two, strict=True)]
    cut = 1 + int(u[0] * len(one)) if how.crossover is operators.one_point else int(u[0] * (len(one) + 1))
    return one[:cut] + two[cut:]


def slow_mutation(
    parent: list[int], u: list[float], space: Space, last: list[int], how: Breeding, calm: bool
) -> list[int]:
    made, length = [*parent], len(parent)
    if how.mutation is operators.redraw:
        gene = int(u[0] * length)
        made[gene] = min(int(u[1] * (last[gene] + 1)), last[gene])
        if u[2] < how.edge:
            made[gene] = 0 if u[3] < 0.5 else last[gene]
        return made
    identity = space.encode(space.identity()).tolist()
    chosen = sorted(range(length), key=lambda g: (u[g], g))[: (length + 1) // 2]
    for g in chosen:
        gene = space.genes[g]
        step = max(1, round(last[g] * operators.STEPS[gene.name] / (gene.high - gene.low)))
        step *= 2 if calm and gene.name in ("rotation", "shear") else 1
        move = u[length + g]
        made[g] = (
            parent[g] + step if move < 1 / 3 else parent[g] - step if move < 2 / 3 else 2 * identity[g] - parent[g]
        )
        if u[2 * length + g] < how.edge:
            made[g] = 0 if u[3 * length + g] < 0.5 else last[g]
    return made


WAYS = {
    "paper": Breeding(),
    "crossover only": Breeding(rate=1.0),
    "edge": Breeding(rate=0.0, edge=0.5),
    "augmentation": Breeding(crossover=operators.one_point_or_none),
    "released": Breeding(
        crossover=operators.uniform, mutation=operators.step, parents="fittest", invalid="clip", apart=True
    ),
    "step, drawn again": Breeding(mutation=operators.step, rate=0.2, edge=0.1),
    "apart": Breeding(apart=True, edge=0.3),
}


@pytest.mark.parametrize("space", [T3, T6.continuous()])
@pytest.mark.parametrize("way", WAYS)
def test_children_equal_the_slow_algorithm_over_generations(space: Space, way: str) -> None:
    index, how = torch.tensor([3, 17, 40_000]), WAYS[way]
    population = first_population(index, 10, space, seed=5)
    alive, fitness = torch.tensor([10, 10, 10]), torch.tensor([0.0, 5e-4, 0.3])
    coin = torch.tensor([0.7]) if way == "released" else None
    for epoch in range(1, 6):
        children = bred(population, alive, index, 10, space, seed=5, epoch=epoch, how=how, fitness_N=fitness, coin=coin)
        for at in range(3):
            parents = population[at, : alive[at]].tolist()
            thrown = None if coin is None else float(coin)
            slow = slow_children(parents, int(index[at]), 10, space, 5, epoch, how, at < 2, thrown)
            assert children[at].tolist() == slow
        population, alive = children, torch.tensor([4, 1, 10])
        coin = None if coin is None else torch.tensor([0.1 * epoch])


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
        codes = bred(codes, alive, index, size, T6, seed=seed, epoch=epoch, how=Breeding(rate=crossover, edge=edge))
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


@given(st.floats(0.01, 0.99), st.booleans())
def test_the_identity_of_any_space_is_the_identity_or_refused(share: float, discrete: bool) -> None:
    space = Space((Gene("own", 0, 1, share, 1 / 8, kernel=lambda images, values: images),), discrete=discrete)
    if discrete and share * 8 % 1:
        with pytest.raises(UserError, match=r"augmenter\.identity: own changes nothing at .*, which is none of its"):
            first_population(torch.arange(2), 3, space, seed=0, identity=True)
        first_population(torch.arange(2), 3, space, seed=0)
        return
    first = first_population(torch.arange(2), 3, space, seed=0, identity=True)
    assert torch.equal(space.decode(first)[:, 0], space.identity().expand(2, -1))


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
    above = roulette(torch.tensor([2.0, 3.0, 5.0]).expand(3000, -1), index, 10, seed=0, epoch=1)  # shifted by nothing
    counts = torch.bincount(above.flatten(), minlength=3)
    assert stats.chisquare(counts.numpy(), 30_000 * torch.tensor([0.2, 0.3, 0.5]).numpy()).pvalue > 1e-3
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


def test_the_released_grid_is_dealt_from_one_deck() -> None:
    index = torch.arange(27)
    dealt = first_population(index, 9, T3, seed=3, first="grid")
    cards = {tuple(card) for card in dealt.flatten(0, 1).tolist()}
    assert len(cards) == 81  # 27 x 9 cards from a deck of 81: all of them, three times
    genes = T3.decode(dealt).flatten(0, 1)
    assert torch.equal(genes[:, 0].unique(), torch.tensor([-18.0, 0.0, 18.0]))
    assert genes[:, 3].unique().tolist() == pytest.approx([-0.06, 0, 0.06])
    assert genes[:, 1].abs().max().item() == pytest.approx(0.2 / 3)
    assert torch.equal(first_population(index[5:6], 9, T3, seed=3, first="grid"), dealt[5:6])
    with_it = first_population(index, 10, T6, seed=3, first="grid", identity=True)
    assert torch.equal(T6.decode(with_it[:, 0]), T6.identity().expand(27, -1))


def test_uniform_crossover_always_mixes_and_takes_each_gene_evenly() -> None:
    index = torch.arange(3000)
    parents = torch.stack([torch.zeros(4), torch.full((4,), 6.0)]).int().expand(3000, -1, -1)
    how = Breeding(rate=1.0, crossover=operators.uniform)
    children = bred(parents, torch.full((3000,), 2), index, 1, T3, seed=0, epoch=1, how=how)[:, 0]
    own = children == 0
    assert own.any(1).all() and (~own).any(1).all()
    assert (own.double().mean(0) - 0.5).abs().max() < 0.04


def test_a_child_apart_differs_from_every_living_parent() -> None:
    index = torch.arange(50)
    parents = first_population(index, 4, T6, seed=1)
    how = Breeding(rate=1.0, apart=True)
    children = bred(parents, torch.full((50,), 4), index, 6, T6, seed=1, epoch=1, how=how)
    same = (children[:, :, None] == parents[:, None]).all(-1).any(-1)
    assert same.double().mean() < 0.01  # only where ten tries in a row gave a copy


def test_roulette_takes_the_infinite_and_never_minus_infinity() -> None:
    index, inf = torch.arange(500), torch.inf
    for row, wanted in (
        ([1.0, inf, 3.0, inf, 2.0], {1, 3}),
        ([1.0, -inf, 3.0, -inf, 2.0], {0, 2, 4}),
        ([-inf, -inf, inf], {2}),
        ([-inf, -inf, -inf], {0, 1, 2}),
    ):
        drawn = roulette(torch.tensor(row).expand(500, -1), index, 4, seed=0, epoch=1)
        counts = torch.bincount(drawn.flatten(), minlength=len(row))
        assert {at for at, count in enumerate(counts.tolist()) if count} == wanted
        share = counts[sorted(wanted)] / 2000
        assert (share - 1 / len(wanted)).abs().max() < 0.05

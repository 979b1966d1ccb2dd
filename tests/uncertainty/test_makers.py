"""How individuals come to be: who lives on, who are parents, what is drawn; pixels and natural variations alike."""

import pytest
import torch
from torch import Tensor

from ukemi import T3
from ukemi.data import Data
from ukemi.uncertainty import SearchSettings, natural
from ukemi.uncertainty.generation import MakerOf, PixelMaker
from ukemi.uncertainty.pixels import rows_of


@pytest.fixture(scope="module")
def seeds(recognised: Data) -> Data:
    return recognised.take(torch.arange(6))


def _rows(data: Data) -> tuple[Tensor, Tensor, Tensor]:
    batch = data.batch(torch.arange(len(data)), "cpu")
    return batch.images, batch.labels, batch.index


def test_the_fittest_live_on_unchanged(seeds: Data) -> None:
    images, _, index = _rows(seeds)
    fitness = torch.rand(6, 10, generator=torch.Generator().manual_seed(0)).double()
    settings = SearchSettings(population=10, elite=3, epsilon=0.1, climbers=2)
    for made in (PixelMaker, natural(T3)):
        maker = made(images, index, settings, 0)
        codes = maker.first(10)
        best = rows_of(codes, fitness.argsort(1, descending=True)[:, :3])
        children = maker.children(codes, fitness, 1, torch.ones_like)
        assert children.shape == codes.shape and torch.equal(children[:, :3], best)
        assert not any(torch.equal(children[:, at], codes[:, at]) for at in range(3, 10))


@pytest.mark.parametrize("made", [PixelMaker, natural(T3)])
def test_every_generation_chooses_its_parents_anew(made: MakerOf, seeds: Data) -> None:
    images, _, index = _rows(seeds)
    fitness = torch.rand(6, 10, generator=torch.Generator().manual_seed(0)).double()
    # of pixels a child is then its first parent
    maker = made(images, index, SearchSettings(population=10, elite=0, climbers=0, exchange=0, mutation=0), 0)
    first, again, later = (maker.children(maker.first(10), fitness, at, torch.ones_like) for at in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, later)


@pytest.mark.parametrize("made", [PixelMaker, natural(T3)])
# of pixels: all that is drawn, the tournaments alone, the mutations alone
@pytest.mark.parametrize("told", [{}, {"exchange": 0, "mutation": 0}, {"exchange": 0, "tournament": 200}])
def test_another_seed_draws_other_individuals_and_children(made: MakerOf, told: dict[str, float], seeds: Data) -> None:
    images, _, index = _rows(seeds)
    fitness = torch.rand(6, 10, generator=torch.Generator().manual_seed(0)).double()
    settings = SearchSettings(population=10, elite=0, climbers=0, epsilon=0.1, **told)  # type: ignore[arg-type]
    one, two = (made(images, index, settings, seed) for seed in (0, 1))
    codes = one.first(10)
    assert not torch.equal(codes, two.first(10))
    assert not torch.equal(*(maker.children(codes, fitness, 1, torch.ones_like) for maker in (one, two)))


@pytest.mark.parametrize("made", [PixelMaker, natural(T3)])
def test_any_number_of_elites_leaves_the_population_as_large(made: MakerOf, seeds: Data) -> None:
    images, _, index = _rows(seeds)
    fitness = torch.rand(6, 8, generator=torch.Generator().manual_seed(0)).double()
    maker = made(images, index, SearchSettings(population=8, elite=7, epsilon=0.1), 0)
    codes = maker.first(8)
    assert maker.children(codes, fitness, 1, torch.ones_like).shape == codes.shape


def test_a_child_has_two_parents_that_won_tournaments(seeds: Data) -> None:
    images, _, index = _rows(seeds)
    fitness = torch.rand(6, 10, generator=torch.Generator().manual_seed(0)).double()
    told = {"population": 10, "elite": 0, "climbers": 0, "mutation": 0, "tournament": 2, "epsilon": 0.1}
    first, second, both = (
        maker.children(maker.first(10), fitness, 1, torch.ones_like)
        for maker in (PixelMaker(images, index, SearchSettings(**told, exchange=share), 0) for share in (0, 1, 0.5))
    )
    codes = PixelMaker(images, index, SearchSettings(**told), 0).first(10)
    for parents in (first, second):
        numbers = (parents[:, :, None] == codes[:, None]).flatten(3).all(3).long().argmax(2)
        assert torch.equal(rows_of(codes, numbers), parents)
        assert float(fitness.gather(1, numbers).mean()) > float(fitness.mean()) + 0.05
    hard = PixelMaker(images, index, SearchSettings(**told | {"tournament": 200}, exchange=0), 0)
    best = rows_of(codes, fitness.argmax(1, keepdim=True).expand(6, 10))
    assert torch.equal(hard.children(codes, fitness, 1, torch.ones_like), best)
    assert torch.equal(both, torch.where(both == first, first, second))
    mixed = (both != first).flatten(2).any(2) & (both != second).flatten(2).any(2)
    assert torch.equal(mixed, (first != second).flatten(2).any(2)) and int(mixed.sum()) > 40


@pytest.mark.parametrize("made", [PixelMaker, natural(T3)])
def test_how_often_an_end_is_drawn_can_be_said(made: MakerOf, seeds: Data) -> None:
    images, _, index = _rows(seeds)
    codes = made(images, index, SearchSettings(), 0).first(20)
    shares = []
    for edge in (0.0, 0.99):
        settings = SearchSettings(epsilon=0.1, edge=edge, mutation=1.0, climbers=0)
        child = made(images, index, settings, 0).children(codes, torch.zeros(6, 20).double(), 1, torch.ones_like)[:, 5:]
        ends = (child == child.amax((0, 1))) | (child == child.amin((0, 1)))
        fresh = (child[:, :, None] != codes[:, None]).all(2)
        shares.append(float((ends & fresh).double().mean()))
    assert shares[0] < 0.3 * shares[1]


@pytest.mark.parametrize(("made", "edge"), [(PixelMaker, 0.9), (natural(T3), 0.5)])
def test_how_often_an_end_is_drawn_where_nothing_is_said(made: MakerOf, edge: float, seeds: Data) -> None:
    images, _, index = _rows(seeds)
    usual, said = (made(images, index, SearchSettings(edge=given), 0) for given in (None, edge))
    codes, fitness = usual.first(20), torch.rand(6, 20, generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(codes, said.first(20))
    children = [maker.children(codes, fitness, 1, torch.ones_like) for maker in (usual, said)]
    assert torch.equal(*children)


def test_natural_variations_are_children_of_the_better_ones(seeds: Data) -> None:
    """As many as 0.4 of a generation; their genes are the parents' where they are not drawn anew."""
    images, _, index = _rows(seeds)
    maker = natural(T3)(images, index, SearchSettings(elite=0), 0)
    codes = maker.first(10)
    fitness = torch.arange(10.0).flip(0).double().expand(6, 10)
    children = maker.children(codes, fitness, 1, torch.ones_like)
    worse = codes.clone()
    worse[:, 4:] = codes[:, :1]  # those who have no children
    assert torch.equal(maker.children(worse, fitness, 1, torch.ones_like), children)
    worse[:, 3] = codes[:, 0]
    assert not torch.equal(maker.children(worse, fitness, 1, torch.ones_like), children)
    assert not (children[:, :, None] == codes[:, None, :4]).all(-1).any()  # none is a parent again
    few, worse = codes[:, :3], codes[:, [0, 0, 2]]  # of three still two have children
    pair = (maker.children(some, fitness[:, :3], 1, torch.ones_like) for some in (few, worse))
    assert not torch.equal(*pair)

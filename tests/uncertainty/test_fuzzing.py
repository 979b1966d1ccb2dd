"""Both fuzzers: what they call new, what they keep, and that a seed repeats itself."""

import pytest
import torch
from torch import Tensor, nn

from ukemi import T6, UserError, vary
from ukemi.activations import sections
from ukemi.data import Data, DataSet
from ukemi.uncertainty import GUIDES, FuzzSettings, fuzz
from ukemi.uncertainty.fuzzing import Distances, Sections

FEW = FuzzSettings(rounds=6, batch=10, mutants=4)


class Pass(nn.Module):
    """Two neurons that show two pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x.flatten(1)[:, :2])


def pixels(rows: list[list[float]]) -> Data:
    images = torch.zeros(len(rows), 1, 2, 2)
    images.flatten(1)[:, :2] = torch.tensor(rows)
    return Data(images, torch.zeros(len(rows)).long(), ("a", "b"), torch.arange(len(rows)), len(rows))


def test_sections_are_new_once() -> None:
    guide = Sections(Pass(), pixels([[0.0, 0.0], [1.0, 1.0]]), 4)
    values = torch.tensor([[0.1, 0.1], [0.1, 0.6], [0.2, 0.7]])
    assert guide.novel(values).tolist() == [True, True, True]  # all judged by what was there before
    assert guide.novel(values).tolist() == [False, False, False]
    assert guide.novel(torch.tensor([[0.1, 0.9], [2.0, 0.1]])).tolist() == [True, False]  # outside is not counted
    hit = {(unit, int(sections(torch.tensor([[v]]), torch.zeros(1), torch.ones(1), 4))) for unit, v in
           ((0, 0.1), (1, 0.1), (1, 0.6), (1, 0.9))}  # fmt: skip
    assert guide.coverage() == pytest.approx(len(hit) / 8)


def test_distances_are_to_the_nearest_seen() -> None:
    reference = pixels([[0.0, 0.0], [0.3, 0.0], [0.3, 0.4], [1.0, 1.0]])
    guide = Distances(Pass(), reference)
    # nearest neighbours: 0.3, 0.3, 0.4 and sqrt(0.85); torch's median of four is the lower middle
    assert guide.threshold == pytest.approx(0.3)
    assert guide.novel(torch.tensor([[0.0, 0.0]])).tolist() == [True]
    assert guide.novel(torch.tensor([[0.0, 0.29], [0.0, 0.31]])).tolist() == [False, True]
    assert guide.novel(torch.tensor([[0.0, 0.5]])).tolist() == [False]
    assert guide.coverage() == 2
    assert Distances(Pass(), reference, 5.0).threshold == 5


@pytest.mark.parametrize("name", GUIDES)
def test_what_is_kept_is_wrong_or_new(name: str, dropping: nn.Module, recognised: Data, fashion: DataSet) -> None:
    reference = fashion.train.take(torch.arange(200))
    found = fuzz(dropping, recognised, GUIDES[name](dropping, reference), FEW, seed=1)
    assert found.turned.any() and not found.turned.all() and len(found.coverage) == 6 and found.evaluations == 240
    assert list(found.coverage) == sorted(found.coverage)
    with torch.no_grad():
        wrong = dropping(found.images).argmax(1) != found.labels
    assert torch.equal(wrong, found.turned)
    place = {int(identity): at for at, identity in enumerate(recognised.index)}
    rows = torch.tensor([place[int(identity)] for identity in found.index])
    origin = recognised.batch(rows, "cpu")
    assert torch.equal(origin.labels, found.labels) and T6.contains(found.genes).all()
    assert torch.allclose(vary(origin.images, found.genes, T6), found.images)
    assert torch.allclose((found.images - origin.images).flatten(1).abs().amax(1), found.distance)
    data = found.as_data(recognised)
    assert len(data) == int(found.turned.sum()) and data.classes == recognised.classes
    assert len(found.as_data(recognised, turned=False)) == len(found.images)


def test_a_seed_repeats_itself_and_another_differs(dropping: nn.Module, recognised: Data) -> None:
    heard: list[tuple[int, int]] = []
    runs = [
        fuzz(dropping, recognised, Distances(dropping, recognised), FEW, seed=seed,
             report=lambda done, total: heard.append((done, total)))
        for seed in (3, 3, 4)
    ]  # fmt: skip
    assert torch.equal(runs[0].images, runs[1].images) and not torch.equal(runs[0].genes, runs[2].genes)
    assert heard[5] == (6, 6)


def test_a_small_corpus_is_picked_from_more_than_once(dropping: nn.Module, recognised: Data) -> None:
    one = recognised.take(torch.arange(1))
    found = fuzz(dropping, one, Sections(dropping, recognised), FEW)
    assert set(found.index.tolist()) == {int(one.index[0])} and len(found.images) > 3


def test_nothing_recognised_is_an_error(recognised: Data) -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(x.flatten(1)[:, :10]) * torch.nan

    with pytest.raises(UserError, match="recognises none of the images"):
        fuzz(Wrong(), recognised, Sections(Wrong(), recognised), FEW)

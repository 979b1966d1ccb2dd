"""Both fuzzers: what they call new, what they keep, and that a seed repeats itself."""

import pytest
import torch
from torch import Tensor, nn

from ukemi import T6, UserError, vary
from ukemi.activations import sections
from ukemi.data import Data, DataSet
from ukemi.uncertainty import GUIDES, FuzzSettings, fuzz
from ukemi.uncertainty.fuzzing import Distances, Sections, _Corpus

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
    usual = Sections(Pass(), pixels([[0.0, 0.0], [1.0, 1.0]]))
    assert usual.novel(torch.tensor([[0.5, 0.5]])).tolist() == [True] and usual.coverage() == 2 / 200


def test_ranges_are_those_of_all_reference_images() -> None:
    """More than are read at a time."""
    guide = Sections(Pass(), pixels([[float(at), 0.0] for at in range(600)]), 4)
    new = [guide.novel(torch.tensor([[value, 0.0]])).tolist() for value in (0.0, 599.0, 600.0)]
    assert new == [[True], [True], [False]] and guide.coverage() == 3 / 8  # the second neuron has one value


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


def test_distances_are_those_of_the_last_layer(recognised: Data) -> None:
    net = Tokens("images")  # two layers of four neurons
    guide, values = Distances(net, recognised, 0.1), torch.zeros(3, 8)
    values[1, 0], values[2, 7] = 1, 1
    assert [guide.novel(row[None]).tolist() for row in values] == [[True], [False], [True]]


def test_no_activation_is_its_own_nearest_neighbour() -> None:
    """More than are measured at a time."""
    rows = [[float(at), 0.0] for at in range(600)]
    assert Distances(Pass(), pixels(rows)).threshold == 1


@pytest.mark.parametrize("name", GUIDES)
def test_what_is_kept_is_wrong_or_new(name: str, dropping: nn.Module, recognised: Data, fashion: DataSet) -> None:
    images = fashion.test.take(torch.arange(200))  # some of them are not recognised, so nothing comes from these
    reference = fashion.train.take(torch.arange(200))
    found = fuzz(dropping, images, GUIDES[name](dropping, reference), FEW, seed=1)
    assert found.turned.any() and not found.turned.all() and len(found.coverage) == 6 and found.evaluations == 240
    assert list(found.coverage) == sorted(found.coverage)
    with torch.no_grad():
        wrong = dropping(found.images).argmax(1) != found.labels
    assert torch.equal(wrong, found.turned)
    assert len(recognised) < len(images) and torch.isin(found.index, recognised.index).all()
    place = {int(identity): at for at, identity in enumerate(recognised.index)}
    rows = torch.tensor([place[int(identity)] for identity in found.index])
    origin = recognised.batch(rows, "cpu")
    assert torch.equal(origin.labels, found.labels) and T6.contains(found.genes).all()
    assert torch.allclose(vary(origin.images, found.genes, T6), found.images)
    assert torch.allclose((found.images - origin.images).flatten(1).abs().amax(1), found.distance)
    data = found.as_data(images)
    assert len(data) == int(found.turned.sum()) and data.classes == recognised.classes
    assert len(found.as_data(images, turned=False)) == len(found.images)


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


def test_newcomers_are_picked_first_and_each_mutates_its_own_chromosome() -> None:
    corpus, codes = _Corpus(T6, 3, torch.device("cpu")), T6.encode(T6.sample(torch.arange(2), seed=5)[:, 0])
    corpus.mutants(3, 1, 0, 0)  # each of the others once
    corpus.add(torch.tensor([2, 0]), codes)
    roots, made = corpus.mutants(2, 5, 0, 1)
    assert sorted(roots.tolist()) == [0] * 5 + [2] * 5
    for root, own in zip((2, 0), codes, strict=True):
        assert int((made[roots == root] != own).sum(1).max()) == 1


def test_seed_and_round_change_who_is_picked_and_what_is_drawn() -> None:
    def picked(seed: int, number: int) -> Tensor:
        return _Corpus(T6, 30, torch.device("cpu")).mutants(5, 1, seed, number)[0]

    def drawn(seed: int, number: int) -> Tensor:
        return _Corpus(T6, 1, torch.device("cpu")).mutants(1, 4, seed, number)[1]

    for draw in (picked, drawn):
        assert torch.equal(draw(0, 0), draw(0, 0))
        assert not any(torch.equal(draw(0, 0), other) for other in (draw(1, 0), draw(0, 1)))


def test_what_is_picked_twice_in_a_round_has_its_turn_later() -> None:
    """Of three entries four are picked: the next round begins with the two that were picked once."""
    corpus = _Corpus(T6, 3, torch.device("cpu"))
    first, second = (corpus.mutants(4, 1, 0, number)[0] for number in range(2))
    assert first.tolist().count(int(first[0])) == 2
    assert set(second[:2].tolist()) == {0, 1, 2} - {int(first[0])}


def test_one_image_has_no_neighbour() -> None:
    """A limit without end would call nothing new."""
    one = pixels([[0.0, 0.0]])
    with pytest.raises(UserError, match="activations: how far neighbours lie apart takes at least 2 images"):
        Distances(Pass(), one)
    assert Distances(Pass(), one, 0.5).threshold == 0.5


def test_of_no_images_nothing_is_kept_and_nothing_is_a_guide(dropping: nn.Module, recognised: Data) -> None:
    none = recognised.take(torch.arange(0))
    assert len(fuzz(dropping, none, Sections(dropping, recognised), FEW).images) == 0
    for name in GUIDES:
        with pytest.raises(UserError, match="activations: there is no image to read them of"):
            GUIDES[name](dropping, none)


def test_of_nothing_recognised_nothing_is_kept(recognised: Data) -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(x.flatten(1)[:, :10]) * torch.nan

    found = fuzz(Wrong(), recognised, Sections(Wrong(), recognised), FEW)
    assert len(found.as_data(recognised, turned=False)) == found.evaluations == 0 and found.coverage == ()
    assert found.images.shape == (0, 1, 28, 28) and found.genes.shape == (0, len(T6))


class Tokens(nn.Module):
    """Four neurons whose rows are patches, tokens before images, or images."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.relu, self.late = kind, nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        tokens = x[:, 0, :8, :4]
        if self.kind == "patches":
            seen = self.relu(tokens.reshape(-1, 4)).view(-1, 8, 4).mean(1)
        elif self.kind == "tokens first":
            seen = self.relu(tokens.transpose(0, 1)).mean(0)
        else:
            seen = self.relu(tokens).mean(1)
        return self.late(seen)


@pytest.mark.parametrize("name", GUIDES)
def test_layers_that_give_no_row_per_image_are_named(name: str, recognised: Data) -> None:
    for kind, rows in (("patches", "2048, 256"), ("tokens first", "8, 256")):
        with pytest.raises(UserError, match=f"one row per image .*, but 256 images gave {rows} rows"):
            GUIDES[name](Tokens(kind), recognised)
        with pytest.raises(UserError, match=f"256 images gave {rows} rows"):
            fuzz(Tokens(kind), told(recognised, Tokens(kind)), Noting(), FEW)
    fuzz(Tokens("images"), told(recognised, Tokens("images")), GUIDES[name](Tokens("images"), recognised), FEW)


def told(data: Data, model: nn.Module) -> Data:
    """The data with the labels that the model gives."""
    images = data.batch(torch.arange(len(data)), "cpu").images
    return Data(images, model(images).argmax(1), data.classes, data.index, data.identities)


class Noting:
    """A guide to which every other input is new."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def novel(self, values_MU: Tensor) -> Tensor:
        self.seen.append(values_MU)
        return torch.arange(len(values_MU)) % 2 == 0

    def coverage(self) -> float:
        return 0.0


def test_only_what_is_recognised_breeds_and_the_unchanged_images_are_seen_first(
    dropping: nn.Module, recognised: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[Tensor] = []
    monkeypatch.setattr(_Corpus, "add", lambda corpus, roots, codes: added.append(T6.decode(codes)))
    guide = Noting()
    found = fuzz(dropping, recognised, guide, FEW)
    assert found.turned.any() and torch.equal(torch.cat(added), found.genes[~found.turned])
    assert [len(values) for values in guide.seen] == [len(recognised)] + [FEW.batch * FEW.mutants] * FEW.rounds


def test_the_corpus_is_picked_from_evenly_and_mutates_one_gene_anew_every_round() -> None:
    corpus, none = _Corpus(T6, 6, torch.device("cpu")), T6.encode(T6.identity())
    picked = [corpus.mutants(2, 3, 0, number) for number in range(3)]
    assert sorted(torch.cat([roots for roots, _ in picked]).tolist()) == sorted([*range(6)] * 3)
    assert all(int((codes != none).sum(1).max()) == 1 for _, codes in picked)
    alone = [_Corpus(T6, 1, torch.device("cpu")).mutants(1, 4, 0, number)[1] for number in (0, 0, 1)]
    assert torch.equal(alone[0], alone[1]) and not torch.equal(alone[0], alone[2])
    assert len(alone[0].unique(dim=0)) == 4


def test_a_full_store_finds_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ukemi.uncertainty.fuzzing.MOST_SEEN", 2)
    guide = Distances(Pass(), pixels([[0.0, 0.0], [1.0, 1.0]]), 0.1)
    assert guide.novel(torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.9, 0.0]])).tolist() == [True, True, True]
    assert guide.novel(torch.tensor([[0.0, 0.9]])).tolist() == [False] and guide.coverage() == 2

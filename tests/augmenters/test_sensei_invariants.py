"""What must hold of every search in the family, whatever its settings."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, Gene, Sensei, Space, UserError, WorstOf, vary
from ukemi.augmenters import PRESETS
from ukemi.data import DataSet
from ukemi.fitness import NeuronCoverage, Scored
from ukemi.genetics import elitism, unpacked
from ukemi.randomness import Stream, uniform
from ukemi.training import TrainConfig

sys.path.insert(0, str(Path(__file__).parent))
from test_sensei import rows


def test_what_is_capped_is_capped_ahead_too(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model, data = tiny_net.double(), replace(fashion.train.take(index), images=images)
    now, ahead = (
        Sensei(T3, samples=8, settings="sensei-released", cap=1, seed=2, when=when) for when in ("batch", "epoch")
    )
    ahead.begin_epoch(model, data, 0)
    assert torch.equal(ahead(model, images, labels, index, 0), now(model, images, labels, index, 0))


def test_rows_that_fill_a_shape_do_not_count_as_mistaken(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    sensei = Sensei(T3, samples=8, settings="sensei-released", skip="loss")
    store = sensei._stored(index.device)
    store.coming.copy_(index == 3)
    sensei._turn(store, 0)
    sensei.planned = 8
    sensei(tiny_net.double(), images, labels, index, 0)
    assert int(sensei.state_dict()["mistaken"].sum()) <= 1
    assert sensei.state_dict()["begun"].tolist() == [at == 3 for at in range(8)]


def test_searching_some_samples_leaves_the_rows_of_others_alone(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model = tiny_net.double()
    sensei = Sensei(T3, samples=8, settings="ukemi", skip="loss", threshold=2.38)
    for epoch in (1, 2):
        sensei(model, images, labels, index, epoch)
    before = {name: tensor.clone() for name, tensor in sensei.state_dict().items()}
    sensei(model, images[2:4], labels[2:4], index[2:4], 3)
    others = [0, 1, 4, 5, 6, 7]
    for name in ("parents", "begun", "fitness", "worst", "coming", "waiting"):
        assert torch.equal(sensei.state_dict()[name][others], before[name][others]), name


class Spy(nn.Module):
    """A linear model that keeps what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(784, 10).double()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.clone())
        return self.head(x.flatten(1))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_trained_tensor_is_the_scored_tensor_of_highest_loss(preset: str, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model, data = Spy(), replace(fashion.train.take(index), images=images)
    fitness = {"fitness": "cross-entropy"} if preset == "sensei-released" else {}
    sensei = Sensei(T3, samples=8, settings=preset, flips=True, cap=0, **fitness)
    for epoch in (1, 2):
        model.seen.clear()
        sensei.begin_epoch(model, data, epoch)
        found = sensei(model, images, labels, index, epoch)
        of_each = torch.cat([part.unflatten(0, (8, -1)) for part in model.seen], 1)
        scored = of_each[:, :10]  # the unchanged image, where it is scored, comes behind them
        assert of_each.shape[1] == 10 + sensei.skips
        with torch.no_grad():
            logits = model.head(scored.flatten(2)).float()
        losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels.repeat_interleave(10), reduction="none")
        assert torch.equal(found, scored[torch.arange(8), losses.view(8, 10).argmax(1)])


def test_where_a_pair_of_classes_is_used_up_the_second_worst_scored_tensor_is_trained(fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model, labels = Spy(), torch.zeros_like(labels)
    sensei = Sensei(T3, samples=8, settings="sensei-released", fitness="cross-entropy", cap=1, flips=True)
    found = sensei(model, images, labels, index, 0)
    scored = torch.cat([part.unflatten(0, (8, -1)) for part in model.seen], 1)
    with torch.no_grad():
        logits = model.head(scored.flatten(2)).float()
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels.repeat_interleave(10), reduction="none")
    best, second = losses.view(8, 10).argsort(dim=1, descending=True, stable=True)[:, :2].T
    said = logits[torch.arange(8), best].argmax(1).tolist()
    over = torch.tensor([said[at] != 0 and said[:at].count(said[at]) > 1 for at in range(8)])
    assert over.any() and not over.all()
    assert torch.equal(found, scored[torch.arange(8), torch.where(over, second, best)])


def test_a_fitness_of_minus_infinity_still_trains_a_scored_tensor(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    sensei = Sensei(T3, samples=8, flips=True, fitness=lambda scored: torch.full((len(scored.labels),), -torch.inf))
    found = sensei(tiny_net.double(), images, labels, index, 1)
    assert sensei.genes is not None
    assert torch.equal(found, sensei.flipped(vary(images, sensei.genes, T3), index, 1))


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "augmentation"])
def test_the_order_of_batches_matters_to_the_released_search_alone(preset: str, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).double()
    ends = []
    for parts in ([index], [index[4:], index[:4]]):
        sensei = Sensei(T3, samples=8, settings=preset)
        for epoch in range(6):
            for part in parts:
                found = sensei(model, images[part], labels[part], part, epoch)
                sensei.observe(part, model(found).detach(), labels[part])
        ends.append(sensei.state_dict()["parents"])
    assert torch.equal(*ends) == (preset != "sensei-released")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_state_taken_after_generations_goes_on_alike(preset: str, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).double()
    data = replace(fashion.train.take(index), images=images)
    first, second = (Sensei(T3, samples=8, settings=preset, threshold=2.3) for _ in range(2))

    def epoch(sensei: Sensei, number: int) -> Tensor:
        sensei.begin_epoch(model, data, number)
        found = sensei(model, images, labels, index, number)
        sensei.observe(index, model(found).detach(), labels)
        return found

    for number in range(3):
        epoch(first, number)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    for number in range(3, 6):
        assert torch.equal(epoch(first, number), epoch(second, number))
    fresh = Sensei(T3, samples=8, settings=preset, threshold=2.3)
    if preset != "sensei-sa":  # which may skip everyone
        assert not torch.equal(epoch(fresh, 6), epoch(first, 6))


def test_loading_copies_and_refuses_before_it_changes_anything() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    batch = torch.rand(4, 1, 6, 6), torch.zeros(4).long(), torch.arange(4)
    one, two = (Sensei(T3, samples=4, settings="sensei-released") for _ in range(2))
    one(model, *batch, 1)
    two.load_state_dict(one.state_dict())
    one(model, *batch, 1)
    assert two.state_dict()["batch"].tolist() == [1] and one.state_dict()["batch"].tolist() == [2]
    for other, said in (
        (Sensei(T3.continuous(), samples=4, settings="sensei-released"), "another space"),
        (Sensei(T3, samples=5, settings="sensei-released"), "5 samples, but the state has 4"),
        (Sensei(T3, samples=4, settings="sensei-released", skip="loss"), "worst should be .* absent"),
    ):
        with pytest.raises(UserError, match=said):
            other.load_state_dict(one.state_dict())
        assert other.state_dict() == {}
    two.load_state_dict({})
    assert two.state_dict() == {}


def test_begin_epoch_twice_turns_the_flags_once(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    data, model = replace(fashion.train.take(index), images=images), tiny_net.double()
    sensei = Sensei(T3, samples=8, settings="sensei-sa", threshold=100.0)
    sensei.begin_epoch(model, data, 1)
    sensei(model, images[:4], labels[:4], index[:4], 1)  # robust, so skipped in the next epoch, not yet in this one
    sensei.begin_epoch(model, data, 1)
    assert sensei.state_dict()["active"].all() and not sensei.state_dict()["coming"][:4].any()


def test_a_search_begun_in_inference_mode_goes_on_outside(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    sensei = Sensei(T3, samples=8)
    with torch.inference_mode():
        sensei(tiny_net.double(), images, labels, index, 1)
    sensei(tiny_net, images, labels, index, 2)
    assert sensei.state_dict()["begun"].all()


def test_a_selection_of_ones_own_keeps_the_share() -> None:
    assert Sensei(T3, selection=elitism).survivors == Sensei(T3, selection="ukemi.genetics:elitism").survivors == 4
    assert Sensei(T3, settings="ukemi", selection=elitism).survivors == 4
    assert Sensei(T3, selection="roulette").survivors == 10


@dataclass
class Power:
    """A fitness with a setting."""

    power: float

    def __call__(self, scored: Scored) -> Tensor:
        return scored.logits[:, 0] ** self.power


def two_arguments(scored: Scored, more: int) -> Tensor:
    return scored.logits[:, 0]


def few(fitness_NK: Tensor, index_N: Tensor, keep: int, *, seed: int, epoch: int) -> Tensor:
    return fitness_NK[:, :1].long()


def far(fitness_NK: Tensor, index_N: Tensor, keep: int, *, seed: int, epoch: int) -> Tensor:
    return torch.full((len(index_N), keep), 99)


def no_key(fitness_NK: Tensor) -> Tensor:
    return fitness_NK.long()


def flat(parents_NPG: Tensor, *rest: Any) -> Tensor:
    return parents_NPG.flatten()


def nan(parents_NPG: Tensor, *rest: Any) -> Tensor:
    return parents_NPG * float("nan")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fitness": two_arguments}, r"fitness: two_arguments failed \(TypeError"),
        ({"selection": few}, r"augmenter\.selection: whole numbers \[2, 4\] are needed, but it gave .*\[2, 1\]"),
        ({"selection": far}, r"augmenter\.selection: its numbers should lie in 0 to 9"),
        ({"selection": no_key}, r"augmenter\.selection: no_key failed \(TypeError"),
        ({"crossing": flat}, r"augmenter\.crossing: whole numbers \[2, 110, 4\] are needed"),
        ({"mutation": nan}, r"augmenter\.mutation: whole numbers .* but it gave torch\.float32"),
        ({"mutation": two_arguments}, r"augmenter\.mutation: two_arguments failed \(TypeError"),
    ],
)
def test_wrong_parts_show_in_a_rehearsal(options: dict[str, Any], said: str, fashion: DataSet) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    with pytest.raises(UserError, match=said):
        Sensei(T3, warmup=5, **options).rehearse(model, fashion.train)


def test_a_rehearsal_changes_nothing_and_needs_no_data_to_learn_from(tiny_net: nn.Module, fashion: DataSet) -> None:
    state = {name: tensor.clone() for name, tensor in tiny_net.state_dict().items()}
    for settings in ({"fitness": Power(2.0)}, {"fitness": NeuronCoverage(), "selection": elitism}, {}):
        sensei = Sensei(T3, **settings)
        sensei.rehearse(tiny_net, fashion.train)
        assert sensei.state_dict() == {} and sensei.forwards == 0
    assert all(torch.equal(state[name], tensor) for name, tensor in tiny_net.state_dict().items())
    with pytest.raises(UserError, match="fitness: two_arguments failed"):
        WorstOf(T3, k=3, fitness=two_arguments).rehearse(tiny_net, fashion.train)


@pytest.mark.parametrize("fitness", [lambda scored: scored.logits[:, 0], Power(2.0), NeuronCoverage()])
def test_a_run_refuses_parts_that_its_files_can_not_name(fitness: Any) -> None:
    with pytest.raises(UserError, match=r"augmenter\.fitness: a run's files name it as package\.module:name"):
        TrainConfig(augmenter=PRESETS["sensei"](fitness=fitness))
    Sensei(T3, settings=PRESETS["sensei"](fitness=fitness))  # in a loop of one's own it is welcome


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Sensei(T3, samples=0), "samples: .* at least 1, but 0"),
        (lambda: Sensei(T3, samples="many"), "samples: .* but 'many'"),
        (lambda: Sensei("t3", samples=3), "space: a ukemi.Space is needed"),
        (lambda: Gene("rotation", -30, 30, 0, 60 / 100_000), "makes more than 65535 levels"),
        (
            lambda: Sensei(
                Space(tuple(Gene(f"g{at}", 0, 1, 0, 1, kernel=lambda x, v: x) for at in range(11))),
                samples=1,
                first="grid",
            )(nn.Flatten(), torch.rand(1, 1, 2, 2), torch.zeros(1).long(), torch.zeros(1).long(), 1),
            "a grid is dealt for at most 10 genes, but this space has 11",
        ),
    ],
)
def test_wrong_things_are_one_sentence(make: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make()


def test_a_loop_of_ones_own_is_told_what_is_wrong(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    sensei, model = Sensei(T3, samples=8), tiny_net.double()
    with pytest.raises(UserError, match=r"labels: one whole number per image is needed, an int64 tensor \[8\]"):
        sensei(model, images, labels[:3], index, 1)
    with pytest.raises(UserError, match=r"labels: .* torch\.float32"):
        sensei(model, images, labels.float(), index, 1)

    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    with pytest.raises(UserError, match=r"model: logits \[N, classes\] are needed, but it gives a tuple"):
        sensei(Pair(), images, labels, index, 1)
    worst = WorstOf(T3, k=2, when="epoch")
    worst.begin_epoch(model, replace(fashion.train.take(index), images=images), 0)
    with pytest.raises(UserError, match=r"begin_epoch\(model, data, 7\)"):
        worst(model, images, labels, index, 7)
    with pytest.raises(UserError, match="parents is not the state of worst-of"):
        worst.load_state_dict({"parents": torch.zeros(3)})


@pytest.mark.parametrize("preset", PRESETS)
def test_the_fittest_survivor_comes_first_whoever_selected(preset: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    """The released code's parent is the first one."""
    images, labels, index = rows(fashion)
    data, model = replace(fashion.train.take(index), images=images), tiny_net.double().eval()
    sensei = Sensei(T3, samples=8, settings=preset, fitness="cross-entropy")
    for epoch in (1, 2):
        sensei.begin_epoch(model, data, epoch)
        sensei(model, images, labels, index, epoch)
    genes_NSG = T3.decode(unpacked(sensei.state_dict()["parents"]))
    many = genes_NSG.shape[1]
    with torch.no_grad():
        logits = model(vary(images.repeat_interleave(many, 0), genes_NSG.flatten(0, 1), T3))
    losses = nn.functional.cross_entropy(logits, labels.repeat_interleave(many), reduction="none").view(8, many)
    assert (losses.diff(dim=1) <= 1e-6).all()


def test_the_coin_of_the_released_search_is_keyed_by_epoch_and_batch() -> None:
    sensei = Sensei(T3, samples=2, settings="sensei-released", seed=5)
    sensei._stored(torch.device("cpu"))
    for epoch in (0, 1):
        sensei._turn(sensei._stored(torch.device("cpu")), epoch)
        for batch in range(3):
            thrown = sensei._coin(epoch)
            expected = uniform(torch.tensor([batch]), seed=5, stream=Stream.COIN, epoch=epoch)
            assert thrown is not None and float(thrown) == float(expected)


def test_searched_ahead_a_sample_that_was_not_there_is_trained_as_it_is(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    few = replace(fashion.train.take(index[:5]), images=images[:5])
    sensei = Sensei(T3, samples=8, when="epoch")
    sensei.begin_epoch(tiny_net.double(), few, 1)
    found = sensei(tiny_net, images, labels, index, 1)
    assert torch.equal(found[5:], images[5:]) and not torch.equal(found[:5], images[:5])


@pytest.mark.parametrize("warmup_on", ["clean", "random"])
def test_a_warm_up_flips_too(warmup_on: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    sensei = Sensei(T3, samples=8, flips=True, warmup_on=warmup_on)
    found = sensei(tiny_net.double(), images, labels, index, 0)
    variants = images if sensei.genes is None else vary(images, sensei.genes, T3)
    assert torch.equal(found, sensei.flipped(variants, index, 0)) and not torch.equal(found, variants)

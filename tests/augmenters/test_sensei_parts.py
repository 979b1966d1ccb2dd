"""What a user may plug into a SENSEI search, and what is said of parts and settings that do not fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, Augmenter, Sensei, UserError, WorstOf, vary
from ukemi.augmenters.presets import PRESETS
from ukemi.data import DataSet
from ukemi.fitness import Scored
from ukemi.genetics import Breeding, bred, first_population, operators, unpacked
from ukemi.spaces import Gene, Space


def rows(data: DataSet, count: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    batch = data.train.batch(torch.arange(count), "cpu")
    return batch.images.double(), batch.labels, batch.index


def mine_selection(fitness_NK: Tensor, index_N: Tensor, keep: int, *, seed: int, epoch: int) -> Tensor:
    """The least fit, for a test that sees it at work."""
    return fitness_NK.argsort(dim=1, stable=True)[:, :keep]


def mine_crossover(first_NPG: Tensor, second_NPG: Tensor, draw: operators.Draw, space: Any) -> Tensor:
    return first_NPG


def mine_mutation(parents_NPG: Tensor, fitness_N: Tensor, draw: operators.Draw, space: Any, edge: float) -> Tensor:
    return torch.zeros_like(parents_NPG)


def mine_fitness(scored: Scored) -> Tensor:
    return -scored.images.flatten(1).sum(1)


def bad_shape(scored: Scored) -> Tensor:
    return scored.logits


def bad_nan(scored: Scored) -> Tensor:
    return scored.logits[:, 0] * float("nan")


def test_anyones_own_parts_by_name(tiny_net: nn.Module, fashion: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    images, labels, index = rows(fashion)
    here = "test_sensei_parts"
    sensei = Sensei(
        T3,
        samples=8,
        selection=f"{here}:mine_selection",
        crossing=f"{here}:mine_crossover",
        mutation=f"{here}:mine_mutation",
        fitness=f"{here}:mine_fitness",
        crossover=0.5,
    )
    model = tiny_net.double()
    found = sensei(model, images, labels, index, 1)
    parents = unpacked(sensei.state_dict()["parents"])
    first = first_population(index, 10, T3, seed=0)
    zero = (parents == 0).all(-1)
    copied = (parents[:, :, None] == first[:, None]).all(-1).any(-1)
    assert (zero | copied).all() and zero.any() and copied.any()
    assert torch.equal(found, vary(images, sensei.genes, T3))  # type: ignore[arg-type]
    survivors = vary(images.repeat_interleave(4, 0), T3.decode(parents).flatten(0, 1), T3).flatten(1).sum(1).view(8, 4)
    # the darkest is trained, and those that live on are the lightest
    assert (found.flatten(1).sum(1)[:, None] < survivors).all()
    by_object = Sensei(T3, samples=8, fitness=mine_fitness, selection=mine_selection)
    assert by_object.settings.model_dump(mode="json")["fitness"] == f"{mine_fitness.__module__}:mine_fitness"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fitness": bad_shape}, r"fitness: bad_shape gave \[80, 10\], but one number per variant, \[80\], is needed"),
        ({"fitness": bad_nan}, r"fitness: bad_nan gave NaN"),
    ],
)
def test_a_wrong_fitness_is_named(options: dict[str, Any], said: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    with pytest.raises(UserError, match=said):
        Sensei(T3, samples=8, **options)(tiny_net.double(), images, labels, index, 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Sensei(T3, fitness="luck"), r"fitness: 'luck' is not known; known are cross-entropy"),
        (lambda: Sensei(T3, selection="luck"), r"augmenter\.selection: 'luck' is none of elitism, roulette"),
        (lambda: Sensei(T3, crossing="no.such:thing"), r"augmenter\.crossing: 'no\.such:thing' can't be imported"),
        (lambda: Sensei(T3, mutation=3), r"augmenter\.mutation: a name or a function is needed, but 3"),
        (lambda: Sensei(T3, settings="kaizen"), r"settings: 'kaizen' is none of sensei, sensei-sa"),
        (lambda: Sensei(T3, compete=True, keep=1), r"augmenter\.compete: 10 of 10 live on, which leaves no room"),
        (lambda: Sensei(T3, settings="sensei-sa", threshold=0), r"augmenter\.threshold: should be greater than 0"),
        (lambda: Sensei(T3, when="later"), r"augmenter\.when"),
        (lambda: Sensei(T3, population=100_000), r"augmenter\.population: should be less than or equal to 10000"),
        (lambda: WorstOf(T3, k=100_000), r"augmenter\.k: should be less than or equal to 10000"),
        (lambda: Sensei(T3, luck=3), r"augmenter\.luck is not a known field"),
    ],
)
def test_wrong_settings_are_one_sentence(make: Callable[[], Augmenter], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make()


def test_a_batch_without_index_is_one_sentence(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, _ = rows(fashion)
    sensei = Sensei(T3, samples=8)
    for wrong in (None, torch.arange(3), torch.arange(8).float(), torch.arange(8).to(torch.uint8), torch.ones(8) > 0):
        with pytest.raises(UserError, match=r"index: one whole number per image is needed, an int64 tensor \[8\]"):
            sensei(tiny_net.double(), images, labels, wrong, 1)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="index: -1 is outside the store of 8 samples"):
        sensei(tiny_net.double(), images, labels, torch.arange(8) - 1, 1)
    with pytest.raises(UserError, match=r"begin_epoch\(model, data, 1\)"):
        Sensei(T3, samples=8, settings="augmentation")(tiny_net.double(), images, labels, torch.arange(8), 1)


def test_the_state_of_another_search_is_refused() -> None:
    small, large = (Sensei(T3, samples=4, population=population) for population in (5, 10))
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    for sensei in (small, large):
        sensei(model, torch.rand(4, 1, 6, 6), torch.zeros(4).long(), torch.arange(4), 1)
    with pytest.raises(UserError, match=r"augmenter: parents should be \[4, 4, 4\], but it is \[4, 2, 4\]"):
        large.load_state_dict(small.state_dict())
    with pytest.raises(UserError, match=r"augmenter: picked is not the state of a SENSEI search"):
        large.load_state_dict({"picked": torch.zeros(4)})


@pytest.mark.parametrize("preset", ["sensei-sa", "sensei-released"])
def test_a_state_that_was_loaded_elsewhere_moves_to_the_batch(preset: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    batch = torch.rand(4, 1, 6, 6), torch.zeros(4).long(), torch.arange(4)
    first, second = (Sensei(T3, samples=4, settings=preset) for _ in range(2))
    first(model, *batch, 1)
    second.load_state_dict(first.state_dict())
    second._stored(torch.device("meta"))  # stands for a GPU
    assert {tensor.device.type for name, tensor in second.state_dict().items() if name not in ("epoch", "lattice")} == {
        "meta"
    }


def test_a_training_loop_of_ones_own_is_told_what_to_mend(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model = tiny_net.double()
    sensei = Sensei(T3, samples=np.int64(8), settings="sensei-sa", seed=np.int64(3))
    with pytest.raises(UserError, match="index: it lies on meta, but the images on cpu; move it there"):
        sensei(model, images, labels, index.to("meta"), 1)
    for wrong in (1.0, None, torch.tensor(1), True):
        with pytest.raises(UserError, match="epoch: a whole number is needed, but"):
            sensei(model, images, labels, index, wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="epoch: epochs count from 0, but -1 was given"):
        sensei(model, images, labels, index, -1)
    with pytest.raises(UserError, match=r"seed: a whole number is needed, but 1\.5"):
        Sensei(T3, seed=1.5)  # type: ignore[arg-type]
    found = sensei(model, images, labels.int(), index, np.int64(1))  # type: ignore[arg-type]
    assert torch.equal(found, Sensei(T3, samples=8, seed=3)(model, images, labels, index, 1))
    before = {name: tensor.clone() for name, tensor in sensei.state_dict().items()}
    for wrong_index, said in (
        (index - 1, "index: -1 is outside the store of 8 samples"),
        (index + 1, "index: 8 is outside the store"),
        (None, "index: one whole number per image"),
        (index[:3], r"index: .* \[8\], but torch\.int64 \[3\]"),
    ):
        with pytest.raises(UserError, match=said):
            sensei.observe(wrong_index, torch.zeros(8, 10), labels)  # type: ignore[arg-type]
    assert all(torch.equal(before[name], tensor) for name, tensor in sensei.state_dict().items())


@pytest.mark.parametrize("when", ["search", "observe", "look again"])
@pytest.mark.parametrize(("preset", "threshold"), [("sensei-sa", 0.1), ("sensei-released", 0.2)])
def test_the_threshold_is_one_of_cross_entropy_and_in_the_released_search_of_its_own(
    preset: str, threshold: float, when: str, fashion: DataSet
) -> None:
    """Of two classes the summed binary cross-entropy is twice the plain one."""
    images, _, index = rows(fashion, 2)

    class Sure(nn.Module):
        """A plain loss of 0.1 + `more`, whatever the image."""

        more = 0.0

        def forward(self, x: Tensor) -> Tensor:
            p = torch.tensor(-0.1 - self.more).double().exp()
            return torch.stack([p, 1 - p]).log().expand(len(x), 2)

    for more, robust in ((-1e-3, True), (1e-3, False)):
        model, label = Sure(), torch.zeros(2).long()
        sensei = Sensei(T3, samples=2, settings=preset, skip="loss", threshold=threshold)
        model.more = more if when == "search" else -1e-3
        sensei(model, images, label, index, 1)
        if when != "search":
            model.more = more
            sensei(model, images, label, index, 2)
        if when == "observe":
            sensei.observe(index, model(images), label)
        if when == "look again":
            sensei(model, images, label, index, 3)
        assert sensei.state_dict()["coming"].tolist() == [not robust] * 2


def test_a_coin_per_batch_is_thrown_after_the_state_of_a_search_without_one() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    batch = torch.rand(4, 1, 6, 6), torch.zeros(4).long(), torch.arange(4)
    without, released = (Sensei(T3, samples=4, settings="sensei-released", coin=coin) for coin in ("child", "batch"))
    without(model, *batch, 1)
    released.load_state_dict(without.state_dict())
    released(model, *batch, 2)
    assert released.state_dict()["batch"].tolist() == [1]


def hard_crossover(first_NPG: Tensor, second_NPG: Tensor, draw: operators.Draw, space: Any) -> Tensor:
    first_NPG[..., 0] = 1
    return first_NPG


def hard_mutation(parents_NPG: Tensor, fitness_N: Tensor, draw: operators.Draw, space: Any, edge: float) -> Tensor:
    parents_NPG[..., 1] = 2
    return parents_NPG


def hard_selection(fitness_NK: Tensor, index_N: Tensor, keep: int, *, seed: int, epoch: int) -> Tensor:
    """The fittest, one by one: each is struck out when it is taken."""
    taken = []
    for _ in range(keep):
        taken.append(fitness_NK.argmax(1))
        fitness_NK.scatter_(1, taken[-1][:, None], -torch.inf)
    return torch.stack(taken, 1)


def hard_margin(scored: Scored) -> Tensor:
    own_M1 = scored.logits.gather(1, scored.labels[:, None]).clone()
    return (scored.logits.scatter_(1, scored.labels[:, None], -torch.inf).amax(1, keepdim=True) - own_M1)[:, 0]


def test_parts_that_work_in_place_spoil_nothing(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model = tiny_net.double()
    parents = first_population(index, 10, T3, seed=0)
    how = Breeding(crossover=hard_crossover, mutation=hard_mutation, rate=0.5)
    children = bred(parents.clone(), torch.full((8,), 10), index, 40, T3, seed=0, epoch=1, how=how)
    crossed, mutated = children[..., 0] == 1, children[..., 1] == 2
    assert (crossed | mutated).all() and not (crossed & mutated).all(0).any() and crossed.any() and mutated.any()
    assert (crossed & mutated).double().mean() < 0.2  # by chance alone, a parent may be so already
    soft, hard = Sensei(T3, samples=8), Sensei(T3, samples=8, selection=hard_selection)
    for epoch in (1, 2):
        assert torch.equal(soft(model, images, labels, index, epoch), hard(model, images, labels, index, epoch))
    assert torch.equal(soft.state_dict()["fitness"], hard.state_dict()["fitness"])
    soft, hard = (
        Sensei(T3, samples=8, settings="sensei-sa", threshold=2.38, fitness=f) for f in ("margin", hard_margin)
    )
    for epoch in (1, 2, 3):
        assert torch.equal(soft(model, images, labels, index, epoch), hard(model, images, labels, index, epoch))
    assert torch.equal(soft.state_dict()["coming"], hard.state_dict()["coming"])
    assert not soft.state_dict()["coming"].all()


def test_who_writes_into_the_images_is_named(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)

    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sub_(0.5).flatten(1)[:, :10]

    def dimmed(scored: Scored) -> Tensor:
        return scored.images.mul_(0.5).flatten(1).sum(1)

    with pytest.raises(UserError, match="model: it writes into the images that it is given, which are trained on"):
        Sensei(T3, samples=8)(InPlace(), images, labels, index, 1)
    with pytest.raises(UserError, match="fitness: dimmed writes into the images"):
        Sensei(T3, samples=8, fitness=dimmed)(tiny_net.double(), images, labels, index, 1)


@pytest.mark.parametrize("options", [{}, {"skip": "loss"}], ids=["all", "skipping"])
def test_a_warm_up_trains_on_the_images_or_on_random_variants(
    options: dict[str, Any], tiny_net: nn.Module, fashion: DataSet
) -> None:
    images, labels, index = rows(fashion)
    model = tiny_net.double()
    clean = Sensei(T3, samples=8, seed=3, warmup=2, **options)
    drawn = Sensei(T3, samples=8, seed=3, warmup=2, warmup_on="random", **options)
    seen = []
    for epoch in range(2):
        assert torch.equal(clean(model, images, labels, index, epoch), images) and clean.genes is None
        genes = T3.sample(index, seed=3, epoch=epoch)[:, 0]
        seen.append(drawn(model, images, labels, index, epoch))
        assert torch.equal(seen[-1], vary(images, genes, T3)) and drawn.genes is not None
        assert torch.equal(drawn.genes, genes) and drawn.forwards == clean.forwards == 0
    assert not torch.equal(*seen) and not torch.equal(seen[0], images)
    # the search itself begins as if nothing had been
    assert torch.equal(*(one(model, images, labels, index, 2) for one in (clean, drawn)))
    assert drawn.forwards == clean.forwards >= 80


@pytest.mark.parametrize("preset", ["sensei-sa", "sensei-released"])
def test_labels_and_index_may_be_int32(preset: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model, found = tiny_net.double().eval(), []
    for kind in (torch.int64, torch.int32):
        sensei = Sensei(T3, samples=8, settings=preset, skip="loss", threshold=2.5)
        for epoch in range(4):
            out = sensei(model, images, labels.to(kind), index.to(kind), epoch)
            sensei.observe(index.to(kind), model(out), labels.to(kind))
        found.append((out, sensei.forwards))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]


PAPER = {
    "population": 10,
    "crossover": 0.4,
    "crossing": "one-point",
    "mutation": "redraw",
    "edge": 0.0,
    "parents": "random",
    "invalid": "redraw",
    "compete": False,
    "selection": "elitism",
    "keep": 0.4,
    "first": "random",
    "identity": False,
    "warmup": 1,
    "warmup_on": "clean",
    "fitness": "cross-entropy",
    "when": "batch",
    "skip": "never",
    "threshold": 1e-3,
    "skipped": "worst",
    "coin": "child",
    "cap": 0,
}
RELEASED = {
    "crossing": "uniform",
    "mutation": "step",
    "parents": "fittest",
    "invalid": "clip",
    "compete": True,
    "first": "grid",
    "identity": True,
    "warmup": 0,
    "fitness": "binary-cross-entropy",
    "coin": "batch",
    "cap": 1000,
}


@pytest.mark.parametrize(
    ("preset", "differs"),
    [
        ("sensei", {}),
        ("sensei-sa", {"skip": "loss"}),
        ("sensei-rw", {"selection": "roulette"}),
        ("sensei-t", {"selection": "tournament"}),
        ("augmentation", {"crossing": "one-point-or-none", "when": "epoch"}),
        ("sensei-released", RELEASED),
        ("ukemi", {"compete": True, "edge": 0.3}),
    ],
)
def test_a_preset_is_the_paper_but_for(preset: str, differs: dict[str, Any]) -> None:
    assert Sensei(T3, settings=preset).settings.model_dump() == PAPER | differs | {"name": preset}
    assert Sensei(T3, settings=preset).survivors == (10 if preset in ("sensei-rw", "sensei-t") else 4)
    assert Sensei(T3, keep=0.25).survivors == 3  # of a share the next whole number


@pytest.mark.parametrize("options", [{}, {"when": "epoch"}, {"skip": "loss"}], ids=["batch", "epoch", "skipping"])
def test_data_that_the_store_has_no_room_for_are_refused_at_once(
    options: dict[str, Any], tiny_net: nn.Module, fashion: DataSet
) -> None:
    few = fashion.train.take(torch.arange(8))
    with pytest.raises(UserError, match="index: 7 is outside the store of 4 samples"):
        Sensei(T3, samples=4, warmup=0, **options).begin_epoch(tiny_net, few, 0)


def test_however_small_a_share_somebody_lives_on(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    for compete in (False, True):
        sensei = Sensei(T3, samples=8, keep=1e-12, compete=compete)
        assert sensei.survivors == 1
        for epoch in range(3):
            sensei(tiny_net.double(), images, labels, index, epoch)


def test_a_grid_too_large_to_be_dealt_is_refused_before_a_run_begins() -> None:
    wide = Space(tuple(Gene(f"g{at}", 0, 1, 0, 1, kernel=lambda x, v: x) for at in range(11)))
    with pytest.raises(UserError, match=r"augmenter\.first: a grid is dealt for at most 10 genes"):
        PRESETS["sensei-released"]().build(wide, 0, False)
    PRESETS["sensei-released"](first="random").build(wide, 0, False)

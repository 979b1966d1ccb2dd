"""What every augmenter must do: one table of augmenters, one suite of checks."""

import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ukemi import AUGMENTERS, T3, T6, Augmenter, Gene, Random, Sensei, Space, Standard, UserError, WorstOf, vary
from ukemi.augmenters import PRESETS, Styx
from ukemi.data import DataSet, labelled
from ukemi.genetics import first_population, unpacked

sys.path.insert(0, str(Path(__file__).parents[1] / "genetics"))
from test_genetics import slow_children

ALL: dict[str, Callable[..., Augmenter]] = {
    "standard": lambda **options: Standard(**options),
    "random": lambda **options: Random(T3, **options),
    "worst-of": lambda **options: WorstOf(T3, k=4, **options),
    "worst-of-epoch": lambda **options: WorstOf(T3, k=3, when="epoch", **options),
    "sensei": lambda **options: Sensei(T3, samples=12, population=4, **options),
    "sensei-roulette": lambda **options: Sensei(T6, samples=12, population=3, selection="roulette", **options),
    "sensei-tournament": lambda **options: Sensei(T3, samples=12, selection="tournament", edge=0.5, **options),
    "worst-of-misclassified": lambda **options: WorstOf(T6, k=3, fitness="misclassified", identity=True, **options),
    "worst-of-coverage": lambda **options: WorstOf(T3, k=3, fitness="neuron-coverage", **options),
    "sensei-epoch": lambda **options: Sensei(T3, samples=12, population=3, when="epoch", **options),
    "sensei-kl": lambda **options: Sensei(T3, samples=12, population=3, fitness="kl", **options),
    "sensei-surprise": lambda **options: Sensei(T3, samples=12, population=3, fitness="distance-surprise", **options),
    "sensei-sections": lambda **options: Sensei(T3, samples=12, fitness="multisection-coverage", **options),
    **{preset: partial(Sensei, T3, samples=12, settings=preset) for preset in PRESETS},
    "sensei-sa-class": lambda **options: Sensei(
        T3, samples=12, settings="sensei-sa", skip="classification", skipped="random", **options
    ),
    "styx": lambda **options: Styx(**options),
    "styx-epoch": lambda **options: Styx(samples=12, masks="epoch", redraw=True, **options),
}
EPOCHWISE = ("worst-of-epoch", "sensei-epoch", "augmentation")
PIXELWISE = ("styx", "styx-epoch")
every = pytest.mark.parametrize("name", ALL)


def batch(data: DataSet, count: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    rows = data.train.batch(torch.arange(count), "cpu")
    return rows.images, rows.labels, rows.index


def begun(name: str, model: nn.Module, data: DataSet, **options: object) -> Augmenter:
    augmenter = ALL[name](**options)
    few = data.train.take(torch.arange(12))
    augmenter.begin_epoch(model, replace(few, identities=12), 3)
    return augmenter


@every
def test_gives_images_of_the_same_kind_and_repeats_itself(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    before = images.clone()
    first = begun(name, tiny_net, fashion, seed=1)(tiny_net, images, labels, index, 3)
    again = begun(name, tiny_net, fashion, seed=1)(tiny_net, images, labels, index, 3)
    assert first.shape == images.shape and first.dtype == torch.float32 and not first.requires_grad
    assert first.min() >= 0 and first.max() <= 1
    assert torch.equal(first, again) and torch.equal(images, before)


@every
def test_leaves_model_statistics_modes_and_random_state_alone(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    tiny_net.train()
    tiny_net[0].eval()
    modes = [module.training for module in tiny_net.modules()]
    state = copy.deepcopy(tiny_net.state_dict())
    generator = torch.get_rng_state()
    begun(name, tiny_net, fashion)(tiny_net, images, labels, index, 3)
    assert [module.training for module in tiny_net.modules()] == modes
    assert all(torch.equal(state[key], value) for key, value in tiny_net.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())


@every
def test_does_not_depend_on_batch_or_order(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    model = tiny_net.double()
    fresh = partial(begun, name, model, DoubleData(fashion), seed=2)
    images = images.double()
    together = fresh()(model, images, labels, index, 3)
    mixed = torch.randperm(12)
    shuffled = fresh()(model, images[mixed], labels[mixed], index[mixed], 3)
    assert torch.equal(shuffled, together[mixed])
    for size in (1, 5):
        augmenter = fresh()
        parts = [
            augmenter(model, *three, 3)
            for three in zip(images.split(size), labels.split(size), index.split(size), strict=True)
        ]
        assert torch.equal(torch.cat(parts), together)


def DoubleData(data: DataSet) -> DataSet:
    """The same pixels in float64, so that a score does not depend on its batch by rounding."""
    few = data.train.batch(torch.arange(12), "cpu")
    train = replace(data.train.take(torch.arange(12)), images=few.images.double(), identities=12)
    return replace(data, train=train)


@every
def test_what_comes_out_can_be_trained_on(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    found = begun(name, tiny_net, fashion)(tiny_net, images, labels, index, 3)
    nn.functional.cross_entropy(tiny_net(found), labels).backward()
    assert all(parameter.grad is not None for parameter in tiny_net.parameters())


@every
def test_genes_replay_the_batch_and_epochs_differ(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    augmenter = begun(name, tiny_net, fashion)
    found = augmenter(tiny_net, images, labels, index, 3)
    if augmenter.genes is None:
        assert torch.equal(found, images) == (name not in PIXELWISE)
        return
    space = augmenter.space  # type: ignore[attr-defined]
    assert torch.equal(found, vary(images, augmenter.genes, space)) and space.contains(augmenter.genes).all()
    if name not in EPOCHWISE:
        assert not torch.equal(found, augmenter(tiny_net, images, labels, index, 4))


@every
def test_flips_are_decided_once_per_sample_and_epoch(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    augmenter = begun(name, tiny_net, fashion, flips=True)
    found = augmenter(tiny_net, images, labels, index, 3)
    genes = augmenter.genes
    if name in PIXELWISE:
        plain = begun(name, tiny_net, fashion)(tiny_net, images, labels, index, 3)
    else:
        plain = images if genes is None else vary(images, genes, augmenter.space)  # type: ignore[attr-defined]
    flipped = (found == plain.flip(-1)).flatten(1).all(1)
    assert torch.equal(found, torch.where(flipped[:, None, None, None], plain.flip(-1), plain))
    assert 0 < flipped.sum() < 12
    again = begun(name, tiny_net, fashion, flips=True)
    assert torch.equal(found, again(tiny_net, images, labels, index, 3))


@every
def test_state_goes_round(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    augmenter = begun(name, tiny_net, fashion)
    other = ALL[name]()
    other.load_state_dict(augmenter.state_dict())
    assert torch.equal(augmenter(tiny_net, images, labels, index, 3), other(tiny_net, images, labels, index, 3))


@pytest.mark.parametrize("name", AUGMENTERS)
def test_every_schema_builds_its_augmenter(name: str) -> None:
    config = AUGMENTERS[name](**({"of": "ukemi:Random"} if name == "own" else {}))
    built = config.build(T3, 7, True)
    assert config.name == name and built.seed == 7 and built.flips  # type: ignore[attr-defined]


def slow_worst(model: nn.Module, image: Tensor, label: Tensor, rows: Tensor, misclassified_first: bool) -> int:
    """The worst candidate's number: highest loss, the first of equals."""
    scores = []
    for row in rows:
        with torch.no_grad():
            logits = model.eval()(vary(image[None], row[None], T3))
        loss = nn.functional.cross_entropy(logits, label[None]).item()
        wrong = int(logits.argmax()) != int(label)
        scores.append((wrong if misclassified_first else False, loss))
    return max(range(len(rows)), key=lambda k: (scores[k], -k))


@pytest.mark.parametrize("select", ["cross-entropy", "misclassified"])
def test_worst_of_k_equals_the_slow_search(select: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    model, images = tiny_net.double(), images.double()
    augmenter = WorstOf(T3, k=6, seed=3, fitness=select)
    augmenter(model, images, labels, index, 1)
    drawn = T3.sample(index, 6, seed=3, epoch=1)
    for at in range(12):
        best = slow_worst(model, images[at], labels[at], drawn[at], select == "misclassified")
        assert augmenter.genes is not None and torch.equal(augmenter.genes[at], drawn[at, best])
    assert augmenter.forwards == 72


def test_the_scored_tensor_is_the_trained_tensor(fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    seen: list[Tensor] = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(784, 10)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.clone())
            return self.head(x.flatten(1))

    model = Spy()
    found = WorstOf(T3, k=5, flips=True)(model, images, labels, index, 0)
    scored = torch.cat(seen)
    assert all((scored == row).flatten(1).all(1).any() for row in found)


@pytest.mark.parametrize("many", [1, 2, 3, 4, 7, 8])
def test_passes_of_any_size_find_the_same(
    many: int, tiny_net: nn.Module, fashion: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels, index = batch(fashion)
    model, images = tiny_net.double(), images.double()
    whole = WorstOf(T3, k=8)(model, images, labels, index, 0)
    monkeypatch.setattr("ukemi.augmenters.search.rows_per_pass", lambda shape, device: many * len(images))
    assert torch.equal(whole, WorstOf(T3, k=8)(model, images, labels, index, 0))


def test_ties_go_to_the_lowest_candidate_and_nan_is_not_hidden(fashion: DataSet) -> None:
    images, labels, index = batch(fashion)

    class Same(nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.value = value

        def forward(self, x: Tensor) -> Tensor:
            return torch.full((len(x), 10), self.value)

    for value, most in product((0.0, float("nan")), (None, 1)):
        augmenter = WorstOf(T3, k=5)
        augmenter.most_per_pass = most
        augmenter(Same(value), images, labels, index, 0)
        assert augmenter.genes is not None and torch.equal(augmenter.genes, T3.sample(index, 5, seed=0)[:, 0])


def slow_sensei(
    model: nn.Module, image: Tensor, label: Tensor, sample: int, epochs: int
) -> tuple[list[list[float]], list[list[int]]]:
    """Algorithm 2 for one sample in plain Python: what it trains on in each epoch, and who lives on in the end."""
    parents = first_population(torch.tensor([sample]), 10, T3, seed=6)[0].tolist()
    trained = []
    for epoch in range(1, epochs):
        children = slow_children(parents, sample, 10, T3, 6, epoch)
        rows = T3.decode(torch.tensor(children))
        with torch.no_grad():
            logits = model.eval()(vary(image.expand(10, -1, -1, -1), rows, T3))
        losses = nn.functional.cross_entropy(logits, label.expand(10), reduction="none").tolist()
        order = sorted(range(10), key=lambda at: (-losses[at], at))
        trained.append(rows[order[0]].tolist())
        parents = [children[at] for at in order[:4]]
    return trained, parents


def test_sensei_equals_algorithm_2_over_epochs(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion, 5)
    model, images = tiny_net.double(), images.double()
    sensei = Sensei(T3, samples=5, seed=6)
    assert torch.equal(sensei(model, images, labels, index, 0), images) and sensei.genes is None
    history = []
    for epoch in range(1, 6):
        order = torch.randperm(5)
        found = sensei(model, images[order], labels[order], index[order], epoch)
        assert sensei.genes is not None and torch.equal(found, vary(images[order], sensei.genes, T3))
        history.append(sensei.genes[order.argsort()])
    for at in range(5):
        trained, parents = slow_sensei(model, images[at], labels[at], at, 6)
        assert torch.stack(history)[:, at].tolist() == trained
        assert unpacked(sensei.state_dict()["parents"])[at].tolist() == parents
    assert sensei.forwards == 5 * 5 * 10


def test_a_sample_that_comes_late_begins_with_a_first_population(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion, 4)
    sensei = Sensei(T3, samples=4)
    sensei(tiny_net, images[:3], labels[:3], index[:3], 1)
    assert sensei.state_dict()["begun"].tolist() == [True, True, True, False]
    sensei(tiny_net, images, labels, index, 2)
    assert sensei.state_dict()["begun"].all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"population": 1}, r"augmenter\.population: should be greater than or equal to 2, but 1"),
        ({"crossover": 1.5}, r"augmenter\.crossover: should be less than or equal to 1, but 1\.5"),
        ({"keep": 0}, r"augmenter\.keep: should be greater than 0, but 0"),
        ({"selection": "luck"}, r"augmenter\.selection"),
    ],
)
def test_wrong_settings_of_sensei_are_named(options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Sensei(T3, samples=3, **options)  # type: ignore[arg-type]


def test_sensei_needs_to_know_its_samples(tiny_net: nn.Module, fashion: DataSet) -> None:
    with pytest.raises(UserError, match="samples, the number of training samples, is needed"):
        Sensei(T3)(tiny_net, *batch(fashion), 1)
    with pytest.raises(UserError, match="index: 11 is outside the store of 5 samples"):
        Sensei(T3, samples=5)(tiny_net, *batch(fashion), 1)


@every
def test_normalised_pixels_are_noticed(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    with pytest.raises(UserError, match="normalisation belongs into the model"):
        begun(name, tiny_net, fashion)(tiny_net, 2 * images - 1, labels, index, 3)


def test_what_are_no_images_is_said_of_the_images(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = batch(fashion)
    with pytest.raises(UserError, match=r"^images: a torch tensor is needed, but a ndarray was given"):
        Standard()(tiny_net, images.numpy(), labels, index, 0)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"^images: "):
        Standard()(tiny_net, images[0], labels, index, 0)


def test_wrong_settings_are_named(tiny_net: nn.Module, fashion: DataSet) -> None:
    with pytest.raises(UserError, match=r"augmenter\.k: should be greater than or equal to 1, but 0"):
        WorstOf(T3, k=0)
    with pytest.raises(UserError, match=r"space: a ukemi\.Space is needed"):
        WorstOf(10, k=3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"augmenter\.when"):
        WorstOf(T3, k=3, when="never")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="begin_epoch"):
        WorstOf(T3, k=3, when="epoch")(tiny_net, *batch(fashion), 0)
    with pytest.raises(UserError, match="keeps no state"):
        Standard().load_state_dict({"x": torch.zeros(1)})


def test_works_on_colour_and_on_one_image() -> None:
    data = labelled(torch.rand(2, 3, 9, 14), torch.tensor([0, 1]))
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 9 * 14, 2))
    one = data.batch(torch.tensor([1]), "cpu")
    assert WorstOf(T6, k=10)(model, one.images, one.labels, one.index, 0).shape == (1, 3, 9, 14)
    mine = Space((Gene("fog", 0, 0.5, 0, 0.1, kernel=lambda images, fog: images * (1 - fog[:, None, None, None])),))
    for preset in ("sensei", "ukemi", "sensei-released", "sensei-sa"):
        for space in (T6, mine, mine.continuous()):
            sensei = Sensei(space, samples=2, settings=preset)
            for epoch in (1, 2, 3):
                found = sensei(model, one.images, one.labels, one.index, epoch)
                assert sensei.genes is not None and torch.equal(found, vary(one.images, sensei.genes, space))


def test_what_would_fill_a_screen_is_called_by_its_type(fashion: DataSet) -> None:
    with pytest.raises(UserError, match=r"^samples: a whole number is needed, but a Data was given\.$"):
        Sensei(T3, samples=fashion.train)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"^space: a ukemi\.Space is needed \(T3, say\), but a Tensor was given\.$"):
        Random(torch.zeros(99))  # type: ignore[arg-type]


def test_a_function_is_no_model(tiny_net: nn.Module, fashion: DataSet) -> None:
    with pytest.raises(UserError, match=r"^model: a torch\.nn\.Module is needed, but a function was given\.$"):
        Random(T3)(lambda images: tiny_net(images), *batch(fashion), 1)  # type: ignore[arg-type]

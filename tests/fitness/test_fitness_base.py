"""What every fitness must do: one table, one suite of checks."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, Sensei, UserError, vary
from ukemi.activations import recording
from ukemi.data import Data, DataSet
from ukemi.fitness import (
    FITNESS,
    DistanceSurprise,
    Fitness,
    Learning,
    LikelihoodSurprise,
    MultisectionCoverage,
    NeuronCoverage,
    Scored,
    checked,
    wants,
)
from ukemi.models.inference import scoring

LEARNING: dict[str, Callable[[], Learning]] = {
    "neuron-coverage": lambda: NeuronCoverage(0.6),
    "multisection-coverage": lambda: MultisectionCoverage(20, every=3),
    "likelihood-surprise": lambda: LikelihoodSurprise(every=3, most=100),
    "distance-surprise": lambda: DistanceSurprise(every=3, most=100),
}
every = pytest.mark.parametrize("name", FITNESS)
learning = pytest.mark.parametrize("name", LEARNING)


def scored_by(model: nn.Module, images: Tensor, labels: Tensor) -> Scored:
    """What a search hands to a fitness; the images serve as their own clean ones, turned by a quarter."""
    with scoring(model, images.device):
        clean = model(images.rot90(dims=(2, 3)))
        with recording(model) as outputs:
            logits = model(images)
    return Scored(model, images, labels, logits.clone(), clean.clone(), tuple(output.clone() for output in outputs))


def doubled(data: DataSet, count: int) -> Data:
    """The same pixels in float64, so that a score does not depend on its batch by rounding."""
    rows = data.train.batch(torch.arange(count), "cpu")
    return replace(data.train.take(torch.arange(count)), images=rows.images.double())


@pytest.fixture
def net() -> nn.Module:
    """Two layers of neurons, BatchNorm and dropout, in float64."""
    layers = [nn.Conv2d(1, 6, 5, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(384, 20), nn.Tanh(), nn.Linear(20, 10)).double()


@pytest.fixture
def data(fashion: DataSet) -> Data:
    return doubled(fashion, 300)


def variants_of(data: Data, count: int = 24) -> tuple[Tensor, Tensor]:
    """Dark, shifted pictures, so that they are news to the network."""
    batch = data.batch(torch.arange(count), "cpu")
    return batch.images.roll(5, 3) * torch.linspace(0, 1, count, dtype=torch.float64)[:, None, None, None], batch.labels


def begun(name: str, net: nn.Module, data: Data) -> Callable[[Scored], Tensor]:
    fitness = LEARNING[name]() if name in LEARNING else FITNESS[name]()
    if isinstance(fitness, Fitness):
        fitness.begin_epoch(net, data, 0)
    return fitness


@every
def test_gives_one_finite_number_per_variant_and_repeats_itself(name: str, net: nn.Module, data: Data) -> None:
    scored = scored_by(net, *variants_of(data))
    first = checked(begun(name, net, data)(scored), scored, name)
    again = checked(begun(name, net, data)(scored), scored, name)
    assert first.shape == (24,) and first.dtype == torch.float64 and first.isfinite().all() and not first.requires_grad
    assert torch.equal(first, again) and len(first.unique()) > 1


@every
def test_does_not_depend_on_batch_or_order(name: str, net: nn.Module, data: Data) -> None:
    images, labels = variants_of(data)
    fitness = begun(name, net, data)
    together = fitness(scored_by(net, images, labels))
    mixed = torch.randperm(24)
    assert torch.allclose(fitness(scored_by(net, images[mixed], labels[mixed])), together[mixed], rtol=1e-9)
    for size in (1, 7):
        parts = [fitness(scored_by(net, *two)) for two in zip(images.split(size), labels.split(size), strict=True)]
        assert torch.allclose(torch.cat(parts), together, rtol=1e-9)


@every
def test_works_in_inference_mode_and_in_half_precision(name: str, net: nn.Module, data: Data) -> None:
    images, labels = variants_of(data)
    model, floats = net.float(), replace(data, images=data.images[torch.arange(300)].float())
    with torch.autocast("cpu", torch.bfloat16):
        fitness = begun(name, model, floats)
        with torch.inference_mode():
            scored = scored_by(model, images.float(), labels)
            found = checked(fitness(replace(scored, logits=scored.logits.float())), scored, name)
    assert found.isfinite().all()


@learning
def test_learning_leaves_model_statistics_modes_and_random_state_alone(name: str, net: nn.Module, data: Data) -> None:
    net.train()[0].eval()
    modes = [module.training for module in net.modules()]
    state, generator = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    fitness = begun(name, net, data)
    fitness(scored_by(net, *variants_of(data)))
    assert [module.training for module in net.modules()] == modes
    assert all(torch.equal(state[key], value) for key, value in net.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
    assert not any(module._forward_hooks for module in net.modules())


@learning
def test_what_is_learnt_does_not_depend_on_the_order_of_the_data(name: str, net: nn.Module, data: Data) -> None:
    scored = scored_by(net, *variants_of(data))
    shuffled = data.take(torch.randperm(len(data)))
    assert torch.allclose(begun(name, net, shuffled)(scored), begun(name, net, data)(scored), rtol=1e-9)


@learning
def test_needs_begin_epoch_and_the_layers_outputs(name: str, net: nn.Module, data: Data) -> None:
    scored = scored_by(net, *variants_of(data))
    with pytest.raises(UserError, match=r"fitness: \w+ needs begin_epoch\(model, data, epoch\)"):
        LEARNING[name]()(scored)
    fitness = begun(name, net, data)
    assert getattr(fitness, "outputs", False) and not getattr(fitness, "clean", False)
    with pytest.raises(UserError, match=r"fitness: \w+ reads the layers' outputs, but Scored\.outputs is empty"):
        fitness(replace(scored, outputs=()))
    with pytest.raises(UserError, match=r"learnt (20|26) units, but the network has (3|9)"):
        fitness(replace(scored, outputs=(scored.outputs[0], scored.outputs[1][:, :3])))


def altered(net: nn.Module) -> nn.Module:
    """The same network with other weights."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter))
    return net


@learning
def test_is_learnt_once_per_turn_in_place(name: str, net: nn.Module, data: Data) -> None:
    scored = scored_by(net, *variants_of(data))
    fitness = LEARNING[name]()
    turn = 1 if name == "neuron-coverage" else 3
    fitness.begin_epoch(net, data, 2 * turn)
    before, forwards = fitness(scored), fitness.forwards
    places = {key: tensor.data_ptr() for key, tensor in fitness.known(scored).items()}
    altered(net)
    for epoch in range(2 * turn, 3 * turn):
        fitness.begin_epoch(net, data, epoch)
    assert torch.equal(fitness(scored), before) and fitness.forwards == forwards > 0
    fitness.begin_epoch(net, data, 3 * turn)
    assert not torch.equal(fitness(scored), before) and fitness.forwards == 2 * forwards
    assert {key: tensor.data_ptr() for key, tensor in fitness.known(scored).items()} == places


@learning
def test_state_goes_round_and_waits_for_its_turn(name: str, net: nn.Module, data: Data) -> None:
    scored = scored_by(net, *variants_of(data))
    one, other = LEARNING[name](), LEARNING[name]()
    assert one.state_dict() == {}
    one.begin_epoch(net, data, 4)
    expected = one(scored)
    state = one.state_dict()
    kept = {key: tensor.clone() for key, tensor in state.items()}
    other.load_state_dict(state)
    assert torch.equal(other(scored), expected)
    altered(net)
    other.begin_epoch(net, data, 4)
    assert torch.equal(other(scored), expected)
    other.begin_epoch(net, data, 6)
    one.begin_epoch(net, data, 6)
    assert torch.equal(other(scored), one(scored)) and not torch.equal(one(scored), expected)
    assert all(torch.equal(state[key], kept[key]) for key in kept)  # a snapshot, not a view
    one.load_state_dict(state)
    assert torch.equal(one(scored), expected)
    one.load_state_dict({})
    with pytest.raises(UserError, match="begin_epoch"):
        one(scored)
    with pytest.raises(UserError, match=r"keeps .*epoch.*, but nonsense was given"):
        one.load_state_dict({"nonsense": torch.zeros(1)})


@learning
def test_begun_inside_inference_mode_it_can_be_refreshed_outside(name: str, net: nn.Module, data: Data) -> None:
    fitness = LEARNING[name]()
    with torch.inference_mode():
        fitness.begin_epoch(net, data, 0)
    fitness.begin_epoch(altered(net), data, 3)
    assert torch.equal(fitness.state_dict()["epoch"], torch.tensor(3))


class Plain(Fitness):
    def __call__(self, scored: Scored) -> Tensor:
        return scored.logits.amax(1)


def test_a_fitness_without_state_keeps_none(net: nn.Module, data: Data) -> None:
    fitness = Plain()
    fitness.begin_epoch(net, data, 0)
    assert fitness.state_dict() == {} and fitness.forwards == 0 and not Plain.clean and not Plain.outputs
    fitness.load_state_dict({})
    with pytest.raises(UserError, match=r"fitness: Plain keeps no state, but \['x'\] was given"):
        fitness.load_state_dict({"x": torch.zeros(1)})


def rows(logits: Tensor) -> Scored:
    return Scored(nn.Identity(), torch.zeros(len(logits), 1, 2, 2), torch.zeros(len(logits)).long(), logits)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.zeros(3, 2), r"fitness: mine gave \[3, 2\], but one number per variant, \[3\], is needed\."),
        (torch.zeros(()), r"gave \[\], but"),
        (torch.zeros(4), r"gave \[4\], but"),
        (1.5, r"gave a float, but one number per variant, \[3\]"),
    ],
)
def test_a_wrong_shape_is_named(given: Tensor, said: str) -> None:
    with pytest.raises(UserError, match=said):
        checked(given, rows(torch.zeros(3, 2)), "mine")


@pytest.mark.parametrize("kind", [torch.bool, torch.int32, torch.bfloat16, torch.float64])
def test_any_kind_of_number_becomes_float64(kind: torch.dtype) -> None:
    given = torch.tensor([0, 1, 1]).to(kind)
    got = checked(given, rows(torch.zeros(3, 2)), "mine")
    assert got.dtype == torch.float64 and got.tolist() == [0, 1, 1]


def test_nan_is_an_error_where_the_logits_are_finite() -> None:
    nan, scored = torch.tensor([0.0, float("nan"), 1.0]), rows(torch.zeros(3, 2))
    for look in (True, False):  # a CPU is always looked at
        with pytest.raises(UserError, match="fitness: mine gave NaN for variant 1 of 3, whose logits are finite"):
            checked(nan, scored, "mine", look=look)
    lost = torch.tensor([[0.0, 0.0], [0.0, float("nan")], [0.0, 0.0]])
    assert checked(nan, rows(lost), "mine").isnan().tolist() == [False, True, False]
    infinite = torch.tensor([float("inf"), -float("inf"), 0.0])
    assert torch.equal(checked(infinite, scored, "mine"), infinite.double())


def test_a_function_can_say_what_it_reads() -> None:
    @wants(clean=True, outputs=True)
    def mine(scored: Scored) -> Tensor:
        return scored.logits[:, 0]

    assert mine.clean and mine.outputs  # type: ignore[attr-defined]
    assert mine(rows(torch.eye(3))).tolist() == [1, 0, 0]


class Odd(Fitness):
    """Its state is no tensor."""

    def __call__(self, scored: Scored) -> Tensor:
        return scored.logits[:, 0]

    def state_dict(self) -> dict[str, Tensor]:
        return {"count": 3}  # type: ignore[dict-item]


class Failing(Learning):
    stored = ("nothing",)

    def learn(self, model: nn.Module, data: Data) -> dict[str, Tensor]:
        raise ValueError("no luck")

    def __call__(self, scored: Scored) -> Tensor:
        return scored.logits[:, 0]


def test_what_ones_own_fitness_does_wrong_is_one_sentence(net: nn.Module, data: Data) -> None:
    sensei = Sensei(T3, samples=data.identities, fitness=Odd(), warmup=0)
    sensei.begin_epoch(net, data, 0)
    with pytest.raises(UserError, match="fitness: a state is made of tensors, but its count is a int"):
        sensei.state_dict()
    with pytest.raises(UserError, match=r"fitness: learn failed \(ValueError: no luck"):
        Sensei(T3, fitness=Failing(), warmup=0).begin_epoch(net, data, 0)


def test_too_many_classes_for_surprise_show_before_the_first_epoch(net: nn.Module, data: Data) -> None:
    sensei = Sensei(T3, fitness=DistanceSurprise(most=5), warmup=9)
    with pytest.raises(UserError, match=r"fitness\.most: 5 samples are less than two for each of"):
        sensei.rehearse(net, data)


@learning
def test_a_search_keeps_no_more_of_the_layers_than_the_fitness_reads(name: str, net: nn.Module, data: Data) -> None:
    fitness, batch = LEARNING[name](), data.batch(torch.arange(4), "cpu")
    sensei = Sensei(T3, samples=data.identities, fitness=fitness, warmup=0)
    sensei.begin_epoch(net, data, 0)
    held: list[tuple[int, ...]] = []
    judge = type(fitness).__call__

    class Watched(type(fitness)):  # type: ignore[misc]
        def __call__(self, scored: Scored) -> Tensor:
            held.extend(tuple(output.shape[1:]) for output in scored.outputs)
            return judge(self, scored)

    fitness.__class__ = Watched
    sensei(net, batch.images, batch.labels, batch.index, 0)
    # neuron coverage reads the extremes over space too
    assert held and any(len(shape) > 1 for shape in held) == (name == "neuron-coverage")
    genes = sensei.genes
    assert genes is not None
    found = judge(fitness, scored_by(net, vary(batch.images, genes, T3), batch.labels))
    assert torch.allclose(found.double(), sensei.state_dict()["fitness"][batch.index].double(), rtol=1e-4)

"""Formula 3, gradients by classes, what keeps its bits, and where tuning stops."""

import copy
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ukemi import UserError
from ukemi.data import Data
from ukemi.repairs.mining import Mined, mine
from ukemi.repairs.tuning import (
    Tuner,
    class_gradients,
    cross_entropy,
    formula_3,
    mean_loss,
    regression,
    target_layer,
    trainable_layers,
    tune,
)
from ukemi.slicing import KeyLayer, activation_of
from ukemi.slicing.slicing import class_runs

sys.path.insert(0, str(Path(__file__).parent))
from history_net import CLASSES, past_of, random_slices, residual, some_data


def mined_of(model: nn.Module, data: Data, seed: int = 0) -> Mined:
    """Everything kept, with random targets at the penultimate layer."""
    generator = torch.Generator().manual_seed(seed)
    rows, none = len(data), torch.zeros(len(data))
    targets = torch.rand(rows, target_layer(model).outputs, generator=generator)
    return Mined(data, targets, none.long() + 1, none.double(), none.double(), rows)


@given(seed=st.integers(0, 100))
def test_formula_3_against_plain_loops(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    given_NO, wanted_NO = torch.rand(2, 4, 6, generator=generator).double()
    key_NO = torch.rand(4, 6, generator=generator) < 0.5
    slow = []
    for at in range(4):
        squares = [(given_NO[at, n] - wanted_NO[at, n]).item() ** 2 for n in range(6) if key_NO[at, n]]
        slow.append(sum(squares) / len(squares) if squares else 0.0)
    assert formula_3(given_NO, wanted_NO, key_NO).tolist() == pytest.approx(slow)


def test_with_all_neurons_key_the_loss_is_plain_mse() -> None:
    given_NO, wanted_NO = torch.rand(2, 7, 5)
    whole = formula_3(given_NO, wanted_NO, torch.ones(7, 5, dtype=torch.bool))
    assert torch.allclose(whole.mean(), F.mse_loss(given_NO, wanted_NO))
    assert torch.allclose(whole, formula_3(given_NO, wanted_NO, None))


def test_each_image_is_held_to_the_key_neurons_of_its_own_class() -> None:
    model, data = residual(), some_data(12)
    layer, slices, targets = target_layer(model), random_slices(model, 0.5), mined_of(model, data).targets
    images = data.images[torch.arange(12)]
    with torch.no_grad():
        given_NO = activation_of(model, images, layer)
        losses = regression(layer, slices)(model, images, data.labels, targets)
    for at, label in enumerate(data.labels.tolist()):
        key = slices.neurons[layer.name][label]
        assert float(losses[at]) == pytest.approx(float((given_NO[at] - targets[at])[key].square().mean()))
    assert len(slices.neurons[layer.name].unique(dim=0)) == len(CLASSES)


def test_the_target_layer_counts_from_the_end() -> None:
    model = residual()
    assert [target_layer(model, p).name for p in range(4)] == ["last", "dense", "second", "first"]
    model.dense.weight.requires_grad_(False)  # type: ignore[union-attr, operator]
    assert target_layer(model).name == "second"
    for wrong in (-1, 3):
        with pytest.raises(UserError, match=r"p: Residual has 3 trainable layers, so p should be from 0 to 2"):
            target_layer(model, wrong)
    single = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(UserError, match=r"has one trainable layer and no penultimate one, .* from 0 to 0, but 1"):
        target_layer(single)
    single.requires_grad_(False)
    with pytest.raises(UserError, match="model: Sequential has no trainable layer"):
        target_layer(single)


def test_stretches_of_a_sorted_batch() -> None:
    assert class_runs(torch.tensor([0, 0, 2, 2, 2, 5])) == [(0, slice(0, 2)), (2, slice(2, 5)), (5, slice(5, 6))]


def slow_gradients(model: nn.Module, data: Data, targets: Tensor, slices, layer, layers):  # type: ignore[no-untyped-def]
    """One whole pass per class, forward and backward, each masked, then added up."""
    loss, sums = regression(layer, slices), {}
    for klass in range(len(CLASSES)):
        rows = (data.labels == klass).nonzero().flatten()
        model.zero_grad()
        images = data.images[rows]
        (loss(model, images, data.labels[rows], targets[rows]).sum() / len(data)).backward()
        for one in layers:
            grad = model.get_parameter(one.weight).grad
            mask = slices.mask(one.weight, klass, grad)
            sums[one.weight] = sums.get(one.weight, 0) + torch.where(mask, grad, 0)
    return sums


@settings(max_examples=10)
@given(seed=st.integers(0, 100), p=st.integers(0, 3))
def test_grouped_gradients_equal_whole_passes_per_class(seed: int, p: int) -> None:
    """With BatchNorm, a grouped convolution, padding by name, ReLU in place and a residual addition on the way."""
    model, data = residual(seed).double(), some_data(20, seed)
    data = Data(data.images[torch.arange(20)].double(), data.labels, data.classes, data.index, data.identities)
    layer, slices = target_layer(model, p), random_slices(model, 0.6, seed)
    layers = trainable_layers(model)[: 4 - p]
    targets = torch.rand(20, layer.outputs).double()
    expected = slow_gradients(model, data, targets, slices, layer, layers)
    tuner = Tuner(copy.deepcopy(model), layers, regression(layer, slices), slices, 1e-3)
    tuner.step(data.images[torch.arange(20)], data.labels, targets)
    for name, gradient in expected.items():
        found = tuner.weights[name].grad
        assert found is not None and torch.allclose(found, gradient, atol=1e-12)
        assert gradient.abs().max() > 0


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, stride=2, padding=(1, 0), dilation=(1, 2), groups=2),
        nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 6, (1, 3), padding="same", bias=False),
        nn.Linear(7, 6),
    ],
    ids=["strided groups", "circular", "same", "linear over places"],
)
def test_every_kind_of_layer_has_its_classes_gradients(layer: nn.Module) -> None:
    """One layer alone, in float64, against autograd on each class's rows."""
    layer, images = layer.double(), torch.rand(9, 4, 7, 7).double()
    labels = torch.tensor([0] * 4 + [1] * 2 + [2] * 3)
    key = KeyLayer("0", "0.weight", "0", 6)
    model = nn.Sequential(layer).requires_grad_(False)
    found = class_gradients(model, [key], lambda x: model(x).square().flatten(1).sum(1), images, class_runs(labels))
    weight = layer.get_parameter("weight")
    for _, klass, gradient in list(found):
        weight.requires_grad_()
        loss = layer(images[labels == klass]).square().sum() / 9
        (slow,) = torch.autograd.grad(loss, weight)
        weight.requires_grad_(False)
        assert torch.allclose(gradient, slow, atol=1e-10) and gradient.abs().max() > 0


def test_without_slices_the_gradient_is_the_plain_one() -> None:
    model, data = residual().double(), some_data(20)
    images = data.images[torch.arange(20)].double()
    layers = trainable_layers(model)
    found = class_gradients(
        copy.deepcopy(model), layers, lambda x: F.cross_entropy(model(x), data.labels, reduction="none"), images, []
    )
    assert list(found) == []  # nothing was asked for
    tuner = Tuner(copy.deepcopy(model), layers, cross_entropy, None, 1e-3)
    loss = tuner.step(images, data.labels, torch.zeros(20, 1))
    plain = F.cross_entropy(model(images), data.labels)
    plain.backward()
    assert torch.allclose(loss, plain)
    for one in layers:
        assert torch.allclose(tuner.weights[one.weight].grad, model.get_parameter(one.weight).grad)  # type: ignore[arg-type]


class Told(nn.Module):
    """Layers that are told their input by its name; one has a hook that changes what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 4, 3, padding="same"), nn.Linear(4, len(CLASSES))
        self.last.register_forward_hook(lambda module, given, output: 3 * output.tanh())
        self.conv.register_forward_hook(lambda module, given, output: -output)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(input=F.relu(self.conv(input=x)).mean((2, 3)))


def test_gradients_of_layers_with_named_inputs_and_hooks() -> None:
    model, data = Told().double(), some_data(20)
    images, layers = data.images[torch.arange(20)].double(), trainable_layers(model)
    tuner = Tuner(copy.deepcopy(model), layers, cross_entropy, None, 1e-3)
    tuner.step(images, data.labels, torch.zeros(20, 1))
    F.cross_entropy(model(images), data.labels).backward()
    for one in layers:
        assert torch.allclose(tuner.weights[one.weight].grad, model.get_parameter(one.weight).grad)  # type: ignore[arg-type]


def test_slices_that_keep_everything_change_nothing() -> None:
    """q = 100 is the variant without slicing, but for the order of sums."""
    model, data = residual(), some_data(40)
    slices, layer = random_slices(model, 1.1), target_layer(model)
    slices.neurons[layer.name][:] = True
    layers, targets = trainable_layers(model)[:3], mined_of(model, data).targets
    states = []
    for kept in (slices, None):
        tuner = Tuner(copy.deepcopy(model), layers, regression(layer, kept), kept, 1e-3)
        for _ in range(3):
            tuner.step(data.images[torch.arange(40)], data.labels, targets)
        states.append(tuner.model.state_dict())
    assert all(torch.allclose(states[0][name], states[1][name], atol=1e-5) for name in states[0])


def test_only_owned_weights_move_and_all_else_keeps_its_bits() -> None:
    """Slices of 10 %, as q = 10 leaves them: many weights belong to no class."""
    model, data = residual(), some_data(60)
    with torch.no_grad():
        model.first.weight[:, 0, 0, 0] = -0.0  # type: ignore[union-attr, index, operator]
    layer, slices = target_layer(model), random_slices(model, 0.1)
    tuner = Tuner(copy.deepcopy(model), trainable_layers(model)[:3], regression(layer, slices), slices, 1e-2)
    mined = mined_of(model, data)
    for _ in range(20):
        tuner.step(data.images[torch.arange(60)], data.labels, mined.targets)
    after = tuner.model.state_dict()
    for name, before in model.state_dict().items():
        if name not in tuner.weights:
            assert torch.equal(before, after[name])
            continue
        owned = torch.stack([slices.mask(name, klass, before) for klass in range(3)]).any(0)
        bits = before.view(torch.int32) == after[name].view(torch.int32)
        assert not owned.all() and bool(bits[~owned].all())
        state = tuner.optimiser.state[tuner.weights[name]]
        assert not state["exp_avg"][~owned].any() and not state["exp_avg_sq"][~owned].any()
    assert any(not torch.equal(one, after[name]) for name, one in model.state_dict().items())
    assert "last.weight" not in tuner.weights and not tuner.model.training


@pytest.mark.parametrize("klass", range(3))
def test_a_weight_masked_for_a_class_is_not_moved_by_its_samples(klass: int) -> None:
    model, data = residual(), some_data(60)
    layer, slices = target_layer(model), random_slices(model, 0.5)
    tuner = Tuner(copy.deepcopy(model), trainable_layers(model)[:3], regression(layer, slices), slices, 1e-2)
    rows = (data.labels == klass).nonzero().flatten()
    for _ in range(3):
        tuner.step(data.images[rows], data.labels[rows], mined_of(model, data).targets[rows])
    for name, weight in tuner.weights.items():
        mask = slices.mask(name, klass, weight)
        before = model.state_dict()[name]
        assert torch.equal(weight[~mask], before[~mask])
        assert not torch.equal(weight[mask], before[mask])


def test_a_gradient_that_is_not_finite_stays_within_its_class() -> None:
    model, data = residual(), some_data(30)
    layer, slices = target_layer(model), random_slices(model, 0.5)
    tuner = Tuner(copy.deepcopy(model), trainable_layers(model)[:3], regression(layer, slices), slices, 1e-2)
    targets = mined_of(model, data).targets
    targets[data.labels == 1] = torch.inf
    tuner.step(data.images[torch.arange(30)], data.labels, targets)
    for name, weight in tuner.weights.items():
        mask = slices.mask(name, 1, weight)
        assert bool(weight[~mask].isfinite().all())


def tuned_with(model: nn.Module, data: Data, selection: Data, **more):  # type: ignore[no-untyped-def]
    layer, layers = target_layer(model), trainable_layers(model)[:-1]
    loss = regression(layer, None)
    samples = mine(model, past_of(model), data, layer)
    usual = {"score": lambda one: -mean_loss(one, samples, loss), "epochs": 3, "batch_size": 16}
    return tune(model, samples, selection, loss, layers, **{**usual, **more})


def learned() -> tuple[nn.Module, Data, Data]:
    """A model that is right about its selection images, because their labels are its answers."""
    model, data, selection = residual(5), some_data(60, 5), some_data(40, 6)
    images = selection.images[torch.arange(40)]
    with torch.no_grad():
        model.last.bias -= model(images).mean(0)  # type: ignore[union-attr, operator]
        labels = model(images).argmax(1)
    return model, data, Data(selection.images, labels, CLASSES, selection.index, selection.identities)


def test_a_rate_is_left_before_accuracy_falls_too_far_and_the_best_state_is_kept() -> None:
    model, data, selection = learned()
    found = tuned_with(model, data, selection, learning_rates=(1e-6, 1e-5, 30.0), allowed_drop=0.1)
    assert found.accuracy == 1.0
    wild = [one for one in found.trials if one.learning_rate == 30.0]
    assert len(wild) == 1 and not wild[0].allowed and wild[0].accuracy < 0.9  # left at once
    tame = [one for one in found.trials if one.allowed]
    assert found.best == max(tame, key=lambda one: one.score) and found.best.accuracy >= 0.9
    again = copy.deepcopy(model)
    again.load_state_dict(found.state)
    layer = target_layer(model)
    samples = mine(model, past_of(model), data, layer)
    assert mean_loss(again, samples, regression(layer, None)) < mean_loss(model, samples, regression(layer, None))


def test_where_every_state_loses_too_much_there_is_none() -> None:
    model, data, selection = learned()
    before = copy.deepcopy(model.state_dict())
    heard: list[tuple[int, int]] = []
    told = {"report": lambda done, total: heard.append((done, total))}
    found = tuned_with(model, data, selection, learning_rates=(30.0,), allowed_drop=0.1, **told)
    assert found.best is None and found.state == {} and len(found.trials) == 1 and heard == [(3, 3)]
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    anything = tuned_with(model, data, selection, learning_rates=(30.0,), allowed_drop=1.0)
    assert anything.best is not None and len(anything.trials) == 3


def test_the_score_decides_and_reports_count_the_grid() -> None:
    model, data, selection = learned()
    heard: list[tuple[int, int]] = []
    ticks = iter([1.0, 5.0, 5.0, 2.0])
    found = tuned_with(
        model,
        data,
        selection,
        learning_rates=(1e-7, 1e-6),
        epochs=2,
        score=lambda one: next(ticks),
        report=lambda done, total: heard.append((done, total)),
    )
    assert found.best is not None and (found.best.learning_rate, found.best.epoch) == (1e-7, 2)  # the first of equals
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_state_that_is_not_finite_is_never_kept() -> None:
    model, data, selection = learned()
    found = tuned_with(model, data, selection, learning_rates=(1e30, 1e-6), allowed_drop=1.0)
    assert found.best is not None and found.best.learning_rate == 1e-6
    assert [one.allowed for one in found.trials] == [False, True, True, True]  # the first rate is left at once
    blind = {"score": lambda one: 0.0, "epochs": 1}
    found = tuned_with(model, data, selection, learning_rates=(1e30,), allowed_drop=1.0, **blind)
    assert found.best is None and found.state == {}
    doubtful = {"score": lambda one: float("nan"), "epochs": 1}
    assert tuned_with(model, data, selection, learning_rates=(1e-6,), **doubtful).best is None


def test_the_mean_loss_is_that_of_evaluation_mode_and_leaves_no_trace() -> None:
    model, data = residual(), some_data(30)
    samples = mined_of(model, data)
    for loss in (cross_entropy, regression(target_layer(model), None)):
        wanted = mean_loss(model, samples, loss)
        model.train()
        before = {name: one.clone() for name, one in model.state_dict().items()}
        assert mean_loss(model, samples, loss) == wanted
        assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
        assert model.training and model.drop.training and model.eval()  # type: ignore[union-attr]


class Cut(nn.Module):
    """A frozen stem that no gradient goes back through; in place behind the cut."""

    def __init__(self, off: bool) -> None:
        super().__init__()
        self.stem, self.conv, self.dense = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 4, 3), nn.Linear(16, 5)
        self.relu, self.last = nn.LeakyReLU(0.2, inplace=True), nn.Linear(5, len(CLASSES))
        self.off = off

    def forward(self, x: Tensor) -> Tensor:
        if self.off:
            with torch.no_grad():
                x = self.stem(x)
        else:
            x = self.stem(x).detach()
        return self.last(self.relu(self.dense(self.relu(self.conv(x)).flatten(1))))


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("off", [True, False])
def test_a_network_may_cut_its_own_gradients(off: bool, frozen: bool) -> None:
    torch.manual_seed(0)
    model, data = Cut(off).double().eval(), some_data(20)
    model.stem.requires_grad_(not frozen)
    images, slices = data.images[torch.arange(20)].double(), random_slices(model, 0.6)
    layers = trainable_layers(model)
    tuner = Tuner(copy.deepcopy(model), layers, cross_entropy, slices, 1e-3)
    tuner.step(images, data.labels, torch.zeros(20, 1))
    for klass in range(len(CLASSES)):
        rows = data.labels == klass
        loss = F.cross_entropy(model(images[rows]), data.labels[rows], reduction="sum") / 20
        for name in ("conv.weight", "dense.weight", "last.weight"):
            weight = model.get_parameter(name)
            (plain,) = torch.autograd.grad(loss, weight, retain_graph=True)
            tuner.weights[name].grad -= torch.where(slices.mask(name, klass, weight), plain, 0)
    for name in ("conv.weight", "dense.weight", "last.weight"):
        assert float(tuner.weights[name].grad.abs().max()) < 1e-12  # nothing but these gradients was in it
        assert not torch.equal(tuner.weights[name], model.get_parameter(name))
    assert torch.equal(tuner.model.stem.weight, model.stem.weight)
    through = Tuner(copy.deepcopy(model), layers[:-1], regression(target_layer(model), slices), slices, 1e-3)
    through.step(images, data.labels, torch.rand(20, 5).double())
    assert not torch.equal(through.weights["conv.weight"], model.get_parameter("conv.weight"))


def test_tuning_reaches_its_targets() -> None:
    model, data = residual(), some_data(40)
    layer = target_layer(model)
    tutor = residual(1)
    images = data.images[torch.arange(40)]
    with torch.no_grad():
        targets = activation_of(tutor, images, layer)
    tuner = Tuner(copy.deepcopy(model), trainable_layers(model)[:3], regression(layer, None), None, 1e-2)
    losses = [float(tuner.step(images, data.labels, targets)) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]

"""Recording shows what the layers put out, and leaves nothing behind."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi import UserError
from ukemi.activations import layers_of, over_data, recording, unit_mean
from ukemi.data import DataSet, labelled
from ukemi.models import create


class Functional(nn.Module):
    """Calls `F.relu`, in place, so it has no activation module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.conv(x), inplace=True).mean((2, 3)))


class Shared(nn.Module):
    """One ReLU for two layers, held before the layers that run first."""

    def __init__(self) -> None:
        super().__init__()
        self.relu, self.last = nn.ReLU(), nn.Tanh()
        self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.relu(self.two(self.relu(self.one(x)))))


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


def test_the_outputs_are_those_of_the_layers_in_order() -> None:
    model, x = Shared(), torch.randn(7, 4)
    with recording(model) as outputs:
        model(x)
    first = model.one(x).relu()
    second = model.two(first).relu()
    assert len(outputs) == 3
    assert all(torch.equal(got, want) for got, want in zip(outputs, (first, second, second.tanh()), strict=True))


def test_a_second_pass_appends_and_keep_says_what_is_kept() -> None:
    model, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), torch.randn(3, 1, 5, 5)
    with recording(model, unit_mean) as outputs:
        given = model(x), model(2 * x)
    assert [torch.equal(got, each.mean((2, 3))) for got, each in zip(outputs, given, strict=True)] == [True, True]


@pytest.mark.parametrize("kind", [nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Hardswish, nn.PReLU])
def test_activation_modules_count_and_the_last_linear_does_not(kind: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(3, 4), kind(), nn.Linear(4, 2))
    assert layers_of(model) == [model[1]]


def test_without_activation_modules_weighted_layers_count() -> None:
    model, x = Functional(), torch.randn(2, 1, 6, 6)
    assert layers_of(model) == [model.conv, model.head]
    with recording(model) as outputs:
        logits = model(x)
    # a copy from before the in-place ReLU
    assert torch.equal(outputs[0], model.conv(x)) and outputs[0].min() < 0
    assert torch.equal(outputs[1], logits)


def test_a_model_without_neurons_is_named() -> None:
    with pytest.raises(UserError, match=r"activations: Flatten has no activation module, Conv2d or Linear"):
        layers_of(nn.Flatten())
    with pytest.raises(UserError, match="Flatten"), recording(nn.Flatten()):
        pass


def test_hooks_go_whatever_happens_and_others_stay() -> None:
    model = Shared()
    model.relu.register_forward_hook(lambda *_: None)
    before = hooks(model)
    with pytest.raises(RuntimeError), recording(model):
        model(torch.randn(2, 99))
    assert hooks(model) == before == 1
    with recording(model) as outer, recording(model) as inner:
        model(torch.randn(2, 4))
    assert len(outer) == len(inner) == 3 and hooks(model) == before


def test_a_compiled_model_is_recorded_too() -> None:
    model, x = Shared(), torch.randn(2, 4)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        expected = compiled(x)
        with recording(compiled) as outputs:  # type: ignore[arg-type]
            again = compiled(x)
        compiled(x)
    assert len(outputs) == 3 and torch.equal(outputs[2], expected) and torch.equal(again, expected)


@pytest.mark.parametrize("name", ["demo-cnn", "lenet5", "resnet20"])
def test_the_papers_networks_have_neurons(name: str) -> None:
    model = create(name, classes=10, channels=1, size=(28, 28)).eval()
    with torch.no_grad(), recording(model) as outputs:
        model(torch.rand(2, 1, 28, 28))
    assert len(outputs) == len(layers_of(model)) and all(len(output) == 2 for output in outputs)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Checks that modes, weights, statistics and the random state are the same afterwards."""
    modes = [module.training for module in model.modules()]
    state = copy.deepcopy(model.state_dict())
    generator = torch.get_rng_state()
    yield
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state()) and hooks(model) == 0


def test_walking_over_data_gives_every_row_and_leaves_no_trace(tiny_net: nn.Module, fashion: DataSet) -> None:
    tiny_net.train()[0].eval()
    data = fashion.train.take(torch.arange(300))  # a full chunk of 256, and a padded one
    with untouched(tiny_net):
        parts = list(over_data(tiny_net, data, unit_mean))
    assert [len(batch.labels) for batch, _ in parts] == [256, 44]
    got = torch.cat([means[0] for _, means in parts])
    tiny_net.eval()
    with torch.no_grad():
        expected = tiny_net[:3](data.batch(torch.arange(300), "cpu").images).mean((2, 3))
    assert torch.allclose(got, expected, atol=1e-6) and not got.is_inference()
    few = torch.tensor([5, 280, 7])
    ((batch, means),) = over_data(tiny_net, data, unit_mean, few)
    assert torch.equal(batch.index, data.index[few]) and torch.allclose(means[0], expected[few], atol=1e-6)


class Rows(nn.Module):
    """Its first layer gives rows of pixels as images, its second one row per image; a third is never asked."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.idle = nn.ReLU(), nn.Tanh(), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.reshape(-1, 2)).view(-1, 4))


def test_rows_that_are_no_images_are_refused_where_they_are_wanted() -> None:
    data = labelled(torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 0]))
    with pytest.raises(UserError, match=r"activations: every layer .* but 256 images gave 512, 256 rows\."):
        list(over_data(Rows(), data, unit_mean))
    ((_, (means,)),) = over_data(Rows(), data, unit_mean, last=True)
    assert torch.equal(means, data.images[torch.arange(3)].flatten(1).tanh())
    silent = nn.Sequential(nn.Flatten())
    silent.add_module("unused", nn.ReLU())
    silent.forward = lambda x: x.flatten(1)  # type: ignore[method-assign]
    with pytest.raises(UserError, match="none of the model's layers that have neurons takes part"):
        list(over_data(silent, data, unit_mean))


def test_a_model_without_parameters_can_be_walked() -> None:
    data = labelled(torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 0]))
    ((_, means),) = over_data(nn.Sequential(nn.Flatten(), nn.Tanh()), replace(data), unit_mean)
    assert torch.equal(means[0], data.images[torch.arange(3)].flatten(1).tanh())


def test_a_model_of_another_precision_than_the_images_is_named(fashion: DataSet) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 3), nn.ReLU()).double()
    with pytest.raises(UserError, match=r"images: they are torch.float32, but the model's weights are torch.float64"):
        next(over_data(model, fashion.test, unit_mean))

"""Key layers in their order, and what their neurons give behind BatchNorm and activation."""

import gc
import weakref

import pytest
import torch
from branching import branching, samples
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi import models
from ukemi.errors import UserError
from ukemi.models import MODELS
from ukemi.slicing import activation_of, key_layers
from ukemi.slicing.steps import plan_of
from ukemi.slicing.tracing import graph_of


def recorded(model: nn.Module, name: str, images: Tensor) -> Tensor:
    """The output of a module by a plain hook."""
    outputs: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(lambda module, given, output: outputs.append(output))
    model(images)
    handle.remove()
    return outputs[-1]


@pytest.mark.parametrize("name", MODELS)
def test_every_network_of_the_table_has_key_layers_and_steps(name: str) -> None:
    shape = MODELS[name].shape
    side = 28 if shape.channels == 1 else 32
    with torch.device("meta"):
        net = models.create(name, classes=2, channels=shape.channels, size=(side, side)).eval()
        plan = plan_of(net, torch.zeros(2, shape.channels, side, side))
    layers = key_layers(net)
    assert {layer.weight for layer in layers} == {key for key, value in net.named_parameters() if value.ndim > 1}
    assert [layer.name for layer in layers] == [step.name for step in plan.weighted()]
    assert layers[-1].after == layers[-1].name and plan.logits == layers[-1].outputs == 2


def test_layers_follow_the_order_of_execution() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.unused, self.first = nn.Linear(4, 2), nn.Linear(9, 9), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.relu(self.first(x.flatten(1))))

    layers = key_layers(Backwards())
    assert [(layer.name, layer.weight, layer.after, layer.outputs) for layer in layers] == [
        ("first", "first.weight", "relu", 4),
        ("last", "last.weight", "last", 2),
    ]


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("demo-cnn", ["network.2", "network.5", "network.8", "network.10"]),
        ("resnet20", ["network.0", "network.1.relu2", "network.1.conv2"]),
        ("resnet18", ["network.2", "network.3.path.2", "network.3.path.4"]),
        ("gtsrb-3", ["network.2", "network.5"]),  # a BatchNorm behind the ReLU belongs to the layer too
    ],
)
def test_a_layer_ends_behind_its_norm_and_activation(name: str, after: list[str]) -> None:
    channels = MODELS[name].shape.channels
    net = models.create(name, classes=2, channels=channels, size=(28, 28)).eval()
    layers = key_layers(net)
    assert [layer.after for layer in layers][: len(after)] == after
    images = torch.rand(2, channels, 28, 28)
    for layer in layers[: len(after)]:
        seen = recorded(net, layer.after, images)
        mean = seen.mean((2, 3)) if seen.ndim > 2 else seen
        torch.testing.assert_close(activation_of(net, images, layer), mean)


def test_dropout_may_lie_between_a_layer_and_its_norm_or_activation() -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Dropout(), nn.BatchNorm2d(3), nn.Identity(), nn.ReLU(), nn.Dropout())
    net = nn.Sequential(*net, nn.Flatten(), nn.Linear(48, 2)).eval()
    assert [layer.after for layer in key_layers(net)] == ["4", "7"]  # no further than the activation
    images = torch.randn(3, 2, 4, 4)
    torch.testing.assert_close(activation_of(net, images, "0"), net[:5](images).mean((2, 3)))


def test_a_pool_may_lie_between_a_layer_and_its_activation() -> None:
    class Pooled(nn.Module):
        """As torch's own example for MNIST."""

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.head = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 2, 1)
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(F.max_pool2d(F.relu(F.max_pool2d(self.one(x), 2)), 2))
            x = torch.relu(self.norm(F.avg_pool2d(self.two(x), 1)))
            return F.adaptive_avg_pool2d(self.head(x), 1).flatten(1)

    net, images = Pooled().eval(), torch.randn(3, 2, 4, 4)
    # no further than the activation where one was met; a pool that none follows is no end
    assert [layer.after for layer in key_layers(net)] == ["relu", "relu_1", "head"]
    seen = F.relu(F.max_pool2d(net.one(images), 2)).mean((2, 3))
    torch.testing.assert_close(activation_of(net, images, "one"), seen)


def test_norm_as_a_function_belongs_to_its_layer() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 3, 1), nn.Linear(3, 2)
            self.register_buffer("mean", torch.rand(3))
            self.register_buffer("variance", torch.rand(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.relu(F.batch_norm(self.conv(x), self.mean, self.variance)).mean((2, 3)))

    net, images = Functional().eval(), torch.randn(3, 2, 4, 4)
    assert key_layers(net)[0].after == "relu"
    seen = F.relu(F.batch_norm(net.conv(images), net.mean, net.variance)).mean((2, 3))
    torch.testing.assert_close(activation_of(net, images, "conv"), seen)


def test_a_layer_that_runs_twice_gives_what_it_gave_last() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.head = nn.Linear(32, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.again(F.relu(self.first(x.flatten(1)))))
            return self.head(torch.tanh(self.again(x)))

    net, images = Twice(), torch.randn(3, 2, 4, 4)
    assert [(layer.name, layer.after) for layer in key_layers(net)][1] == ("again", "tanh")
    once = F.relu(net.again(F.relu(net.first(images.flatten(1)))))
    torch.testing.assert_close(activation_of(net, images, "again"), torch.tanh(net.again(once)))


def test_the_last_layer_gives_the_logits() -> None:
    for name in ("demo-cnn", "nin"):
        net = models.create(name, classes=3, channels=1, size=(28, 28)).eval()
        images = torch.rand(2, 1, 28, 28)
        torch.testing.assert_close(activation_of(net, images, key_layers(net)[-1]), net(images))


def test_gradients_flow_to_the_layer_and_stop_there() -> None:
    model, images = branching(), samples(4).images
    activation_of(model, images, "block").square().sum().backward()
    assert model.block.weight.grad is not None and model.stem.weight.grad is not None
    assert model.head.weight.grad is None and model.side.weight.grad is None
    own = model.stem.weight.grad.clone()
    model.zero_grad()
    pooled = model.pool(F.relu(model.norm(model.stem(images))))
    model.block(pooled).mean((2, 3)).square().sum().backward()
    torch.testing.assert_close(own, model.stem.weight.grad)
    with torch.no_grad():
        assert not activation_of(model, images, "block").requires_grad


def test_modes_and_weights_are_the_models_own_at_the_time() -> None:
    model, images = branching(), samples(4).images
    still = activation_of(model, images, "stem")
    model.stem.weight.data.mul_(2)
    assert not activation_of(model, images, "stem").equal(still)
    model.train()
    mean = model.norm.running_mean.clone()
    activation_of(model, images, "stem")
    assert model.training and not model.norm.running_mean.equal(mean)  # a training pass is one
    assert model.eval() and activation_of(model, images, "stem").shape == (4, 4)


def test_a_network_is_traced_once_and_not_kept() -> None:
    model = branching()
    graph = graph_of(model)
    assert graph_of(model) is graph and graph_of(model.train()) is not graph and graph_of(model.eval()) is graph
    model.block = nn.Conv2d(4, 4, 1).double()
    assert graph_of(model) is not graph
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_what_is_no_key_layer_is_named() -> None:
    with pytest.raises(UserError, match=r"layer: 'norm' is no Linear or Conv2d .* there are stem, block, side, head"):
        activation_of(branching(), samples(2).images, "norm")
    with pytest.raises(UserError, match="no Linear or Conv2d layer to slice or tune"):
        key_layers(nn.Sequential(nn.Flatten(), nn.ReLU()))


def test_a_computed_weight_is_named() -> None:
    net = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))
    with pytest.raises(UserError, match="the weight of layer '1' is computed, so it can't be sliced or tuned"):
        key_layers(net)

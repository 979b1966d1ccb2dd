"""What can't be sliced, and settings that make no sense, are named in one sentence."""

import warnings
from collections.abc import Callable

import pytest
import torch
from branching import branching, samples
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi.errors import UserError
from ukemi.slicing import Reading, slices_of


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 3, 1), nn.Linear(48, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.head((x * x.sigmoid()).flatten(1))


def flat_net(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 3, 1), *layers, nn.Flatten(), nn.Linear(48, 2)).double()


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (lambda: Gated().double(), "operation 'mul' .* two activations are multiplied"),
        (lambda: flat_net(nn.GroupNorm(1, 3)), r"layer '1' \(GroupNorm\) can't be sliced"),
        (lambda: flat_net(nn.ConvTranspose2d(3, 3, 1)), r"layer '1' \(ConvTranspose2d\)"),
        (lambda: flat_net(nn.PixelShuffle(1), nn.Softmax(1)), r"layer '1' \(PixelShuffle\)"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Softmax(1)), "no Linear or Conv2d layer"),
        (
            lambda: nn.Sequential(
                nn.Conv2d(2, 2, 4), nn.Flatten(0, 1), nn.Flatten(0), nn.Unflatten(0, (-1, 2))
            ).double(),
            "can't be sliced",
        ),
    ],
)
def test_what_cannot_be_sliced_is_named(net, said: str) -> None:
    with pytest.raises(UserError, match=said):
        slices_of(net(), samples(4, 2))


class Called(nn.Module):
    """A convolution, then a call of one's choice, then a Linear."""

    def __init__(self, call: Callable[[Tensor], Tensor], wide: int, channels: int = 4) -> None:
        super().__init__()
        self.conv, self.head, self.call = nn.Conv2d(2, channels, 1), nn.Linear(wide, 2), call

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.call(self.conv(x)).flatten(1))


@pytest.mark.parametrize("reading", ["paper", "nnslicer"])
@pytest.mark.parametrize(
    ("net", "said"),
    [
        (lambda: Called(lambda x: torch.cat(x.chunk(2, 1), 1), 64), r"operation 'cat' .* parts of one tensor"),
        (lambda: Called(lambda x: x.mean(axis=1), 16), "operation 'mean' .* only places of maps may be pooled"),
        (lambda: Called(lambda x: x.flatten(2).mean(1), 16), "operation 'mean' .* only places of maps may be pooled"),
        (lambda: Called(lambda x: x.mean(3).amax(2), 4), "operation 'amax' .* only places of maps may be pooled"),
        (lambda: Called(lambda x: x.amax(dim=1), 16), "operation 'amax' .* only places of maps may be pooled"),
    ],
)
def test_calls_over_channels_are_named(net: Callable[[], nn.Module], said: str, reading: Reading) -> None:
    with pytest.raises(UserError, match=said):
        slices_of(net().double(), samples(4, 2), reading=reading)


def test_only_the_output_may_be_a_softmax() -> None:
    inner = nn.Sequential(nn.Flatten(), nn.Linear(32, 4), nn.Softmax(1), nn.Linear(4, 2)).double()
    with pytest.raises(UserError, match=r"layer '2' \(Softmax\) can't be sliced: only the output may be a softmax"):
        slices_of(inner, samples(4, 2))
    over_images = nn.Sequential(nn.Flatten(), nn.Linear(32, 2), nn.LogSoftmax(0)).double()
    with pytest.raises(UserError, match="over the classes"):
        slices_of(over_images, samples(4, 2))


class Filtered(nn.Module):
    """A convolution as a function, with the model's own weight or a fixed one, then a Linear."""

    def __init__(self, trained: bool) -> None:
        super().__init__()
        self.kernel, self.head = nn.Parameter(torch.rand(3, 2, 1, 1), requires_grad=trained), nn.Linear(48, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.conv2d(x, self.kernel).flatten(1))


class Centred(nn.Conv2d):
    """Its weight is not the one that it works with."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias)


class Renamed(nn.Conv2d):
    """A plain convolution under another name."""


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (lambda: Filtered(True), r"operation 'conv2d' \(at 'conv2d'\) can't be sliced"),
        (
            lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)),
            r"layer '0' \(ConvTranspose2d\) can't be sliced",
        ),
        (lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(2, 3, 1), nn.Flatten(), nn.Linear(48, 2)), r"'1' \(Conv1d\)"),
    ],
)
def test_weights_before_the_first_layer_that_can_be_sliced_are_named(net, said: str) -> None:
    """Passed over in silence, the network would keep weights that are in no slice."""
    with pytest.raises(UserError, match=said):
        slices_of(net().double(), samples(4, 2))


def test_a_fixed_filter_may_come_first() -> None:
    assert list(slices_of(Filtered(False).double(), samples(4, 2)).synapses) == ["head.weight"]


def test_a_layer_that_computes_something_else_is_named() -> None:
    def net(first: nn.Module) -> nn.Module:
        return nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)).double()

    with pytest.raises(UserError) as caught:
        slices_of(net(Centred(2, 3, 1)), samples(4, 2))
    assert str(caught.value) == (
        "model: layer '0' (Centred) can't be sliced: it doesn't compute what a Conv2d with its weight does."
    )
    hooked = net(nn.Conv2d(2, 3, 1))
    hooked[0].register_forward_hook(lambda module, given, output: -output)
    with pytest.raises(UserError, match=r"layer '0' \(Conv2d\) can't be sliced: it doesn't compute"):
        slices_of(hooked, samples(4, 2))
    assert "0.weight" in slices_of(net(Renamed(2, 3, 1)), samples(4, 2)).synapses


def test_layers_that_share_a_weight_are_named() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 2)).double()
    net[2].weight = net[1].weight
    with pytest.raises(UserError, match="layers '1' and '2' share one weight, so they can't be sliced"):
        slices_of(net, samples(4, 2))


@pytest.mark.parametrize("multiplied", [True, False])
def test_a_constant_that_widens_is_named(multiplied: bool) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 1, 1), nn.Linear(48, 2)
            self.register_buffer("per_channel", torch.rand(3, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return self.head((x * self.per_channel if multiplied else x + self.per_channel).flatten(1))

    with pytest.raises(UserError, match=r"operation '(mul|add)' .* its constant makes more numbers of one"):
        slices_of(Wide().double(), samples(4, 2))


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((nn.Upsample(scale_factor=2), nn.MaxPool2d(2)), r"layer '1' \(Upsample\) mixes them"),
        ((nn.AdaptiveAvgPool2d(3), nn.ZeroPad2d((0, 1, 1, 0))), r"layer '1' .* has windows of different sizes"),
        ((nn.ReflectionPad2d(1), nn.AvgPool2d(3, 1)), r"layer '1' \(ReflectionPad2d\) mixes them"),
        ((nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"),), r"layer '1' \(Conv2d\) doesn't pad by zeros"),
    ],
)
def test_what_only_channels_can_follow_is_named(layers: tuple[nn.Module, ...], said: str) -> None:
    net = flat_net(*layers)
    assert slices_of(net, samples(4, 2)).synapses["0.weight"].any()
    with pytest.raises(UserError, match="reading: nnslicer follows single places, but " + said):
        slices_of(net, samples(4, 2), reading="nnslicer")


def test_a_network_that_looks_at_values_cannot_be_traced() -> None:
    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(32, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x.flatten(1) if x.sum() > 0 else -x.flatten(1))

    with pytest.raises(UserError, match=r"Looking can't be traced by torch\.fx"):
        slices_of(Looking().double(), samples(4, 2))
    with warnings.catch_warnings(action="ignore"):
        scripted = torch.jit.trace(nn.Sequential(nn.Flatten(), nn.Linear(32, 2)), torch.rand(1, 2, 4, 4))
    with pytest.raises(UserError, match=r"can't be traced by torch\.fx"):
        slices_of(scripted.double(), samples(4, 2))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"q": 0}, "q: a percentage above 0 and up to 100 is expected, but 0 was given"),
        ({"q": 100.1}, "q: .* but 100.1 was given"),
        ({"q": float("nan")}, "q: "),
        ({"theta": 1}, "theta: a share"),
        ({"reading": "own"}, "reading: 'own' is none of paper, released, set-mean, nnslicer"),
        ({"batch_size": 0}, "batch-size: 1 or more"),
        ({"classes": [0, 3]}, r"classes: different labels from 0 to 2 are expected, but \[0, 3\]"),
        ({"classes": [1, 1]}, "classes: different labels"),
        ({"classes": []}, "classes: different labels"),
        ({"baseline": samples(2, side=5)}, "baseline: its images should have the shape"),
        ({"baseline": samples(2).take(torch.arange(0))}, "baseline: there is no image to take means over"),
    ],
)
def test_bad_settings_are_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        slices_of(branching(), samples(6), **given)


def test_a_class_without_samples_is_named() -> None:
    data = samples(6).take(torch.tensor([0, 2, 3]))
    with pytest.raises(UserError, match="there is no sample of class 'b' to slice by"):
        slices_of(branching(), data)
    assert slices_of(branching(), data, classes=[0, 2]).classes == ("a", "c")


def test_a_head_that_is_too_small_is_named() -> None:
    with pytest.raises(UserError, match="5 classes, but 3 logits"):
        slices_of(branching(), samples(10, 5))


def test_numbers_that_are_not_finite_are_named() -> None:
    model = branching()
    model.stem.bias.data[0] = torch.inf
    with pytest.raises(UserError, match="numbers that are not finite"):
        slices_of(model, samples(6))

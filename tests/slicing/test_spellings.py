"""The same network in other words gives the same slices."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from branching import WEIGHTS, Branching, branching, by_channels, by_places, samples
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi.slicing import slices_of

READINGS = ("paper", "released", "set-mean", "nnslicer")
Gather = Callable[[Tensor], Tensor]
Joining = Callable[[Tensor, Tensor], Tensor]


class Functional(nn.Module):
    """What `modular` does, in functions and methods."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.first, self.norm, self.second, self.head = layers[0], layers[1], layers[5], layers[9]

    def forward(self, x: Tensor, scale: float = 2.0, wide: bool = False) -> Tensor:
        if wide:
            return x
        x = F.dropout(F.max_pool2d(F.relu(self.norm(self.first(x))), 2, stride=1), 0.5, self.training)
        x = self.second(F.pad(x, (0, 1, 0, 1))).relu_() * scale / 2
        x = x.mean((2, 3))
        return self.head(x.view(x.size(0), -1).contiguous() + 1.0)


def modular() -> nn.Sequential:
    net = nn.Sequential(
        *(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2, 1), nn.ZeroPad2d((0, 1, 0, 1))),
        *(nn.Conv2d(4, 6, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)),
    )
    return net.double().eval()


@pytest.mark.parametrize("reading", READINGS)
def test_functions_mean_what_layers_mean(reading: str) -> None:
    layers, data = modular(), samples(9)
    by_layers, by_calls = (slices_of(net, data, reading=reading) for net in (layers, Functional(layers)))
    for one, other in (("0", "first"), ("5", "second"), ("9", "head")):
        assert by_layers.contributions[f"{one}.weight"].equal(by_calls.contributions[f"{other}.weight"])
        assert by_layers.neurons[one].equal(by_calls.neurons[other])
    assert all(one.any() for one in by_calls.contributions.values())


class Differing(nn.Module):
    """The difference of two convolutions' largest places."""

    def __init__(self, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.one, self.two, self.pool = nn.Conv2d(2, 3, 1, bias=False), nn.Conv2d(2, 3, 1, bias=False), pool
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x) + self.two(x) if self.pool else self.one(x) - self.two(x)
        return self.head(self.pool(x).flatten(1) if self.pool else x.amax((-1, -2)))


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("pool", [nn.AdaptiveMaxPool2d(1), nn.MaxPool2d(4)])
def test_a_difference_is_a_sum_with_negative_weights(reading: str, pool: nn.Module) -> None:
    one, other = Differing().double(), Differing(pool).double()
    other.load_state_dict(one.state_dict())
    other.two.weight.data.neg_()
    data = samples(6, 2)
    first, second = (slices_of(net, data, reading=reading).contributions for net in (one, other))
    assert all(first[name].equal(second[name]) and first[name].any() for name in first)


class Answering(nn.Module):
    def __init__(self, end: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.one, self.head, self.end = nn.Linear(32, 5), nn.Linear(5, 2), end

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.head(F.relu(self.one(x.flatten(1)))))


@pytest.mark.parametrize("reading", ["paper", "set-mean", "nnslicer"])
@pytest.mark.parametrize(
    "end",
    [nn.LogSoftmax(1), lambda x: F.log_softmax(x, dim=-1), lambda x: x.softmax(1)],
    ids=["layer", "call", "method"],
)
def test_a_softmax_at_the_end_changes_nothing(end: Callable[[Tensor], Tensor], reading: str) -> None:
    plain, model, data = Answering(nn.Identity()).double(), Answering(end).double(), samples(6, 2)
    model.load_state_dict(plain.state_dict())
    wanted, found = (slices_of(net, data, reading=reading, q=40) for net in (plain, model))
    for name, contribution in wanted.contributions.items():
        assert contribution.any() and found.contributions[name].equal(contribution)


class Spelled(nn.Module):
    """Two convolutions, joined or added by a call of one's choice, means over places, a Linear."""

    def __init__(self, both: Joining, wide: int = 3) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 1), nn.Linear(wide, 2)
        self.both = both

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.both(self.one(x), self.two(x)).mean((2, 3), keepdim=True).squeeze(3).squeeze(2))


@pytest.mark.parametrize("reading", ["paper", "nnslicer"])
@pytest.mark.parametrize(
    ("plain", "spelled"),
    [
        (lambda a, b: a + b, lambda a, b: torch.add(a, other=b)),
        (lambda a, b: a + b, lambda a, b: torch.add(input=a, other=b)),
        (lambda a, b: a - b, lambda a, b: a.sub(other=b)),
        (lambda a, b: torch.cat([a, b], 1), lambda a, b: torch.cat([a, b], axis=1)),
        (lambda a, b: torch.cat([a, b], 1), lambda a, b: torch.cat(tensors=(a, b), dim=-3)),
    ],
    ids=["other", "both", "method", "axis", "tensors"],
)
def test_the_spelling_of_a_call_changes_nothing(plain: Joining, spelled: Joining, reading: str) -> None:
    wide = 6 if "cat" in plain.__code__.co_names else 3
    model, data = Spelled(plain, wide).double(), samples(6, 2)
    wanted = slices_of(model, data, reading=reading)
    again = Spelled(spelled, wide).double()
    again.load_state_dict(model.state_dict())
    found = slices_of(again, data, reading=reading)
    for name, contribution in wanted.contributions.items():
        assert contribution.any() and found.contributions[name].equal(contribution)


class Averaging(Branching):
    """`Branching` with its average pool, which covers the whole map, in other words."""

    def __init__(self, mean: Gather) -> None:
        super().__init__()
        self.mean = mean

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.norm(self.stem(x))))
        return self.head(self.mean(torch.cat([self.block(x) + x, self.side(x)], 1)))


@pytest.mark.parametrize(
    "mean",
    [
        lambda x: x.flatten(2).mean(-1),
        lambda x: x.view(x.size(0), x.size(1), -1).mean(2),
        lambda x: x.mean(3).mean(2),
        lambda x: torch.mean(x.mean(2), dim=-1),
        lambda x: x.mean(3, keepdim=True).mean(2, keepdim=True).flatten(1),
        lambda x: x.flatten(2).contiguous().mean(-1),
        lambda x: F.dropout(x.mean(3).clone(), training=False).mean(2).contiguous(),
    ],
    ids=["flattened", "viewed", "rows", "columns", "kept", "contiguous", "copied"],
)
def test_a_mean_over_all_places_equals_the_slow_one(mean: Gather) -> None:
    model, data, baseline = branching(), samples(9), samples(7)
    spelled = Averaging(mean).double().eval()
    spelled.load_state_dict(model.state_dict())
    slow = {"paper": by_channels(model, data, baseline), "nnslicer": by_places(model, data, baseline, 0.2)}
    for reading, wanted in slow.items():
        found = slices_of(spelled, data, baseline=baseline, reading=reading, batch_size=4).contributions
        for label, (signs, _) in wanted.items():
            assert all(found[f"{name}.weight"][label].equal(signs[name]) for name in WEIGHTS), reading


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(
    ("plain", "spelled"),
    [
        (lambda x: x.amax((2, 3)), lambda x: x.flatten(2).amax(-1)),
        (lambda x: x.amax((2, 3)), lambda x: x.amax(3).amax(2)),
        (lambda x: F.avg_pool2d(x, (1, 4)), lambda x: x.mean(3)),
        (lambda x: F.max_pool2d(x, (4, 1)), lambda x: torch.amax(x, dim=-2)),
        (lambda x: F.avg_pool2d(x, (1, 4)).relu(), lambda x: x.mean(3).relu().contiguous()),
    ],
    ids=["flattened", "sides", "rows", "columns", "activated"],
)
def test_what_is_gathered_from_one_side_is_gathered_in_windows(plain: Gather, spelled: Gather, reading: str) -> None:
    class Gathering(nn.Module):
        def __init__(self, gather: Gather) -> None:
            super().__init__()
            self.conv, self.gather = nn.Conv2d(2, 3, 1), gather
            self.head = nn.Linear(plain(torch.zeros(1, 3, 4, 4)).numel(), 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.gather(self.conv(x)).flatten(1))

    one, other, data = Gathering(plain).double(), Gathering(spelled).double(), samples(6, 2)
    other.load_state_dict(one.state_dict())
    wanted, found = (slices_of(net, data, reading=reading).contributions for net in (one, other))
    assert all(wanted[name].any() and found[name].equal(wanted[name]) for name in wanted)


@pytest.mark.parametrize("reading", READINGS)
def test_writing_in_place_changes_nothing(reading: str) -> None:
    """Behind a dense layer too, as AlexNet and VGG have it elsewhere: what a layer gave is looked at before it is
    overwritten."""

    class Dense(nn.Module):
        def __init__(self, inplace: bool) -> None:
            super().__init__()
            self.one, self.two, self.head = nn.Linear(32, 8), nn.Linear(8, 8), nn.Linear(8, 3)
            self.inplace = inplace

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.one(x.flatten(1)), self.inplace)
            y = self.two(x)
            if self.inplace:
                y += x
            else:
                y = y + x
            return self.head(F.relu(y, self.inplace))

    plain, writing, data = Dense(False).double(), Dense(True).double(), samples(30)
    writing.load_state_dict(plain.state_dict())
    wanted, found = (slices_of(net, data, reading=reading) for net in (plain, writing))
    for name, contribution in wanted.contributions.items():
        assert contribution.any() and found.contributions[name].equal(contribution)


@pytest.mark.parametrize("reading", READINGS)
def test_numbers_of_two_precisions_may_meet(reading: str) -> None:
    class Narrowed(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 4, 1).double(), nn.Linear(4, 3)
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.net(self.conv(x).relu().mean((2, 3))))

    class ToFloat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.float()

    model, data = Narrowed(ToFloat()), samples(9)
    whole = Narrowed(nn.Identity()).double()
    whole.load_state_dict(model.state_dict())
    found, wanted = (slices_of(net, data, reading=reading).contributions for net in (model, whole))
    assert all(one.any() and one.double().equal(wanted[name].double()) for name, one in found.items())


def test_padding_is_never_the_largest_of_a_pool() -> None:
    """Though all that the convolution gives is below 0."""
    conv, head, data = nn.Conv2d(2, 3, 1), nn.Linear(12, 2), samples(6, 2)
    conv.bias.data -= 10
    inside = nn.Sequential(conv, nn.MaxPool2d(3, 2, 1), nn.Flatten(), head).double()
    before = nn.Sequential(conv, nn.ConstantPad2d(1, -1e3), nn.MaxPool2d(3, 2), nn.Flatten(), head).double()
    one, other = (slices_of(net, data, reading="nnslicer").contributions for net in (inside, before))
    assert one["0.weight"].equal(other["0.weight"]) and one["0.weight"].any()


def test_a_pool_with_gaps_looks_at_every_second_place() -> None:
    conv, head, data = nn.Conv2d(2, 3, 1), nn.Linear(12, 2), samples(6, 2)
    gaps = nn.Sequential(conv, nn.MaxPool2d(2, 1, dilation=2), nn.Flatten(), head).double()
    close = nn.Sequential(conv, nn.MaxPool2d(2), nn.Flatten(), head).double()
    order = torch.tensor([0, 2, 1, 3])
    sorted_by_gaps = replace(data, images=data.images[:, :, order][..., order])
    one, other = slices_of(gaps, data, reading="nnslicer"), slices_of(close, sorted_by_gaps, reading="nnslicer")
    assert one.contributions["0.weight"].equal(other.contributions["0.weight"]) and one.contributions["0.weight"].any()


def test_what_is_padded_is_cut_off_on_its_own_side() -> None:
    """A network and its mirror image."""
    pads, layers = (1, 0, 0, 2), (nn.Conv2d(2, 3, 1), nn.Conv2d(3, 4, 2), nn.Linear(4 * 5 * 4, 2))
    one, two, head = (layer.double() for layer in layers)
    net = nn.Sequential(one, nn.ZeroPad2d(pads), two, nn.ReLU(), nn.Flatten(), head)
    mirror = nn.Sequential(
        one, nn.ZeroPad2d((0, 1, 2, 0)), nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(80, 2)
    )
    mirror.double().load_state_dict(net.state_dict())
    mirror[2].weight.data = two.weight.data.flip((2, 3))
    mirror[5].weight.data = head.weight.data.unflatten(1, (4, 5, 4)).flip((2, 3)).flatten(1)
    data = samples(8, 2)
    turned = replace(data, images=data.images.flip((2, 3)))
    found, wanted = slices_of(net, data, reading="nnslicer"), slices_of(mirror, turned, reading="nnslicer")
    for name, contribution in wanted.contributions.items():
        if name != "5.weight":
            assert contribution.any() and found.contributions[name].equal(contribution)

"""Slices against a network computed by hand, slow references, and the layers that a convolution stands for."""

import pytest
import torch
from branching import WEIGHTS, branching, by_channels, by_class_means, by_places, samples
from torch import Tensor, nn

from ukemi import models
from ukemi.data import Data, labelled
from ukemi.models.layers import MaxNormLinear
from ukemi.slicing import Slices, slices_of

READINGS = ("paper", "released", "set-mean", "nnslicer")


def by_hand() -> tuple[nn.Sequential, Data, Data]:
    """A 2-3-2-2 network without biases, one sample of class 0, and a baseline at which every neuron gives 0."""
    net = nn.Sequential(
        *(nn.Flatten(), nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False), nn.ReLU()),
        nn.Linear(2, 2, bias=False),
    )
    weights = ([[1, 1], [-1, 1], [3, -1]], [[1, -2, 1], [-1, 1, 3]], [[1, -3], [-1, 2]])
    for layer, weight in zip(net[1::2], weights, strict=True):
        layer.weight.data = torch.tensor(weight, dtype=torch.float32)
    index = torch.arange(1)
    sample = Data(torch.tensor([1.0, 2.0]).view(1, 2, 1, 1), index, ("yes", "no"), index, 1)
    return net, sample, Data(torch.zeros(1, 2, 1, 1), index, ("yes", "no"), index, 1)


def sliced_by_hand(q: float, reading: str = "paper") -> Slices:
    net, sample, baseline = by_hand()
    return slices_of(net, sample, baseline=baseline, classes=[0], q=q, reading=reading)


def test_a_network_computed_by_hand() -> None:
    # (3, 1, 1), (2, 1) and (-1, 0) are the activations; the logit of class 0 moves by -1
    found = sliced_by_hand(50)
    assert found.classes == ("yes",) and found.contributions["5.weight"].tolist() == [[[-1, 1], [0, 0]]]
    assert found.contributions["3.weight"].tolist() == [[[-1, 1, -1], [-1, 1, 1]]]
    assert found.contributions["1.weight"].tolist() == [[[-1, -1], [-1, 1], [0, 0]]]


@pytest.mark.parametrize(
    ("q", "first"),
    [
        (10, [[0, 0], [0, 1], [0, 0]]),
        (33, [[0, 0], [0, 1], [1, 0]]),  # of two zeros, real values 0 too, the larger weight
        (50, [[0, 0], [0, 1], [1, 1]]),
        (65, [[0, 0], [1, 1], [1, 1]]),  # real values -6, -12 and -2 stand behind the three -1
        (83, [[1, 0], [1, 1], [1, 1]]),
        (100, [[1, 1], [1, 1], [1, 1]]),
    ],
)
def test_ties_go_to_the_real_contribution_then_to_the_weight(q: float, first: list[list[int]]) -> None:
    assert sliced_by_hand(q).synapses["1.weight"].int().tolist() == [first]


def test_where_nothing_contributes_the_largest_weights_of_either_sign_are_kept() -> None:
    net, still = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), samples(1, 1, channels=4, side=1)
    net[1].weight.data = torch.tensor([[-5.0, 1.0, 2.0, -3.0], [0.5, 0.0, -1.0, 1.5]])
    found = slices_of(net.double(), still, q=25)  # the sample is its own mean
    assert not found.contributions["1.weight"].any()
    assert found.synapses["1.weight"].int().tolist() == [[[1, 0, 0, 1], [0, 0, 0, 0]]]


def test_neurons_at_either_end_of_a_kept_synapse_are_key() -> None:
    found = sliced_by_hand(10)
    # kept: x1 to neuron 1; neuron 1 (real value 4, beside 3 and 1) to neuron 0; neuron 1 to logit 0
    assert found.synapses["3.weight"].int().tolist() == [[[0, 1, 0], [0, 0, 0]]]
    assert found.synapses["5.weight"].int().tolist() == [[[0, 1], [0, 0]]]
    assert {name: key.int().tolist() for name, key in found.neurons.items()} == {
        "1": [[0, 1, 0]],
        "3": [[1, 1]],
        "5": [[1, 0]],
    }


@pytest.mark.parametrize("q", [1, 20])
def test_neurons_are_found_through_sums_joins_and_pools(q: float) -> None:
    found = slices_of(branching(), samples(9), q=q)
    kept = {name.removesuffix(".weight"): synapses for name, synapses in found.synapses.items()}
    head = kept["head"].any(1)  # its inputs: four channels of the sum, two of the side
    halves = torch.cat([kept["side"][:, 0], kept["side"][:, 1]], 1)  # each of two groups has its own two inputs
    assert found.neurons["head"].equal(kept["head"].any(2))
    assert found.neurons["block"].equal(kept["block"].any(2) | head[:, :4])
    assert found.neurons["side"].equal(kept["side"].any(2) | head[:, 4:])
    assert found.neurons["stem"].equal(kept["stem"].any(2) | kept["block"].any(1) | halves | head[:, :4])
    assert not found.neurons["stem"].all()


def test_the_released_cut_is_made_for_each_output_neuron() -> None:
    found = sliced_by_hand(50, "released")
    assert found.synapses["1.weight"].int().tolist() == [[[1, 0], [0, 1], [1, 0]]]
    assert found.synapses["3.weight"].sum(2).tolist() == [[2, 2]]
    assert found.contributions["1.weight"].equal(sliced_by_hand(50).contributions["1.weight"])


def test_nnslicer_by_hand() -> None:
    # the logit is 2 - 3: the prefix (-3) is off by 2, so both terms stay. Neuron 0 of the second layer is 3 - 2 + 1: 3
    # is off by 1 of 2 and then 1 by 1, so all stay; neuron 1 is -3 + 1 + 3: 3 or -3 first, then 0, so all stay
    found = sliced_by_hand(50, "nnslicer")
    assert found.contributions["5.weight"].tolist() == [[[-1, 1], [0, 0]]]
    assert found.contributions["3.weight"].tolist() == [[[-1, 1, -1], [-1, 1, 1]]]
    # 1 + 2: 2 is off by a third; -1 + 2: 2 is off by 1; neuron 2 has no contribution to hand on
    assert found.contributions["1.weight"].tolist() == [[[-1, -1], [-1, 1], [0, 0]]]
    assert found.synapses["1.weight"].equal(found.contributions["1.weight"] != 0)


def test_a_sum_that_only_rounding_keeps_from_0_has_no_terms() -> None:
    net, index = nn.Sequential(nn.Flatten(), nn.Linear(3, 2)).double(), torch.arange(2)
    net[1].weight.data = torch.tensor([[0.1, 0.2, -0.3], [0.1, 0.2, 0.3]], dtype=torch.float64)
    images = torch.ones(2, 3, 1, 1, dtype=torch.float64)
    ones, none = (Data(one, index, ("a", "b"), index, 2) for one in (images, 0 * images))
    found = slices_of(net, ones, baseline=none, reading="nnslicer", theta=0)
    assert not found.contributions["1.weight"][0].any() and found.contributions["1.weight"][1, 1].tolist() == [1, 1, 1]


def test_nnslicer_keeps_fewer_where_theta_is_larger() -> None:
    net, sample, baseline = by_hand()
    kept = {}
    for theta in (0.0, 0.2, 0.4):
        found = slices_of(net, sample, baseline=baseline, classes=[0], reading="nnslicer", theta=theta)
        kept[theta] = found.synapses["1.weight"][0, 0].tolist()
    assert kept == {0.0: [True, True], 0.2: [True, True], 0.4: [False, True]}  # 2 is a third off 1 + 2


@pytest.mark.parametrize("reading", ["paper", "released"])
def test_a_branching_network_equals_the_slow_one(reading: str) -> None:
    model, data, baseline = branching(), samples(9), samples(7)
    found = slices_of(model, data, baseline=baseline, reading=reading, q=60, batch_size=4)
    for label, (signs, _) in by_channels(model, data, baseline).items():
        for name in WEIGHTS:
            assert found.contributions[f"{name}.weight"][label].equal(signs[name]), name
    assert any(bool(found.contributions[f"{name}.weight"].any()) for name in WEIGHTS)


def test_the_cut_equals_sorting_by_signs_and_then_reals() -> None:
    """At shares that put the border between equal signs in every layer."""
    model, data, baseline = branching(), samples(12), samples(7)
    slow = by_channels(model, data, baseline)
    for q in range(5, 100, 10):
        found = slices_of(model, data, baseline=baseline, q=q)
        for label, (signs, reals) in slow.items():
            for name in WEIGHTS:
                pairs = sorted(zip(signs[name].flatten().tolist(), reals[name].flatten().tolist(), strict=True))
                count = -(-len(pairs) * q // 100)
                kept = found.synapses[f"{name}.weight"][label]
                assert int(kept.sum()) == count
                own = sorted(zip(signs[name][kept].tolist(), reals[name][kept].tolist(), strict=True))
                torch.testing.assert_close(torch.tensor(own), torch.tensor(pairs[-count:]))


def test_the_set_mean_equals_the_slow_one() -> None:
    model, data = branching(), samples(12)
    found = slices_of(model, data, reading="set-mean", batch_size=5)
    for label, (signs, _) in by_class_means(model, data).items():
        for name in WEIGHTS:
            assert found.contributions[f"{name}.weight"][label].equal(signs[name]), name


@pytest.mark.parametrize("theta", [0.05, 0.2, 0.7])
def test_a_branching_network_equals_the_slow_one_place_by_place(theta: float) -> None:
    model, data, baseline = branching(), samples(6), samples(5)
    found = slices_of(model, data, baseline=baseline, reading="nnslicer", theta=theta, batch_size=4)
    for label, (signs, _) in by_places(model, data, baseline, theta).items():
        for name in WEIGHTS:
            assert found.contributions[f"{name}.weight"][label].equal(signs[name]), name
            assert found.synapses[f"{name}.weight"][label].equal(signs[name] != 0)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": 3, "stride": 2, "padding": 2, "groups": 2},
        {"kernel_size": 2, "dilation": 2, "groups": 4},
        {"kernel_size": (2, 3), "padding": "same"},
    ],
)
def test_place_by_place_a_convolution_equals_its_unrolled_linear_layer(settings: dict[str, object]) -> None:
    conv = nn.Conv2d(4, 8, **settings).double()
    size = conv(torch.zeros(1, 4, 5, 5).double()).shape[1:]
    head = nn.Linear(size.numel(), 2).double()
    wide = nn.Linear(100, size.numel()).double()
    ones = torch.eye(100).double().view(100, 4, 5, 5)
    bare = conv(torch.zeros(1, 4, 5, 5).double())
    wide.weight.data = (conv(ones) - bare).flatten(1).T.detach()
    wide.bias.data = bare.flatten().detach()
    data = samples(8, 2, channels=4, side=5)
    convolved = slices_of(nn.Sequential(conv, nn.ReLU(), nn.Flatten(), head), data, reading="nnslicer")
    unrolled = slices_of(nn.Sequential(nn.Flatten(), wide, nn.ReLU(), head), data, reading="nnslicer")
    assert convolved.contributions["3.weight"].equal(unrolled.contributions["3.weight"])
    pairs = unrolled.contributions["1.weight"].unflatten(1, (8, -1)).unflatten(3, (4, -1)).sum((2, 4))
    own = torch.block_diag(*[torch.ones(8 // conv.groups, 4 // conv.groups)] * conv.groups).bool()
    assert convolved.contributions["0.weight"].flatten(1).equal(pairs[:, own])
    assert convolved.contributions["0.weight"].any()


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_channel_by_channel_a_convolution_is_dense_over_means_with_summed_kernels(groups: int) -> None:
    # padded in a circle every place sees the whole kernel, so the outputs' mean is linear in the inputs' mean
    conv = nn.Conv2d(4, 8, 3, padding=1, padding_mode="circular", groups=groups).double()
    head, wide = nn.Linear(8, 3).double(), nn.Linear(4, 8).double()
    blocks = conv.weight.detach().sum((2, 3)).split(8 // groups)
    wide.weight.data, wide.bias.data = torch.block_diag(*blocks), conv.bias.detach()
    flat = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    data = samples(12, 3, channels=4)
    convolved = slices_of(nn.Sequential(conv, *flat, head), data)
    dense = slices_of(nn.Sequential(*flat, wide, head), data)
    assert convolved.contributions["3.weight"].equal(dense.contributions["3.weight"])
    own = torch.block_diag(*[torch.ones_like(block) for block in blocks]).bool()
    assert convolved.contributions["0.weight"].flatten(1).equal(dense.contributions["2.weight"][:, own])


@pytest.mark.parametrize("reading", ["paper", "released", "nnslicer"])
def test_sums_over_samples_are_linear(reading: str) -> None:
    model, data = branching(), samples(12)
    halves = data.take(torch.arange(6)), data.take(torch.arange(6, 12))
    whole = slices_of(model, data, reading=reading)
    first, second = (slices_of(model, half, baseline=data, reading=reading) for half in halves)
    for name, contribution in whole.contributions.items():
        assert contribution.equal(first.contributions[name] + second.contributions[name])


@pytest.mark.parametrize("reading", READINGS)
def test_batch_size_and_order_change_nothing(reading: str) -> None:
    model, data = branching(), samples(12)
    whole = slices_of(model, data, reading=reading, q=40)
    for other, size in ((data, 1), (data, 5), (data.take(torch.arange(11, -1, -1)), 100)):
        again = slices_of(model, other, reading=reading, q=40, batch_size=size)
        for name, kept in whole.synapses.items():
            assert kept.equal(again.synapses[name])
            assert whole.contributions[name].equal(again.contributions[name])
        assert all(key.equal(again.neurons[name]) for name, key in whole.neurons.items())


@pytest.mark.parametrize("reading", ["paper", "released", "set-mean"])
def test_q_says_how_many_are_kept(reading: str) -> None:
    model, data = branching(), samples(12)
    assert all(kept.all() for kept in slices_of(model, data, reading=reading, q=100).synapses.values())
    for q in (0.1, 33.3, 95):
        for kept in slices_of(model, data, reading=reading, q=q).synapses.values():
            rows = kept if reading == "released" else kept.flatten(1)
            wanted = max(1, -int(-rows.shape[-1] * q // 100))
            assert (rows.sum(-1) == wanted).all()


def test_some_classes_only() -> None:
    model, data = branching(), samples(12)
    every, some = slices_of(model, data), slices_of(model, data, classes=[2, 0])
    assert some.classes == ("c", "a")
    for name, kept in every.synapses.items():
        assert kept[[2, 0]].equal(some.synapses[name]) and every.contributions[name][[2, 0]].equal(
            some.contributions[name]
        )


def test_the_model_is_left_as_it_was() -> None:
    model, data = branching(), samples(6)
    model.train()
    model.norm.eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    before, seen = torch.get_rng_state(), []
    slices_of(model, data, report=lambda done, total: seen.append((done, total)), batch_size=4)
    assert model.training and model.drop.training and not model.norm.training
    assert all(value.equal(state[name]) for name, value in model.state_dict().items())
    assert torch.get_rng_state().equal(before) and all(one.grad is None for one in model.parameters())
    assert seen == [(4, 12), (6, 12), (10, 12), (12, 12)]


def test_flattened_units_belong_to_their_channel() -> None:
    conv, head = nn.Conv2d(2, 3, 1, bias=False).double(), nn.Linear(3 * 16, 2).double()
    data, net = samples(4, 2), nn.Sequential(conv, nn.Flatten(), head)
    found = slices_of(net, data)
    moved = conv(data.images) - conv(data.images).mean(0)
    logits = net(data.images) - net(data.images).mean(0)
    signs = torch.zeros(2, 3, 2, dtype=torch.float64)
    for at, label in enumerate(data.labels.tolist()):
        units = (logits[at, label] * head.weight[label] * moved[at].flatten()).sign().view(3, -1).sum(1)
        means = moved[at].mean((1, 2)), (data.images - data.images.mean(0))[at].mean((1, 2))
        signs[label] += (units * means[0]).sign()[:, None] * (conv.weight[:, :, 0, 0] * means[1]).sign()
    assert found.contributions["0.weight"].equal(signs)


def test_every_unit_of_a_flattened_map_counts_where_ways_meet() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 3, 1, bias=False), nn.Linear(15, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return self.head(torch.cat([x.flatten(1), x.mean((2, 3))], 1))

    net, data = Both().double(), samples(20, 2, side=2)
    maps, logits = net.conv(data.images).detach(), net(data.images).detach()
    units = torch.cat([maps.flatten(1), maps.mean((2, 3))], 1)
    terms = net.head.weight.detach()[data.labels] * (units - units.mean(0))
    terms *= (logits - logits.mean(0)).gather(1, data.labels[:, None])
    contributing = terms[:, :12].sign().view(-1, 3, 4).sum(2) + terms[:, 12:].sign()
    means = [one.mean((2, 3)) - one.mean((0, 2, 3)) for one in (maps, data.images)]
    pairs = (contributing * means[0]).sign()[:, :, None] * (
        net.conv.weight.detach()[:, :, 0, 0] * means[1][:, None]
    ).sign()
    wanted = torch.stack([pairs[data.labels == label].sum(0) for label in (0, 1)])
    assert slices_of(net, data).contributions["conv.weight"].equal(wanted)
    assert bool(((contributing - terms[:, 12:].sign()) * terms[:, 12:] < 0).any())  # ways that differ do meet


def test_a_layer_that_runs_twice_adds_up() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.one, self.head = nn.Flatten(), nn.Linear(32, 32), nn.Linear(32, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.one(torch.tanh(self.one(self.flat(x))))))

    model, data = Twice().double(), samples(6, 2)
    apart = nn.Sequential(model.flat, model.one, nn.Tanh(), nn.Linear(32, 32).double(), nn.Tanh(), model.head)
    apart[3].load_state_dict(model.one.state_dict())
    found, parts = slices_of(model, data).contributions, slices_of(apart, data).contributions
    assert found["one.weight"].equal(parts["1.weight"] + parts["3.weight"])


def test_shortened_weights_are_the_ones_that_count() -> None:
    short = MaxNormLinear(32, 5, 0.1).double()
    plain = nn.Linear(32, 5).double()
    plain.weight.data, plain.bias.data = short.shortened().detach(), short.bias.detach()
    data, head = samples(6, 2), nn.Linear(5, 2).double()
    one, other = (
        slices_of(nn.Sequential(nn.Flatten(), layer, nn.ReLU(), head), data, q=30) for layer in (short, plain)
    )
    assert one.synapses["1.weight"].equal(other.synapses["1.weight"])


@pytest.mark.parametrize(
    "name", ["demo-cnn", "lenet5", "styx-mlp", "styx-cnn", "resnet20", "mobilenet", "fm-2", "fm-3"]
)
def test_networks_of_the_table_are_sliced(name: str) -> None:
    channels, side = models.MODELS[name].shape.channels, 28 if models.MODELS[name].shape.channels == 1 else 32
    net = models.create(name, classes=2, channels=channels, size=(side, side))
    data = labelled(torch.rand(4, channels, side, side), torch.tensor([0, 1, 0, 1]))
    found = slices_of(net, data)
    weights = {key: value for key, value in net.named_parameters() if value.ndim > 1}
    assert set(found.synapses) == set(weights)
    for key, kept in found.synapses.items():
        assert kept.shape == (2, *weights[key].shape[:2]) and found.contributions[key].isfinite().all()


def test_a_depthwise_network_is_sliced_place_by_place() -> None:
    net = nn.Sequential(
        *(nn.Conv2d(2, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.AvgPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(4, 2)),
    )
    found = slices_of(net.double().eval(), samples(4, 2), reading="nnslicer")
    assert found.synapses["2.weight"].shape == (2, 4, 1) and all(kept.any() for kept in found.synapses.values())

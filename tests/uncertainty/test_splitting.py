"""Networks cut before their first dropout: the same answers as whole ones, at any time, and nothing held on to."""

from weakref import ref

import pytest
import torch
from branching_net import Branching, images
from torch import Tensor, nn

from ukemi.models import create
from ukemi.uncertainty import DropoutPasses, with_dropout
from ukemi.uncertainty.splitting import Cut, Whole, cut


class Counting(Branching):
    """The number of rows crosses the cut: this one can't be cut."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        return self.last(self.drop(self.first(x)).view(rows, -1))


class Deciding(Branching):
    """Looks at values: this one can't be traced."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x) if x.sum() > -1 else x
        return self.last(self.drop(y).flatten(1))


@pytest.mark.parametrize(("kind", "cut"), [(Branching, Cut), (Counting, Whole), (Deciding, Whole)])
def test_cut_passes_are_whole_passes(kind: type[nn.Module], cut: type) -> None:
    model, x, index = kind().double(), images(7), torch.arange(7)
    parted, whole = DropoutPasses(model, 6, seed=3), DropoutPasses(model, 6, seed=3, split=False)
    first, second = parted(x, index), whole(x, index)
    assert type(parted._parts) is cut
    assert torch.allclose(first.drawn, second.drawn, atol=1e-12) and torch.allclose(first.certain, second.certain)
    assert float((first.drawn[0] - first.drawn[1]).abs().max()) > 1e-3


def test_what_a_trace_does_not_show_is_not_cut() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4)).eval()
    net.register_forward_hook(lambda module, given, output: 2 * output)
    images = torch.rand(3, 1, 4, 4)
    assert torch.allclose(DropoutPasses(net, 2)(images, torch.arange(3)).certain, net(images).softmax(1))


class Shifting(nn.Module):
    """A buffer, a layer, and a constant that tracing makes."""

    def __init__(self) -> None:
        super().__init__()
        self.shift: Tensor
        self.register_buffer("shift", torch.tensor(0.5))
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop((x - self.shift).flatten(1) * torch.linspace(1, 2, 16)))


def test_a_cut_network_is_asked_as_it_is_now_and_keeps_no_trace_of_it() -> None:
    torch.manual_seed(0)
    net, x, index = Shifting().eval(), torch.rand(3, 1, 4, 4), torch.arange(3)
    held, source = set(vars(net)), DropoutPasses(net, 4)
    before = source(x, index)
    assert isinstance(source._parts, Cut) and set(vars(net)) == held
    for name, value in (("shift", torch.tensor(0.1)), ("head", nn.Linear(16, 4))):
        setattr(net, name, value)
        found = source(x, index)
        assert torch.equal(found.drawn, DropoutPasses(net, 4)(x, index).drawn)
        assert not torch.allclose(found.drawn, before.drawn)
        before = found


@pytest.mark.parametrize(("name", "channels", "size"), [("lenet5", 1, 28), ("nin", 3, 16), ("resnet20", 3, 16)])
def test_our_networks_are_cut(name: str, channels: int, size: int) -> None:
    model = with_dropout(create(name, classes=10, channels=channels, size=(size, size)), 0.2).double()
    x, index = images(2, channels, size), torch.arange(2)
    parted = DropoutPasses(model, 2)
    assert torch.allclose(parted(x, index).drawn, DropoutPasses(model, 2, split=False)(x, index).drawn, atol=1e-12)
    assert isinstance(parted._parts, Cut)


def test_a_cut_network_holds_no_layer_longer_than_it_is_asked_for() -> None:
    layers = [nn.Conv2d(1, 1, 3, padding=1) for _ in range(6)]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    made: list[ref[Tensor]] = []
    alive: list[int] = []

    def note(module: nn.Module, given: object, output: Tensor) -> None:
        alive.append(sum(one() is not None for one in made))
        made.append(ref(output))

    with torch.no_grad():
        parts = cut(network, torch.rand(1, 1, 4, 4))
        assert isinstance(parts, Cut)
        for module in network.modules():
            if isinstance(module, nn.Conv2d | nn.Linear | nn.ReLU):
                module.register_forward_hook(note)
        images = torch.rand(2, 1, 4, 4)
        values = parts.head(images)
        assert len(alive) == 6 and max(alive) == 1, alive  # the layer before, which the next one is reading
        answers = parts.tail(values)
        assert len(alive) == 9 and max(alive[6:]) <= 2, alive  # and what was handed over
        torch.testing.assert_close(answers, network(images))

"""Small networks and histories for the tests of DARE."""

import torch
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.slicing import Slices, key_layers

CLASSES = ("a", "b", "c")


class Residual(nn.Module):
    """A convolution, a residual block that writes in place, two dense layers with dropout between."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding="same", groups=2, bias=False)
        self.relu = nn.LeakyReLU(0.2, inplace=True)
        self.dense = nn.Linear(4, 5)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(5, len(CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        x = self.relu(self.norm(self.first(images)))
        x = x + self.relu(self.second(x))
        return self.last(self.drop(self.relu(self.dense(x.mean((2, 3))))))


def residual(seed: int = 0) -> nn.Module:
    """With BatchNorm statistics that are not those of a fresh layer."""
    torch.manual_seed(seed)
    model = Residual()
    model.norm.running_mean.uniform_(-1, 1)
    model.norm.running_var.uniform_(0.5, 2)
    return model.eval()


def some_data(count: int = 60, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 1, 6, 6, generator=generator)
    labels = torch.randint(0, len(CLASSES), (count,), generator=generator)
    labels[: len(CLASSES)] = torch.arange(len(CLASSES))
    return Data(images, labels, CLASSES, torch.arange(count) * 3, 3 * count)


class Past:
    """A history in memory."""

    def __init__(self, states: dict[int, dict[str, Tensor]]) -> None:
        self.states, self.epochs = states, list(states)

    def weights(self, epoch: int) -> dict[str, Tensor]:
        return self.states[epoch]


def past_of(model: nn.Module, epochs: int = 5, spread: float = 0.3) -> Past:
    """The model's weights, moved at random; the last epoch is the model itself."""
    states = {}
    for epoch in range(1, epochs + 1):
        size = spread if epoch < epochs else 0.0
        states[epoch] = {
            name: one + size * torch.randn_like(one)
            if one.is_floating_point() and "running" not in name
            else one.clone()
            for name, one in model.state_dict().items()
        }
    return Past(states)


def random_slices(model: nn.Module, share: float, seed: int = 0) -> Slices:
    """Each class keeps a random share of the synapses and about half of the neurons."""
    generator = torch.Generator().manual_seed(seed)
    synapses, neurons = {}, {}
    for layer in key_layers(model):
        weight = model.get_parameter(layer.weight)
        shape = (len(CLASSES), *weight.shape[:2])
        synapses[layer.weight] = torch.rand(shape, generator=generator) < share
        neurons[layer.name] = torch.rand(shape[:2], generator=generator) < 0.5
        neurons[layer.name][:, 0] = True
    return Slices(CLASSES, synapses, neurons)

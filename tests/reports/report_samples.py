"""What the reports of the tests are about: a log, names that a page must not trust, a model and images."""

import torch
from torch import Tensor, nn

from ukemi.data import Data, labelled

LOG = [
    {"epoch": 0, "loss": 2.1, "accuracy": 0.31, "learning_rate": 0.1, "seconds": 1.5},
    {"epoch": 1, "loss": 1.2, "accuracy": 0.62, "learning_rate": 0.05, "validation_accuracy": 0.6, "seconds": 3.0},
]
HOSTILE = ('<script>alert("x")</script>', "a & b", "c'\"<b>")


class Linear(nn.Module):
    """A fixed linear classifier with three outputs."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        weights = torch.randn(3, inputs, generator=torch.Generator().manual_seed(0))
        self.weights = nn.Parameter(weights)

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weights.T


def sample(channels: int = 1, size: int = 10, count: int = 24) -> tuple[nn.Module, Data]:
    """A model and random images, two in three of them recognised."""
    model = Linear(channels * size * size)
    images = torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        labels = model(images).argmax(1)
    labels[::3] = (labels[::3] + 1) % 3
    return model, labelled(images, labels, HOSTILE)

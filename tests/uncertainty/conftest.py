"""What the tests of uncertainty work on."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ukemi.data import Data, DataSet


@pytest.fixture(scope="session")
def dropping(fashion: DataSet) -> nn.Module:
    """A small network with dropout, trained for a few seconds."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(384, 32), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(32, 10),
    )  # fmt: skip
    images, labels = fashion.train.images.float() / 255, fashion.train.labels
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(3):
        for rows in torch.randperm(len(images)).split(128):
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return model.eval()


@pytest.fixture(scope="session")
def recognised(dropping: nn.Module, fashion: DataSet) -> Data:
    """Test images that the network recognises."""
    data = fashion.test.take(torch.arange(200))
    batch = data.batch(torch.arange(200), "cpu")
    with torch.no_grad():
        return data.take((dropping(batch.images).argmax(1) == batch.labels).nonzero().flatten())

"""What the tests of defences work on."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ukemi.attacks.config import AttackConfig
from ukemi.data import Data, DataSet
from ukemi.measures.uncertainty import turned_by


@pytest.fixture(scope="session")
def net(fashion: DataSet) -> nn.Module:
    """A small network, trained for a few seconds."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(384, 32), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(32, 10),
    )  # fmt: skip
    images, labels = fashion.train.images.float() / 255, fashion.train.labels
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(4):
        for rows in torch.randperm(len(images)).split(128):
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return model.eval()


@pytest.fixture(scope="session")
def benign(fashion: DataSet) -> Data:
    return fashion.train.take(torch.arange(0, 6000, 20))


@pytest.fixture(scope="session")
def adversarial(net: nn.Module, benign: Data) -> Data:
    """What FGSM turns of the benign images."""
    return turned_by(net, benign, AttackConfig(attack="fgsm", epsilon=0.1).made())


@pytest.fixture(scope="session")
def attacked(net: nn.Module, fashion: DataSet) -> Data:
    """What FGSM turns of test images."""
    few = fashion.test.take(torch.arange(0, 1000, 5))
    return turned_by(net, few, AttackConfig(attack="fgsm", epsilon=0.1).made())

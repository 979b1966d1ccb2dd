"""Settings for every test: Hypothesis derandomised and without deadline, small shared things as fixtures."""

import multiprocessing

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import nn
from torch.nn import functional as F

from ukemi.data import DataSet, load

settings.register_profile(
    "ukemi", derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ukemi")
# the suite runs in two processes: more threads than cores only wait for each other
torch.set_num_threads(1)
# children are forked from one server per process: whoever starts it first, it has imported everything
multiprocessing.get_context("forkserver").set_forkserver_preload(
    ["ukemi.training", "ukemi.comparing", "torch._dynamo", "torch.distributed.fsdp"]
)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def fashion() -> DataSet:
    return load("fashion-mini")


@pytest.fixture
def tiny_net() -> nn.Module:
    """A small network with BatchNorm and dropout for 1 x 28 x 28 images, in float32."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, stride=3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(4 * 8 * 8, 10),
    )


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

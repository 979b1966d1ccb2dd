"""Settings for every test: Hypothesis derandomised and without deadline, small shared things as fixtures."""

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from small_nets import fitted
from torch import nn

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
    return fitted(model, fashion, 3)


@pytest.fixture(scope="session")
def processes() -> Any:
    """Children are forked from a server that has imported everything: real processes that start fast."""
    return multiprocessing.get_context("forkserver")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """96 + 32 images of 12 x 12 in four classes."""
    path = tmp_path_factory.mktemp("data") / "small.npz"
    generator = np.random.default_rng(0)
    labels = np.arange(128) % 4
    stripes = np.arange(12) * labels[:, None, None] + 40 * (labels[:, None, None] % 2)
    pixels = (generator.integers(0, 120, (128, 12, 12)) + stripes).astype(np.uint8)
    np.savez(path, x_train=pixels[:96], y_train=labels[:96], x_test=pixels[96:], y_test=labels[96:])
    return path

"""What the tests of several attacks work on."""

import warnings
from importlib import import_module

import pytest
import torch
from small_nets import fitted
from torch import Tensor, nn

from ukemi.data import DataSet

# the oracles belong to the test extra: where one is missing, these tests fail and are not skipped
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, on import
    import_module("foolbox")


@pytest.fixture(scope="module")
def trained(fashion: DataSet) -> tuple[nn.Module, Tensor, Tensor]:
    """A small network trained for a few seconds, and 100 test images with their labels."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 6, 5, stride=3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(384, 10))
    model = fitted(model, fashion, 3)
    return model, fashion.test.images[:100].float() / 255, fashion.test.labels[:100]

"""What the tests of uncertainty work on."""

import pytest
import torch
from torch import nn

from ukemi.data import Data, DataSet


@pytest.fixture(scope="session")
def recognised(dropping: nn.Module, fashion: DataSet) -> Data:
    """Test images that the network recognises."""
    data = fashion.test.take(torch.arange(200))
    batch = data.batch(torch.arange(200), "cpu")
    with torch.no_grad():
        return data.take((dropping(batch.images).argmax(1) == batch.labels).nonzero().flatten())

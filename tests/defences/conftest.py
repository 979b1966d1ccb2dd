"""What the tests of defences work on."""

import pytest
import torch
from torch import nn

from ukemi.attacks.config import AttackConfig
from ukemi.data import Data, DataSet
from ukemi.measures.uncertainty import turned_by


@pytest.fixture(scope="session")
def net(dropping: nn.Module) -> nn.Module:
    return dropping


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

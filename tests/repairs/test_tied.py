"""Layers that share one weight: tuned as one by the variants of DARE that slice nothing, named by the others."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi import UserError
from ukemi.repairs import Dare, dare
from ukemi.repairs.null import random_change
from ukemi.repairs.tuning import Tuner, cross_entropy, trainable_layers
from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from history_net import some_data


class Tied(nn.Module):
    """Two layers with one weight and biases of their own, one layer that runs twice, and a head."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first, self.one, self.two = nn.Linear(inputs, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.again, self.head = nn.Linear(8, 8), nn.Linear(8, classes)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.two(F.relu(self.one(F.relu(self.first(x.flatten(1))))))
        return self.head(F.relu(self.again(F.relu(self.again(F.relu(x))))))


def make() -> nn.Module:
    return Tied(784, 10)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    told: dict[str, Any] = {"epochs": 4, "batch_size": 250, "history": 3, "validation": 0.2, "device": "cpu"}
    return train(TrainConfig(model="test_tied:make", **told, out=tmp_path_factory.mktemp("tied") / "run"), quiet=True)


def test_a_shared_weight_gets_the_gradients_of_all_its_places() -> None:
    model, data = Tied(36, 3).double(), some_data(20)
    images, layers = data.images[torch.arange(20)].double(), trainable_layers(model)
    assert [layer.name for layer in layers] == ["first", "one", "two", "again", "head"]
    tuner = Tuner(copy.deepcopy(model), layers, cross_entropy, None, 1e-3)
    tuner.step(images, data.labels, torch.zeros(20, 1))
    optimiser = torch.optim.Adam([one for name, one in model.named_parameters() if "weight" in name], lr=1e-3)
    F.cross_entropy(model(images), data.labels).backward()
    optimiser.step()
    for name, one in model.state_dict().items():
        torch.testing.assert_close(tuner.model.state_dict()[name], one)


@pytest.mark.parametrize("variant", ["dare-s", "dare-sl"])
def test_it_is_tuned_as_one_where_nothing_is_sliced(variant: Any, made: Run, tmp_path: Path) -> None:
    told = Dare(variant=variant, learning_rates=(1e-4,), epochs=1, allowed_drop=1)
    done = dare(made, told, out=tmp_path / "d").run
    before, after = (read_checkpoint(run.weights_path).tensors for run in (made, done))
    assert not before["one.weight"].equal(after["one.weight"])
    assert "two.weight" not in after or after["two.weight"].equal(after["one.weight"])


def test_slices_name_the_layers_that_share(made: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"layers 'one' and 'two' share one weight, so they can't be sliced"):
        dare(made, Dare(), out=tmp_path / "d")


def test_its_null_control_moves_it_as_far_as_the_repair_did() -> None:
    """A state dictionary has it under both names, and the last one that is loaded counts."""
    model, other = Tied(36, 3), Tied(36, 3)
    tuned = copy.deepcopy(model)
    with torch.no_grad():
        tuned.one.weight += 0.1 * torch.randn(8, 8)
    other.load_state_dict(random_change(model, tuned.state_dict()))
    ours, theirs = (float((one.two.weight - model.two.weight).detach().norm()) for one in (other, tuned))
    assert ours == pytest.approx(theirs, rel=1e-4)

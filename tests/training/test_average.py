"""The running average of weights against a plain sum."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from ukemi.training import TrainConfig, train
from ukemi.training.average import Average
from ukemi.training.checkpoints import read_checkpoint


def test_the_average_is_the_plain_recursion_and_is_worn_for_a_while(tiny_net: nn.Module) -> None:
    average, slow = Average(tiny_net, 0.9), {}
    for step in range(5):
        with torch.no_grad():
            for parameter in tiny_net.parameters():
                parameter.add_(torch.randn_like(parameter))
        towards = 1.0 if step == 0 else 0.1
        average.move(towards)
        for name, tensor in tiny_net.state_dict().items():
            slow[name] = tensor.clone() if step == 0 else slow[name] + towards * (tensor - slow[name])
    before = copy.deepcopy(tiny_net.state_dict())
    with average.worn():
        for name, tensor in tiny_net.state_dict().items():
            assert torch.allclose(tensor.double(), slow[name].double(), atol=1e-6)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tiny_net.state_dict().items())


def test_nothing_is_kept_where_nothing_is_asked(tiny_net: nn.Module) -> None:
    average = Average(tiny_net, 0.0)
    average.move(1.0)
    assert average.tensors == {}


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_what_a_run_saves_is_its_average(average: float, tmp_path: Path) -> None:
    config = TrainConfig(model="lenet5", epochs=2, batch_size=1500, average=average, validation=0, out=tmp_path / "run")
    run = train(config, quiet=True)
    saved = read_checkpoint(run.weights_path).tensors
    last = read_checkpoint(sorted(run.checkpoints.iterdir())[-1])
    kept = last.part("average") or last.part("model")
    assert all(torch.equal(saved[name], kept[name]) for name in kept)
    same = all(torch.equal(saved[name], tensor) for name, tensor in last.part("model").items())
    assert same == (average == 0.0)

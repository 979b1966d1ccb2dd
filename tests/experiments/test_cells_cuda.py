"""Every piece of both experiments on a GPU: nothing is left on the wrong device."""

import json
from pathlib import Path

import pytest
import torch
from tiny_cell import placed

from ukemi.experiments import KINDS
from ukemi.training import TrainConfig
from ukemi.training.setup import load_sets, make_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
TRAIN = {
    "dare": {"learning-rate": 0.1, "batch-size": 75},
    "uncertainty": {"dropout": 0.2, "epochs": 2, "batch-size": 75},
}


@pytest.mark.parametrize("experiment", KINDS)
def test_all_pieces(experiment: str, small: Path, tmp_path: Path) -> None:
    place = placed(experiment, small, tmp_path, "cuda", train=TRAIN[experiment])
    kind = KINDS[experiment]
    subject = kind.subject(place)
    pieces = dict.fromkeys(piece for part in kind.parts.values() for piece in part)
    lines = {piece: subject.line(piece) for piece in pieces}
    json.dumps(lines)
    assert len(lines) == len(pieces) > 10


def test_a_network_is_made_from_data_on_the_gpu(small: Path) -> None:
    config = TrainConfig(data=str(small), model="demo-cnn")
    test = load_sets(config).test
    made = [make_model(config, data, data.classes, None).state_dict() for data in (test, test.to("cuda"))]
    assert all(torch.allclose(made[0][name], made[1][name]) and not made[1][name].is_cuda for name in made[0])

"""The page of a repair: what it says fits the variant, and a head that is wider than the data does not break it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ukemi.data import Data
from ukemi.reports import write_repair

TRIAL = {"learning_rate": 1e-5, "epoch": 1, "loss": 0.5, "accuracy": 0.9, "score": -0.5, "allowed": True}
ABOUT: dict[str, Any] = {
    "origin": "/runs/base",
    "settings": {"variant": "dare"},
    "target_layer": "0",
    "samples": 12,
    "mined": 10,
    "searched": 40,
    "selection_images": 20,
    "key_neurons": 1.0,
    "key_synapses": 0.95,
    "accuracy_before": 0.9,
    "accuracy_after": 0.9,
    "learning_rate": 1e-5,
    "epochs": 1,
    "trials": [TRIAL],
    "seconds": {"mining": 1.0},
}


def text_of(folder: Path, **about: Any) -> str:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
    with torch.no_grad():
        model[3].bias[4] += 100  # the answer is none of the two classes
    data = Data(torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1]), ("cat", "dog"), torch.arange(4), 4)
    return write_repair(folder, {**ABOUT, **about}, [model, model], data).read_text()


@pytest.mark.parametrize(
    ("variant", "tuned", "mined"),
    [
        ("dare", "12 images tuned the network up to layer 0;", "of 40: history knew them better"),
        ("rand", "12 images tuned the network up to layer 0;", "of 40: each with a random epoch&#39;s targets"),
        ("dare-sl", "12 images tuned every layer of the network;", "of 40: history knew them better"),
    ],
)
def test_what_it_says_fits_the_variant(variant: str, tuned: str, mined: str, tmp_path: Path) -> None:
    text = text_of(tmp_path, settings={"variant": variant})
    assert tuned in text and mined in text
    assert text.count("class 4") == 4  # two images, before and after


def test_a_trial_that_is_not_finite_is_not_called_inaccurate(tmp_path: Path) -> None:
    lost = TRIAL | {"learning_rate": 1.0, "accuracy": 0.1, "allowed": False}
    text = text_of(tmp_path, trials=[TRIAL, lost])
    assert "too much accuracy lost" in text and "not finite" not in text
    text = text_of(tmp_path, trials=[TRIAL, lost | {"loss": None, "score": None}])
    assert "too much accuracy lost" not in text and text.count("not finite") == 3

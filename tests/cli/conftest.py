"""What the tests of commands work on."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from ukemi.data import load
from ukemi.training.checkpoints import write_checkpoint

sys.path.insert(0, str(Path(__file__).parent))

import attack_samples
import uncertainty_samples

Weights = dict[str, torch.Tensor]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """An image folder: two classes, 24 grey images of 16 x 16 each."""
    generator = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 180)):
        for part, count in (("train", 24), ("test", 8)):
            folder = tmp_path / "pictures" / part / name
            folder.mkdir(parents=True)
            for at in range(count):
                pixels = (level + generator.integers(0, 40, (16, 16))).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{at}.png")
    return tmp_path / "pictures"


@pytest.fixture(scope="session")
def linear() -> Weights:
    """A linear network on fashion-mini, pooled to 7 x 7, trained for a second."""
    data = load("fashion-mini").train
    pooled = nn.functional.avg_pool2d(data.batch(torch.arange(len(data)), "cpu").images, 4).flatten(1)
    torch.manual_seed(0)
    layer = nn.Linear(49, 10)
    optimiser = torch.optim.Adam(layer.parameters(), 0.05)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(layer(pooled), data.labels).backward()
        optimiser.step()
    return {name: tensor.detach() for name, tensor in layer.state_dict().items()}


@pytest.fixture
def attacked_net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linear: Weights) -> None:
    """A folder with the network of `attack_samples`, its weights and attacks of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("tiny_attacked.py").write_text(attack_samples.NET)
    save_file({f"2.{name}": tensor for name, tensor in linear.items()}, "tiny.safetensors")


@pytest.fixture
def unsure_net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linear: Weights) -> None:
    """A folder with the networks of `uncertainty_samples`, their weights and two other members of an ensemble."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("tiny_unsure.py").write_text(uncertainty_samples.NET)
    weights = {f"3.{name}": tensor for name, tensor in linear.items()}
    save_file(weights, "tiny.safetensors")
    write_checkpoint(tmp_path / "along.safetensors", {f"model.{name}": 0.7 * w for name, w in weights.items()}, {})
    save_file({name: tensor * 1.2 for name, tensor in weights.items()}, "other.safetensors")

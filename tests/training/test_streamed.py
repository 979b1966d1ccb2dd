"""Training from files that are never held decoded."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ukemi.data import decoding
from ukemi.training import TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = np.random.default_rng(1)
    for number in range(60):
        path = tmp_path / "images" / ("train" if number < 48 else "test") / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = 60 + 90 * (number % 2) + generator.integers(0, 50, (12, 12))
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return tmp_path / "images"


def test_streamed_it_ends_in_the_same_weights(folder: Path, tmp_path: Path) -> None:
    told = {"data": str(folder), "epochs": 2, "batch_size": 8, "augmenter": {"name": "worst-of", "k": 2}}
    held = train(TrainConfig(**told, out=tmp_path / "held", device="cpu"), quiet=True)
    streamed = train(TrainConfig(**told, out=tmp_path / "streamed", device="cpu", stream=True, workers=1), quiet=True)
    one, two = (read_checkpoint(run.weights_path).tensors for run in (held, streamed))
    assert all(torch.equal(one[name], two[name]) for name in one)
    for line in streamed.read_log():
        assert line["images_per_second"] > 0 and 0 < line["data_seconds"] <= line["seconds"]


def test_every_image_is_decoded_once_per_epoch(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, seen = decoding.decode, list[str]()

    def counted(path: Path, shape: object) -> object:
        seen.append(path.name)
        return decode(path, shape)  # type: ignore[arg-type]

    def names(epochs: int) -> list[str]:
        seen.clear()
        told = {"data": str(folder), "batch_size": 8, "validation": 0, "stream": True, "workers": 0, "device": "cpu"}
        train(TrainConfig(**told, epochs=epochs, out=tmp_path / str(epochs)), quiet=True)
        return sorted(seen)

    monkeypatch.setattr(decoding, "decode", counted)
    one, two = names(1), names(2)
    whole = sorted(path.name for path in (folder / "train").glob("*/*"))
    assert sorted(one + whole) == two and len(whole) == 48

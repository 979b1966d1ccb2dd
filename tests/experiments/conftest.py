"""A tiny set of images, and an experiment that is done at once in place of DARE's."""

from pathlib import Path

import numpy as np
import pytest
from quick_experiment import Quick, Sizes

from ukemi.data import load
from ukemi.experiments import KINDS
from ukemi.experiments.config import Kind


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 + 20 images of each of three classes, 14 x 14."""
    data = load("fashion-mini")
    arrays = {}
    for name, part, many in (("train", data.train, 150), ("test", data.test, 20)):
        rows = np.concatenate([(part.labels == label).nonzero().flatten()[:many].numpy() for label in (0, 1, 8)])
        arrays |= {f"x_{name}": part.images[rows][:, :, ::2, ::2].numpy()}
        arrays |= {f"y_{name}": np.searchsorted([0, 1, 8], part.labels[rows].numpy())}
    path = tmp_path_factory.mktemp("small") / "small.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> type[Quick]:
    parts = {"all": ("one", "two", "three three"), "some": ("two",)}
    monkeypatch.setitem(KINDS, "dare", Kind(Quick, Sizes, parts))
    return Quick

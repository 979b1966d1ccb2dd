"""Small data, and processes that start fast."""

import multiprocessing
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)


@pytest.fixture(scope="session")
def processes() -> Any:
    """Children are forked from a server that has imported everything: real processes that start fast."""
    return multiprocessing.get_context("forkserver")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """96 + 32 images of 12 x 12 in four classes."""
    path = tmp_path_factory.mktemp("data") / "small.npz"
    generator = np.random.default_rng(0)
    labels = np.arange(128) % 4
    stripes = np.arange(12) * labels[:, None, None] + 40 * (labels[:, None, None] % 2)
    pixels = (generator.integers(0, 120, (128, 12, 12)) + stripes).astype(np.uint8)
    np.savez(path, x_train=pixels[:96], y_train=labels[:96], x_test=pixels[96:], y_test=labels[96:])
    return path

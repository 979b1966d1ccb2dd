"""A data set with fewer images, for trainings and measurements that a processor can do."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ukemi.data
from ukemi.data import Data


def fewer(name: str, folder: Path | None, count: int, path: Path, test: int | None = None) -> Path:
    """The same set with the first `count` training images (and `test` test images), in the order of a fixed shuffle,
    as an .npz file."""
    found = ukemi.data.load(name, folder=folder)
    few = found.train.take(_first(count, len(found.train)))
    held = found.test if test is None else found.test.take(_first(test, len(found.test)))
    parts = {"x_train": few.images, "y_train": few.labels, "x_test": held.images, "y_test": held.labels}
    arrays: dict[str, Any] = {key: torch.as_tensor(value).numpy() for key, value in parts.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f"{path.stem}-{os.getpid()}.npz")  # another process may be about to read it
    np.savez(begun, **arrays)
    return begun.replace(path)


def whole(data: Data, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """All images and labels of a part, on the device."""
    batch = data.batch(torch.arange(len(data)), device)
    return batch.images, batch.labels


def _first(count: int, of: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).permutation(of)[:count])

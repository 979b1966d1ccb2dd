"""A data set with fewer training images, for trainings that a processor can do."""

import os
from pathlib import Path

import numpy as np
import torch

import ukemi.data


def fewer(name: str, folder: Path | None, count: int, path: Path) -> Path:
    """The same set with the first `count` training images, in the order of a fixed shuffle, as an .npz file."""
    found = ukemi.data.load(name, folder=folder)
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(found.train))[:count])
    few = found.train.take(rows)
    arrays = {"x_train": few.images, "y_train": few.labels, "x_test": found.test.images, "y_test": found.test.labels}
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f"{path.stem}-{os.getpid()}.npz")  # another process may be about to read it
    np.savez(begun, **{key: torch.as_tensor(value).numpy() for key, value in arrays.items()})
    return begun.replace(path)

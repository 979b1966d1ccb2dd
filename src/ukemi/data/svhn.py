"""SVHN, format 2: cropped digits in MATLAB files."""

from pathlib import Path

import numpy as np
import torch

from ukemi.data.classes import DIGITS
from ukemi.data.dataset import Data, DataSet, labelled
from ukemi.data.mat import read_mat
from ukemi.data.npz import joined
from ukemi.errors import UserError

FILES = ("train_32x32.mat", "test_32x32.mat")


def holds_svhn(folder: Path) -> bool:
    """Whether both official files are there."""
    return all((folder / file).is_file() for file in FILES)


def read_svhn(folder: Path) -> DataSet:
    """The official train and test files; the extra images are left out."""
    train, test = (_part(folder / file) for file in FILES)
    return joined("svhn", train, test, place=folder)


def _part(path: Path) -> Data:
    variables = read_mat(path, ("X", "y"))
    pixels_HWCN, labels = variables["X"], np.asarray(variables["y"])
    if getattr(pixels_HWCN, "ndim", 0) != 4 or pixels_HWCN.dtype != np.uint8:
        raise UserError(f"data: X in {path} should be uint8 of the shape [H, W, C, N].")
    labels = labels.astype(np.int64).flatten()
    if labels.size and not 1 <= labels.min() <= labels.max() <= 10:
        raise UserError(
            f"data: labels in {path} should lie in 1 to 10, but {labels.min()} to {labels.max()} was given."
        )
    images = torch.from_numpy(np.ascontiguousarray(pixels_HWCN.transpose(3, 2, 0, 1)))
    return labelled(images, torch.from_numpy(labels % 10), DIGITS, name=f"data: {path}")  # digit 0 has label 10

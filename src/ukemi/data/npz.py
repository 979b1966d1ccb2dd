"""Images and labels in one .npz file."""

import zipfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ukemi.data.dataset import Data, DataSet, labelled
from ukemi.errors import UserError

FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

TEST_SHARE = 0.2
"""What is held out for the test where a file or folder has no test part of its own."""

_ONE_PART = (("images", "labels"), ("x", "y"))
_GROUPS = ("track", "groups")


def read_npz(
    path: Path,
    *,
    name: str | None = None,
    classes: Sequence[str] | None = None,
    test_share: float = TEST_SHARE,
    seed: int = 0,
) -> DataSet:
    """`x_train, y_train, x_test, y_test`, or `images, labels` (or `x, y`) alone, of which a share becomes the test.

    Pixels are uint8, or float in [0, 1], as `[N, H, W]`, `[N, H, W, C]` or `[N, C, H, W]`. Optional are `classes` (text)
    and `track_train` or `groups_train`: samples of one group never part in a split.
    """
    arrays = _arrays(path)
    names = tuple(str(text) for text in arrays["classes"]) if "classes" in arrays else classes
    title = name or path.stem
    if "x_train" in arrays:
        _require(path, arrays, ("x_train", "y_train", "x_test", "y_test"))
        parts = [_part(path, arrays, f"x_{part}", f"y_{part}", f"_{part}", names) for part in ("train", "test")]
        return joined(title, *parts, place=path)
    for x, y in _ONE_PART:
        if x in arrays:
            _require(path, arrays, (x, y))
            whole = _part(path, arrays, x, y, "", names)
            return DataSet(title, *whole.split(test_share, seed))
    raise UserError(
        f"data: {path} should hold x_train, y_train, x_test and y_test, or images and labels,"
        f" but it holds {', '.join(sorted(arrays)) or 'nothing'}."
    )


def fashion_mini() -> DataSet:
    """The embedded set: the first 600 training and 100 test images of each class of Fashion-MNIST."""
    with resources.as_file(resources.files("ukemi.data") / "fashion_mini.npz") as path:
        return read_npz(path, name="fashion-mini", classes=FASHION)


def joined(name: str, train: Data, test: Data, *, place: Path) -> DataSet:
    """A data set of two parts that were read apart, checked to fit each other."""
    if train.images.shape[1:] != test.images.shape[1:]:
        shapes = [" x ".join(str(side) for side in part.images.shape[1:]) for part in (train, test)]
        raise UserError(f"data: the images in {place} are {shapes[0]} in train but {shapes[1]} in test.")
    if len(test.classes) > len(train.classes):
        missing = test.classes[len(train.classes)]
        raise UserError(f"data: class {missing!r} is in the test part of {place}, but the train part lacks it.")
    return DataSet(name, train, Data(test.images, test.labels, train.classes, test.index, test.identities, test.groups))


def _arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise UserError(f"data: {path} holds arrays of Python objects, which are never unpickled.") from None
        raise UserError(f"data: {path} can't be read as an .npz file ({error}).") from None
    except (OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise UserError(f"data: {path} can't be read as an .npz file ({error}).") from None


def _require(path: Path, arrays: dict[str, NDArray[np.generic]], keys: Sequence[str]) -> None:
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise UserError(f"data: {path} lacks {' and '.join(missing)}; it holds {', '.join(sorted(arrays))}.")


def _part(
    path: Path, arrays: dict[str, NDArray[np.generic]], x: str, y: str, suffix: str, classes: Sequence[str] | None
) -> Data:
    name = f"data: {x} in {path}"
    labels = arrays[y]
    if labels.dtype.kind not in "iu":
        raise UserError(f"{name}: labels should be whole numbers, but {labels.dtype} was given in {y}.")
    groups = next((arrays[key + suffix] for key in _GROUPS if key + suffix in arrays), None)
    return labelled(
        channels_first(arrays[x], name),
        torch.from_numpy(labels.astype(np.int64)),
        classes,
        groups=None if groups is None else torch.from_numpy(groups.astype(np.int64)),
        name=name,
    )


def channels_first(pixels: NDArray[np.generic], name: str) -> Tensor:
    """`[N, H, W]`, `[N, H, W, C]` or `[N, C, H, W]` as `[N, C, H, W]`; a last axis of 1 or 3 is read as channels."""
    if pixels.dtype.kind not in "uf" or (pixels.dtype.kind == "u" and pixels.dtype != np.uint8):
        raise UserError(f"{name}: pixels should be uint8 or float in [0, 1], but {pixels.dtype} was given.")
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.ndim == 4 and pixels.shape[3] in (1, 3) and pixels.shape[1] not in (1, 3):
        pixels = pixels.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(pixels))

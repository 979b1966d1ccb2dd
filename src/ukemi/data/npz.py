"""Images and labels in one .npz file, the embedded set among them."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ukemi.data.classes import FASHION
from ukemi.data.dataset import Data, DataSet, labelled
from ukemi.errors import UserError

TEST_SHARE = 0.2
"""What is held out for the test where a file or folder has no test part of its own."""

_WHOLE = (("images", "labels"), ("x", "y"))
_GROUPS = ("track", "groups")

Arrays = Mapping[str, NDArray[np.generic]]


def read_npz(path: Path, *, name: str | None = None, classes: Sequence[str] | None = None, seed: int = 0) -> DataSet:
    """`x_train, y_train, x_test, y_test`, or `images, labels` (or `x, y`) alone, of which a share becomes the test.

    Pixels are uint8, or float in [0, 1], as `[N, H, W]`, `[N, H, W, C]` or `[N, C, H, W]`. Optional are `classes`
    (text) and `track_train` or `groups_train`: samples of one group never part in a split.
    """
    arrays = _arrays(path)
    title = name or path.stem
    if "classes" in arrays:
        classes = [str(text) for text in arrays["classes"].flatten()]
    if "x_train" in arrays or "x_test" in arrays:
        train = _part(path, arrays, ("x_train", "y_train"), "_train", classes)
        return joined(title, train, _part(path, arrays, ("x_test", "y_test"), "_test", train.classes), place=path)
    for keys in _WHOLE:
        if keys[0] in arrays:
            return DataSet(title, *_part(path, arrays, keys, "", classes).split(TEST_SHARE, seed))
    raise UserError(
        f"data: {path} should hold x_train, y_train, x_test and y_test, or images and labels,"
        f" but it holds {_listed(arrays)}."
    )


def fashion_mini() -> DataSet:
    """The embedded set: the first 600 training and 100 test images of each class of Fashion-MNIST."""
    with resources.as_file(resources.files("ukemi.data") / "fashion_mini.npz") as path:
        return read_npz(path, name="fashion-mini", classes=FASHION)


def joined(name: str, train: Data, test: Data, *, place: Path) -> DataSet:
    """A data set of two parts that were read apart, checked to have images of one shape."""
    shapes = [tuple(part.images.shape[1:]) for part in (train, test)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"data: the images in {place} are {' x '.join(map(str, shapes[0]))} in its train part"
            f" but {' x '.join(map(str, shapes[1]))} in its test part."
        )
    return DataSet(name, train, test)


def channels_first(pixels: NDArray[np.generic], name: str) -> Tensor:
    """`[N, H, W]`, `[N, H, W, C]` or `[N, C, H, W]` as `[N, C, H, W]`; an axis of 1 or 3 holds the channels."""
    if pixels.dtype != np.uint8 and pixels.dtype.kind != "f":
        raise UserError(f"{name}: pixels should be uint8 or float in [0, 1], but {pixels.dtype} was given.")
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim != 4 or not {1, 3} & {pixels.shape[1], pixels.shape[3]}:
        raise UserError(
            f"{name}: images should be grey or RGB, [N, H, W], [N, H, W, C] or [N, C, H, W] with C 1 or 3,"
            f" but {list(pixels.shape)} was given."
        )
    if pixels.shape[1] not in (1, 3):
        pixels = pixels.transpose(0, 3, 1, 2)
    # torch has no long double and no foreign byte order
    return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.uint8 if pixels.dtype == np.uint8 else np.float32))


def _arrays(path: Path) -> Arrays:
    if not zipfile.is_zipfile(path):
        raise UserError(f"data: {path} can't be read as an .npz file (it is no zip archive, or cut short).")
    try:
        # numpy leaves a file open that it opened and could not read
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = {key: file[key] for key in file.files}
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise UserError(f"data: {path} holds Python objects, which are never unpickled.") from None
        raise UserError(f"data: {path} can't be read as an .npz file ({error}).") from None
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError, TypeError) as error:
        raise UserError(f"data: {path} can't be read as an .npz file ({str(error) or 'it is cut short'}).") from None
    for key, array in found.items():
        if not isinstance(array, np.ndarray):  # numpy gives what it does not know as it lies there
            raise UserError(f"data: {key} in {path} is no array.")
    return found


def _part(path: Path, arrays: Arrays, keys: tuple[str, str], suffix: str, classes: Sequence[str] | None) -> Data:
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise UserError(f"data: {path} lacks {' and '.join(missing)}; it holds {_listed(arrays)}.")
    name = f"data: {keys[0]} in {path}"
    groups = next((_whole(arrays, key + suffix, path).flatten() for key in _GROUPS if key + suffix in arrays), None)
    images = channels_first(arrays[keys[0]], name)
    if groups is not None and len(groups) != len(images):
        raise UserError(f"{name}: {len(images)} images but {len(groups)} groups.")
    return labelled(images, _whole(arrays, keys[1], path), classes, groups=groups, name=name)


def _whole(arrays: Arrays, key: str, path: Path) -> Tensor:
    if arrays[key].dtype.kind not in "iu":
        raise UserError(f"data: {key} in {path} should hold whole numbers, but {arrays[key].dtype} was given.")
    return torch.from_numpy(arrays[key].astype(np.int64))


def _listed(arrays: Arrays) -> str:
    return ", ".join(sorted(arrays)) or "nothing"

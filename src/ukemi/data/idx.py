"""The idx format of MNIST and Fashion-MNIST, gzipped or not."""

import gzip
import hashlib
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ukemi.data.dataset import Data, DataSet, labelled
from ukemi.data.npz import joined
from ukemi.errors import UserError

_GZIP = b"\x1f\x8b"
_UINT8 = 0x08
_PARTS = {"train": "train", "test": "t10k"}

_OFFICIAL = {"a25bea736e30d166cdddb491f175f624": "mnist", "9018921c3c673c538a1fc5bad174d6f9": "fashion-mnist"}
"""MD5 of the unpacked training labels: the two sets use the same file names."""


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """The array of bytes in an idx file, checked for its magic number, its `axes` and its length."""
    content = _content(path)
    magic = bytes((0, 0, _UINT8, axes))
    if content[:4] != magic:
        raise UserError(
            f"data: {path} should begin with the idx magic number {magic.hex()}, but begins with {content[:4].hex()}."
        )
    start = 4 + 4 * axes
    if len(content) < start:
        raise UserError(f"data: {path} is truncated: its header of {start} bytes breaks off.")
    shape = np.frombuffer(content[4:start], ">u4").tolist()
    if len(content) - start != math.prod(shape):
        raise UserError(
            f"data: {path} is truncated or damaged: its header promises {math.prod(shape)} bytes of shape {shape},"
            f" but {len(content) - start} follow."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_idx_set(folder: Path, name: str, classes: Sequence[str]) -> DataSet:
    """The four official files of MNIST or Fashion-MNIST."""
    train, test = (_part(folder, stem, classes) for stem in _PARTS.values())
    return joined(name, train, test, place=folder)


def holds_idx(folder: Path, name: str) -> bool:
    """Whether the four files are there and are not those of the other set."""
    found = [_find(folder, f"{stem}-{kind}") for stem in _PARTS.values() for kind in ("images-idx3", "labels-idx1")]
    if None in found:
        return False
    try:
        labels = _content(_found(folder, "train-labels-idx1"))
    except UserError:
        return True  # a damaged file is the reader's to name
    return _OFFICIAL.get(hashlib.md5(labels, usedforsecurity=False).hexdigest(), name) == name


def _part(folder: Path, stem: str, classes: Sequence[str]) -> Data:
    path = _found(folder, f"{stem}-images-idx3")
    images = torch.from_numpy(read_idx(path, 3).copy())
    labels = torch.from_numpy(read_idx(_found(folder, f"{stem}-labels-idx1"), 1).astype(np.int64))
    return labelled(images, labels, classes, name=f"data: {path}")


def _find(folder: Path, stem: str) -> Path | None:
    paths = (folder / f"{stem}-ubyte{ending}" for ending in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def _found(folder: Path, stem: str) -> Path:
    path = _find(folder, stem)
    if path is None:
        raise UserError(f"data: {folder} lacks {stem}-ubyte.gz.")
    return path


def _content(path: Path) -> bytes:
    """The bytes, unpacked where they begin as gzip does: a name tells less than the content."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == _GZIP else content
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"data: {path} is truncated or damaged ({error}).") from None

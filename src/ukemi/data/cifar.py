"""CIFAR-10 in its binary version and in its python version."""

import pickle
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from ukemi.data.classes import CIFAR
from ukemi.data.dataset import Data, DataSet, labelled
from ukemi.data.npz import joined
from ukemi.errors import UserError

SIDE = 32
PIXELS = 3 * SIDE * SIDE
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def holds_cifar(folder: Path) -> bool:
    """Whether all six batches of one of the two versions are there."""
    return any(all((folder / (stem + ending)).is_file() for stem in TRAIN + TEST) for ending in ("", ".bin"))


def read_cifar(folder: Path) -> DataSet:
    """The six official batches, binary where both versions are there."""
    binary = (folder / "test_batch.bin").is_file()
    batches = {
        stem: read_binary(folder / f"{stem}.bin") if binary else read_python(folder / stem) for stem in TRAIN + TEST
    }
    counts = {stem: len(labels) for stem, (_, labels) in batches.items()}
    if len(set(counts.values())) > 1:
        short, long = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        raise UserError(
            f"data: {folder / short} is truncated: it holds {counts[short]} images, but {long} holds {counts[long]}."
        )
    return joined(
        "cifar10", _part(folder, [batches[stem] for stem in TRAIN]), _part(folder, [batches[TEST[0]]]), place=folder
    )


def read_binary(path: Path) -> Batch:
    """Records of one label byte and 3 x 32 x 32 pixels."""
    try:
        content = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise UserError(f"data: {path} can't be read ({error}).") from None
    if not len(content) or len(content) % (1 + PIXELS):
        raise UserError(f"data: {path} is truncated: its {len(content)} bytes are not whole records of {1 + PIXELS}.")
    records = content.reshape(-1, 1 + PIXELS)
    return records[:, 1:], records[:, 0].astype(np.int64)


def read_python(path: Path) -> Batch:
    """A pickled dictionary of `data` `[N, 3072]` and `labels`, read without building any object it names."""
    try:
        with path.open("rb") as file:
            batch = _Unpickler(file, encoding="bytes").load()
        values = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        pixels, labels = values["data"].array(), np.array(values["labels"], np.int64)
    except UserError as error:
        raise UserError(f"data: {path} {error}") from None
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to ask for
        raise UserError(f"data: {path} is truncated or no CIFAR-10 batch ({type(error).__name__}: {error}).") from None
    if pixels.shape != (len(labels), PIXELS) or labels.ndim != 1:
        raise UserError(
            f"data: {path} should hold {PIXELS} pixels for each label, but its data has the shape {list(pixels.shape)}"
            f" and its labels {list(labels.shape)}."
        )
    return pixels, labels


class _Array:
    """Stands in for numpy.ndarray while unpickling: keeps what the pickle says, builds nothing."""

    __slots__ = ("_state",)

    def __setstate__(self, state: Any) -> None:
        self._state = state

    def array(self) -> NDArray[np.uint8]:
        _, shape, kind, fortran, content = self._state
        if not isinstance(kind, _Kind) or kind.code not in ("u1", b"u1", "|u1", b"|u1"):
            raise UserError("should hold pixels as bytes.")
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Kind:
    """Stands in for numpy.dtype."""

    __slots__ = ("code",)

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """The byte order, which bytes don't have."""


class _Unpickler(pickle.Unpickler):
    """Knows the four names that numpy writes around an array of bytes, as stand-ins; any other name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct"):
                return self._reconstruct
            case ("numpy", "ndarray"):
                return _Array
            case ("numpy", "dtype"):
                return _Kind
            case ("_codecs", "encode"):
                return self._encode
        raise UserError(f"asks to build {module}.{name}, which a CIFAR-10 batch never does, and was refused.")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UserError("refers to objects outside of itself, which a CIFAR-10 batch never does, and was refused.")

    # Methods and no functions: a pickle can set attributes of what it is handed, but none of a bound method.
    def _reconstruct(self, *_: Any) -> _Array:
        return _Array()

    def _encode(self, text: str, encoding: str) -> bytes:
        """How Python 3 writes bytes for Python 2."""
        return text.encode("latin1")


def _part(folder: Path, batches: list[Batch]) -> Data:
    pixels = np.concatenate([pixels for pixels, _ in batches]).reshape(-1, 3, SIDE, SIDE)
    labels = np.concatenate([labels for _, labels in batches])
    return labelled(torch.from_numpy(pixels), torch.from_numpy(labels), CIFAR, name=f"data: {folder}")

"""Image files to pixels: at once where they fit into memory, else row by row when asked for."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.utils.data import get_worker_info

from ukemi.data.dataset import Images
from ukemi.errors import UserError

MEMORY_LIMIT = 4 * 2**30
"""Bytes of pixels up to which a part of a data set is decoded at once."""
LOOKED_AT = 2**14
"""Images that are looked at, at most, where their size is given."""
SHOWN_FROM = 2000
"""Files from which a progress bar is shown."""

Size = tuple[int, int]
"""Height and width."""

_THREADS = min(16, os.cpu_count() or 1)
_AHEAD = 256
_DEEP = ("I", "F")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Wish:
    """How a set is to be read: size and channels of its images where others than its own are asked for, the seed of a
    split, whether image files are never held decoded, and how many processes decode them."""

    size: Size | None = None
    channels: int | None = None
    seed: int = 0
    stream: bool = False
    workers: int | None = None


class Member(Protocol):
    """A picture that is no file of its own; as text it says where it lies."""

    def read(self) -> bytes: ...


Picture = Path | Member
"""Where an encoded image lies."""


class Files:
    """Images that stay in their files: `files[positions]` decodes those rows, with a pool of threads; a worker of a
    DataLoader decodes them one by one."""

    def __init__(self, pictures: Sequence[Picture], size: Size, channels: int, workers: int | None = None) -> None:
        self._pictures = pictures
        self.shape = (len(pictures), channels, *size)
        self.workers = workers
        """processes that decode ahead where batches are asked for in a row; None: as the machine has processors"""

    def __getitem__(self, positions: Tensor) -> Tensor:
        """uint8 `[positions, C, H, W]`"""
        pictures = [self._pictures[position] for position in positions.flatten().tolist()]
        return _decoded(pictures, self.shape[1:], shown=False)


class Paths(Sequence[Path]):
    """Many paths in little memory: tensors, which processes of a DataLoader share and do not copy."""

    def __init__(self, paths: Iterable[Path]) -> None:
        names = [os.fsencode(path) for path in paths]
        self._ends = torch.tensor([0, *map(len, names)]).cumsum(0)
        self._names = torch.frombuffer(bytearray(b"".join(names)), dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, at: int) -> Path: ...
    @overload
    def __getitem__(self, at: slice) -> list[Path]: ...
    def __getitem__(self, at: int | slice) -> Path | list[Path]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        start, end = self._ends[at : at + 2].tolist()
        return Path(os.fsdecode(self._names[start:end].numpy().tobytes()))


def pixels(pictures: Sequence[Picture], size: Size, channels: int, wish: Wish | None = None) -> Images:
    """All images as one uint8 tensor `[N, C, H, W]` where that takes at most `MEMORY_LIMIT` bytes and no stream is
    wished for, else `Files`."""
    wish = wish or Wish()
    if wish.stream or len(pictures) * channels * size[0] * size[1] > MEMORY_LIMIT:
        kept: Sequence[Any] = Paths(pictures) if isinstance(pictures, list) else pictures
        return Files(kept, size, channels, wish.workers)
    return _decoded(pictures, (channels, *size), shown=len(pictures) > SHOWN_FROM)


def look(paths: Sequence[Picture], wish: Wish) -> tuple[Size, int]:
    """The size and the channels that all the images share, or that are wished for: 1 where all are grey, else 3; reads
    only headers.

    Images of mixed sizes need a size to be brought to; where it is given, and there are many, only some are looked at.
    """
    if wish.size is not None and len(paths) > LOOKED_AT:
        paths = [paths[len(paths) * at // LOOKED_AT] for at in range(LOOKED_AT)]
    seen = list(_mapped(_header, paths, "Looking at images", len(paths) > SHOWN_FROM))
    channels = wish.channels or (1 if all(mode in ("1", "L") for _, mode in seen) else 3)
    if wish.size is not None:
        return wish.size, channels
    for path, (other, _) in zip(paths, seen, strict=True):
        if other != seen[0][0]:
            raise UserError(
                f"data: images should be of one size, but {paths[0]} has {_text(seen[0][0])} and {path} has"
                f" {_text(other)}; give a size to bring them to, as --size 64."
            )
    return seen[0][0], channels


def decode(path: Picture, shape: Sequence[int]) -> NDArray[np.uint8]:
    """One image file as uint8 `[C, H, W]`, brought to that size by bilinear resampling where it has another."""
    channels, height, width = shape
    with _opened(path) as image:
        if image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")
        image = image.convert("L" if channels == 1 else "RGB")
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(image, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)


@contextmanager
def _opened(path: Picture) -> Iterator[Image.Image]:
    """An image file, whose damage is told in a sentence that names it."""
    try:
        with Image.open(path if isinstance(path, Path) else BytesIO(path.read())) as image:
            if image.mode.startswith(_DEEP):
                raise UserError(f"data: {path} should have 8 bits per pixel, but its mode is {image.mode}.")
            yield image
    except UserError:
        raise
    except UnidentifiedImageError:
        raise UserError(f"data: {path} can't be decoded (no image format is recognised).") from None
    except Exception as error:  # Pillow raises whatever its parsers raise
        raise UserError(f"data: {path} can't be decoded ({error}).") from None


def _header(path: Picture) -> tuple[Size, str]:
    with _opened(path) as image:
        return (image.height, image.width), image.mode


def _decoded(paths: Sequence[Picture], shape: Sequence[int], *, shown: bool) -> Tensor:
    # copied by numpy: torch would call up its own threads for each image, against those of the pool
    images_NCHW = np.empty((len(paths), *shape), np.uint8)
    rows = _mapped(lambda path: decode(path, shape), paths, "Decoding images", shown)
    for row, image_CHW in enumerate(rows):
        images_NCHW[row] = image_CHW
    return torch.from_numpy(images_NCHW)


def _mapped(do: Callable[[Picture], _T], paths: Sequence[Picture], what: str, shown: bool) -> Iterator[_T]:
    """`do` of each path, in order, by a pool of threads that runs at most `_AHEAD` results ahead."""
    if get_worker_info() is not None:  # there are as many of these as processors
        yield from map(do, paths)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        starts: Sequence[int] = range(0, len(paths), _AHEAD)
        bar = track(starts, what, console=Console(stderr=True), transient=True, disable=not shown or not _watched())
        for start in bar:
            yield from pool.map(do, paths[start : start + _AHEAD])


def _watched() -> bool:
    return sys.stderr.isatty()


def _text(size: Size) -> str:
    return f"{size[0]} x {size[1]}"

"""A data set by its name or by its path."""

import difflib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ukemi.data.dataset import Data, DataSet
from ukemi.data.decoding import Size, Wish
from ukemi.data.download import fetch
from ukemi.data.folders import read_folder
from ukemi.data.npz import read_npz
from ukemi.data.shards import holds_shards, read_shards
from ukemi.data.sources import SOURCES, Source
from ukemi.errors import UserError
from ukemi.schema import FAILURES, imported, reason

VARIABLE = "UKEMI_DATA"
"""The environment variable that names the folder of data sets."""

_CACHE = Path("~/.cache/ukemi")
_LONGEST_SIDE = 4096
_BRIGHTNESS = (19595, 38470, 7471)
"""of red, green and blue, in 65536ths (ITU-R 601)"""
_ROWS = 4096


@dataclass(frozen=True)
class Row:
    """What is known of one data set."""

    name: str
    about: str
    images: str
    licence: str
    found: Path | None
    """the folder or file it would be read from"""
    looked: tuple[Path, ...]
    get: str
    """how to get it where it was not found"""


def load(
    name: str | Path,
    *,
    folder: str | Path | None = None,
    size: int | Size | None = None,
    channels: int | None = None,
    download: bool = False,
    seed: int = 0,
    stream: bool = False,
    workers: int | None = None,
) -> DataSet:
    """A known data set, an image folder, a folder of shards (.tar), an .npz file, or anyone's own as
    `package.module:name`: a `DataSet`, a pair of `Data` for training and testing, or a function that returns either.

    A known set is looked for in `folder`, else in $UKEMI_DATA, ./data and ~/.cache/ukemi; `download` allows to fetch it
    where it was not found. `size` (a side, or height and width) brings the images to another size by bilinear
    resampling; `channels` 3 reads grey images as three equal channels, 1 reads colour as grey. `seed` draws the test
    part where a set has none of its own. With `stream` image files are never held decoded, which large sets are not
    anyway; `workers` processes decode them, 0 leaves it to threads.

    >>> load("fashion-mini").train.images.shape
    torch.Size([6000, 1, 28, 28])
    """
    wish = Wish(_checked(size), _one_or_three(channels), seed, stream, workers)
    if ":" in str(name) and not Path(name).exists():
        found = _own(str(name))
    elif str(name) in SOURCES:
        found = _read(SOURCES[str(name)], folder, wish, download)
    else:
        found = _at(Path(name).expanduser(), wish)
    if stream and isinstance(found.train.images, Tensor):
        raise UserError(f"stream: {name} is read as a whole; image folders and shards (.tar) can be streamed.")
    return replace(found, train=_wished(found.train, wish), test=_wished(found.test, wish))


def _own(name: str) -> DataSet:
    made: Any = imported(name, "data")
    if callable(made):
        try:
            made = made()
        except UserError:
            raise
        except FAILURES as error:  # a user's function fails in any way it likes
            raise UserError(f"data: {name} failed ({reason(error)}).") from error
    if isinstance(made, DataSet):
        return made
    if isinstance(made, tuple) and len(made) == 2 and all(isinstance(part, Data) for part in made):
        return DataSet(name.partition(":")[2], *made)
    raise UserError(f"data: {name} gave a {type(made).__name__}; a DataSet or a pair of Data (see labelled) is needed.")


def places(folder: str | Path | None = None) -> tuple[Path, ...]:
    """Where known sets are looked for, in order: `folder` alone where it is given."""
    if folder is not None:
        return (Path(folder).expanduser(),)
    named = os.environ.get(VARIABLE)
    return (*([Path(named).expanduser()] if named else []), Path("data"), _CACHE.expanduser())


def survey(folder: str | Path | None = None) -> list[Row]:
    """Every known set: what it is, where it was found, or how to get it."""
    looked = places(folder)
    return [
        Row(
            source.name,
            source.about,
            source.images,
            source.licence,
            find(source, looked),
            looked,
            _advice(source, folder),
        )
        for source in SOURCES.values()
    ]


def find(source: Source, looked: tuple[Path, ...]) -> Path | None:
    """The first folder with the official files, or .npz file, of a set."""
    if source.holds is None:
        return Path(__file__).parent
    arrays = (f"{source.name}.npz", *source.arrays)
    for place in looked:
        roots = (place / source.name, place)
        for path in (root / inner for root in roots for inner in source.inside):
            if path.is_dir() and source.holds(path):
                return path
        for path in (root / array for root in roots for array in arrays):
            if path.is_file():
                return path
    return None


def _read(source: Source, folder: str | Path | None, wish: Wish, download: bool) -> DataSet:
    looked = places(folder)
    path = find(source, looked)
    if path is None and download:
        path = _downloaded(source, folder)
    if path is None:
        raise UserError(
            f"data: {source.name} was not found in {', '.join(map(str, looked))}; {_advice(source, folder)}."
        )
    if path.suffix == ".npz":
        return read_npz(path, name=source.name, classes=source.classes, seed=wish.seed)
    return source.read(path, wish)


def _downloaded(source: Source, folder: str | Path | None) -> Path | None:
    if not source.files:
        return None
    home = _home(folder)
    fetch(source.files, home / source.name)
    return find(source, (home,))


def _home(folder: str | Path | None) -> Path:
    """Where downloads go: the first place, but never uninvited into the working directory."""
    return Path(folder or os.environ.get(VARIABLE) or _CACHE).expanduser()


def _advice(source: Source, folder: str | Path | None) -> str:
    if source.holds is None:
        return "part of the package"
    home = _home(folder) / source.name
    by_hand = f"put the official files ({source.page}) into {home}"
    if not source.files:
        return f"it can't be downloaded from here: {by_hand}"
    size = sum(file.size for file in source.files) / 1e6
    return f"`ukemi data --get {source.name}` downloads it ({size:.0f} MB), or {by_hand}"


def _at(path: Path, wish: Wish) -> DataSet:
    if path.is_dir():
        return (read_shards if holds_shards(path) else read_folder)(path, wish)
    if path.is_file() and path.suffix == ".npz":
        return read_npz(path, seed=wish.seed)
    if path.is_file():
        raise UserError(f"data: {path} should be a folder of images or of .tar shards, or an .npz file.")
    near = difflib.get_close_matches(str(path), SOURCES, 1)
    raise UserError(
        f"data: {str(path)!r} is neither a known set ({', '.join(SOURCES)}) nor an existing folder of images or shards"
        " or .npz file" + (f"; did you mean {near[0]}?" if near else ".")
    )


def _checked(size: int | Size | None) -> Size | None:
    if size is None:
        return None
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or not all(1 <= side <= _LONGEST_SIDE for side in sides):
        raise UserError(f"size: a side should lie in 1 to {_LONGEST_SIDE} pixels, but {size} was given.")
    return sides[0], sides[1]


def _one_or_three(channels: int | None) -> int | None:
    if channels not in (None, 1, 3):
        raise UserError(f"channels: 1 or 3 is needed, but {channels} was given.")
    return channels


def _wished(data: Data, wish: Wish) -> Data:
    data = data if wish.size is None else _sized(data, wish.size)
    return data if wish.channels is None else _coloured(data, wish.channels)


def _coloured(data: Data, channels: int) -> Data:
    """Grey images as three equal channels, colour ones as their brightness, as Pillow has it; files were decoded to
    that already."""
    if data.channels == channels:
        return data
    if not isinstance(data.images, Tensor) or data.channels not in (1, 3):
        raise UserError(f"channels: these images have {data.channels} and can't be brought to {channels}.")
    if channels == 3:
        return replace(data, images=data.images.repeat(1, 3, 1, 1))
    if data.images.is_floating_point():
        weights = data.images.new_tensor(_BRIGHTNESS) / 2**16
        return replace(data, images=torch.einsum("nchw,c->nhw", data.images, weights)[:, None].clamp(0, 1))
    parts = [_grey(part) for part in data.images.split(_ROWS)]
    return replace(data, images=torch.cat(parts))


def _grey(images_NCHW: Tensor) -> Tensor:
    sums = (images_NCHW.int() * torch.tensor(_BRIGHTNESS, dtype=torch.int32)[:, None, None]).sum(1, keepdim=True)
    return ((sums + 2**15) >> 16).to(torch.uint8)


def _sized(data: Data, size: Size) -> Data:
    """Images that were stored as arrays brought to `size`; files were decoded to it already."""
    if data.size == size or not isinstance(data.images, Tensor):
        return data
    rows = [interpolate(part, size, mode="bilinear", antialias=True) for part in data.images.split(_ROWS)]
    images = torch.cat(rows)
    return replace(data, images=images if images.dtype == torch.uint8 else images.clamp_(0, 1))

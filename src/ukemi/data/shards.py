"""Shards: uncompressed .tar archives as webdataset writes them, `KEY.jpg` beside `KEY.cls`, read in place.

Nothing is unpacked: a shard's table says where each image lies, and those bytes are read when the image is asked for.
"""

import multiprocessing
import os
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from ukemi.data.dataset import Data, DataSet, labelled
from ukemi.data.decoding import LOOKED_AT, Wish, look, pixels
from ukemi.data.npz import TEST_SHARE
from ukemi.data.streaming import usual_workers
from ukemi.errors import UserError

ENDINGS = frozenset(("bmp", "jpeg", "jpg", "pgm", "png", "ppm", "webp"))
"""of members that are images; `cls` is the label, a whole number, and all others are passed over"""
NAMES = "classes.txt"
"""beside the shards: a class name per line; without it the labels' numbers are the names"""
MANY = 32
"""shards from which several processes read their tables, and each keeps its own beside it"""
TABLE = ".table"
"""behind a shard's name: its table as NumPy writes arrays, int64 `[1 + N, 3]`: `_stamp`, then start, length, label"""
LONGEST_LABEL = 32
"""bytes that a label may have"""
_TEST = ("test", "val")


@dataclass(frozen=True)
class Stored:
    """One image inside a shard."""

    shard: Path
    start: int
    length: int

    def read(self) -> bytes:
        with self.shard.open("rb") as file:
            file.seek(self.start)
            return file.read(self.length)

    def __str__(self) -> str:
        """Named as in the archive, which only an error asks for."""
        with tarfile.open(self.shard, "r:") as archive:
            names = (member.name for member in archive if member.offset_data == self.start)
            return f"{self.shard}: {next(names, '?')}"


class Table(Sequence[Stored]):
    """Where every image of some shards lies: 24 bytes an image, in a tensor that processes of a DataLoader share."""

    def __init__(self, shards: Sequence[Path], at_N3: Tensor) -> None:
        self._shards, self._at = list(shards), at_N3

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, at: int) -> Stored: ...
    @overload
    def __getitem__(self, at: slice) -> list[Stored]: ...
    def __getitem__(self, at: int | slice) -> Stored | list[Stored]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        shard, start, length = self._at[at].tolist()
        return Stored(self._shards[shard], start, length)


def holds_shards(root: Path) -> bool:
    """Whether a folder holds shards, for itself or in `train`."""
    return bool(_archives(root) or _archives(root / "train"))


def read_shards(root: Path, wish: Wish) -> DataSet:
    """A folder of shards, of which a share is the test, or `train` and `test` (or `val`) with shards each.

    Samples have the order of the shards' names and, inside, of the archive. `wish` is as for image folders.
    """
    if _archives(root):
        whole = _parts(root, [_archives(root)], wish)[0]
        return DataSet(root.resolve().name, *whole.split(TEST_SHARE, wish.seed))
    test = next((root / name for name in _TEST if _archives(root / name)), None)
    if test is None:
        raise UserError(f"data: {root} has shards in train, but none in test beside it.")
    return DataSet(root.resolve().name, *_parts(root, [_archives(root / "train"), _archives(test)], wish))


def _archives(root: Path) -> list[Path]:
    return sorted(root.glob("*.tar")) if root.is_dir() else []


def _parts(root: Path, parts: Sequence[list[Path]], wish: Wish) -> list[Data]:
    tables = [_table(archives) for archives in parts]
    steps = [1 if wish.size is None else max(1, len(table) // LOOKED_AT) for table, _ in tables]
    some = [one for (table, _), step in zip(tables, steps, strict=True) for one in table[::step]]
    size, channels = look(some, wish)
    classes = _classes(root, max(int(labels.max()) for _, labels in tables) + 1)
    for number in sorted(set(range(len(classes))) - set(tables[0][1].unique().tolist())):
        raise UserError(f"data: class {classes[number]!r} (label {number}) has no image in the shards of {root}.")
    return [
        labelled(pixels(table, size, channels, wish), labels, classes, name=f"data: {root}") for table, labels in tables
    ]


def _classes(root: Path, count: int) -> tuple[str, ...]:
    if not (root / NAMES).is_file():
        return tuple(map(str, range(count)))
    names = tuple((root / NAMES).read_text(encoding="utf-8").split("\n"))
    names = tuple(name.strip() for name in names if name.strip())
    if len(names) < count:
        raise UserError(f"data: {root / NAMES} names {len(names)} classes, but there is a label {count - 1}.")
    return names


def _table(archives: Sequence[Path]) -> tuple[Table, Tensor]:
    """Where the images of all archives lie, and their labels."""
    shown = len(archives) > 1 and sys.stderr.isatty()
    bar = {"console": Console(stderr=True), "transient": True, "disable": not shown, "total": len(archives)}
    parts = list(track(_rows(archives), "Looking into shards", **bar))  # type: ignore[arg-type]
    numbers = torch.arange(len(archives)).repeat_interleave(torch.tensor([len(part) for part in parts]))
    rows_N4 = torch.cat([numbers[:, None], torch.cat(parts)], 1)
    return Table(archives, rows_N4[:, :3].contiguous()), rows_N4[:, 3].contiguous()


def _rows(archives: Sequence[Path]) -> Iterator[Tensor]:
    """Start, length and label of every image, int64 `[N, 3]`, shard by shard; of many shards those whose tables are not
    kept yet by several processes."""
    if len(archives) < MANY:
        yield from map(_of_shard, archives)
        return
    known = [_kept(archive) for archive in archives]
    missing = [archive for archive, rows in zip(archives, known, strict=True) if rows is None]
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(usual_workers(), context) if missing else nullcontext() as pool:
        made = pool.map(_keep, missing) if pool else iter(())
        for rows in known:
            yield next(made) if rows is None else rows


def _of_shard(archive: Path) -> Tensor:
    return torch.tensor(list(_samples(archive)))


def _kept(archive: Path) -> Tensor | None:
    """The table beside a shard, where there is one that was made of the shard as it is now."""
    try:
        rows = np.load(archive.with_name(archive.name + TABLE), allow_pickle=False)
        whole = rows.dtype == np.int64 and rows.ndim == 2 and rows.shape[1] == 3
        if whole and tuple(rows[0].tolist()) == _stamp(archive):
            return torch.from_numpy(rows[1:].copy())
    except (OSError, ValueError, EOFError, IndexError):
        pass
    return None


def _keep(archive: Path) -> Tensor:
    """Makes a shard's table and keeps it beside the shard, if it can be: walking through an archive takes hundreds of
    times as long as reading its table."""
    stamp, path = _stamp(archive), archive.with_name(archive.name + TABLE)
    found, unfinished = _of_shard(archive), path.with_name(f"{path.name}-{os.getpid()}.npy")
    try:
        np.save(unfinished, np.concatenate([np.array([stamp]), found.numpy()]))
        unfinished.replace(path)
    except OSError:  # a folder that only others may write
        unfinished.unlink(missing_ok=True)
    return found


def _stamp(archive: Path) -> tuple[int, int, int]:
    """The version of the table's fields, and the archive's size and time of change."""
    found = archive.stat()
    return 1, found.st_size, found.st_mtime_ns


def _samples(archive: Path) -> Iterator[tuple[int, int, int]]:
    """Start, length and label of every image of a shard."""
    found: dict[str, dict[str, Any]] = {}
    try:
        with tarfile.open(archive, "r:") as members, archive.open("rb") as file:
            for member in members:
                folder, _, name = member.name.rpartition("/")
                key, _, ending = name.partition(".")
                if not key or not (ending.lower() in ENDINGS or ending == "cls"):
                    continue
                told = found.setdefault(f"{folder}/{key}" if folder else key, {})
                what = "label" if ending == "cls" else "image"
                if what in told:
                    raise UserError(f"data: {archive}: {key} has two {what}s.")
                told[what] = _label(archive, member, file) if what == "label" else _place(archive, member)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"data: {archive} can't be read as an uncompressed .tar archive ({error}).") from None
    if not found:
        raise UserError(f"data: {archive} holds no KEY.jpg (or .png, …) with its KEY.cls.")
    for key, told in found.items():
        if len(told) < 2:
            raise UserError(f"data: {archive}: {key} lacks its {'image' if 'label' in told else 'label (.cls)'}.")
        yield *told["image"], told["label"]


def _place(archive: Path, member: tarfile.TarInfo) -> tuple[int, int]:
    """Of a plain file only: a link, or a file with holes, does not lie where its header says."""
    if not member.isreg() or member.issparse():
        raise UserError(f"data: {archive}: {member.name} is no plain file.")
    return member.offset_data, member.size


def _label(archive: Path, member: tarfile.TarInfo, file: BinaryIO) -> int:
    start, length = _place(archive, member)
    file.seek(start)
    text = file.read(min(length, LONGEST_LABEL + 1)).decode("ascii", "replace").strip()
    if length > LONGEST_LABEL or not text.isdigit():
        raise UserError(f"data: {archive}: {member.name} should hold a whole number, but {text[:20]!r} is there.")
    return int(text)

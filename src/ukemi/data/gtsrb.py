"""GTSRB from its official folders."""

import csv
from pathlib import Path

import torch

from ukemi.data.classes import SIGNS
from ukemi.data.dataset import DataSet, labelled
from ukemi.data.decoding import Size, pixels
from ukemi.data.npz import joined
from ukemi.errors import UserError

SIZE = (32, 32)
TRAIN = "Final_Training/Images"
TEST = "Final_Test/Images"
TRUTH = "GT-final_test.csv"

Sample = tuple[Path, int]


def holds_gtsrb(folder: Path) -> bool:
    """Whether the training folders, the test folder and its labels are there."""
    root = _root(folder)
    return (root / TRAIN).is_dir() and (root / TEST).is_dir() and _truth(folder) is not None


def read_gtsrb(folder: Path, *, size: Size = SIZE) -> DataSet:
    """The final training and test images, the whole of each brought to `size` without regard to its aspect.

    The border of about a tenth around a sign stays: a rotation or a shift then shows street, not black. Frames of one
    track are one group, class x 1000 + track, so that a split goes by track.
    """
    root = _root(folder)
    samples = _training(root)
    groups = torch.tensor([label * 1000 + _track(path) for path, label in samples])
    train = labelled(
        pixels([path for path, _ in samples], size, 3),
        torch.tensor([label for _, label in samples]),
        SIGNS,
        groups=groups,
        name=f"data: {root / TRAIN}",
    )
    truth = _truth(folder)
    if truth is None:
        raise UserError(f"data: {folder} lacks {TRUTH}, the labels of the test images.")
    held_out = _rows(truth, root / TEST)
    test = labelled(
        pixels([path for path, _ in held_out], size, 3),
        torch.tensor([label for _, label in held_out]),
        SIGNS,
        name=f"data: {root / TEST}",
    )
    return joined("gtsrb", train, test, place=folder)


def _root(folder: Path) -> Path:
    return folder / "GTSRB" if (folder / "GTSRB").is_dir() else folder


def _truth(folder: Path) -> Path | None:
    places = (folder, _root(folder), _root(folder) / TEST)
    return next((place / TRUTH for place in places if (place / TRUTH).is_file()), None)


def _training(root: Path) -> list[Sample]:
    tables = sorted((root / TRAIN).glob("*/GT-*.csv"))
    if not tables:
        raise UserError(f"data: {root / TRAIN} holds no table GT-000xx.csv in a folder below it.")
    return [sample for table in tables for sample in _rows(table, table.parent)]


def _rows(table: Path, folder: Path) -> list[Sample]:
    """The images and classes that a table lists."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            samples = [(folder / row["Filename"], int(row["ClassId"])) for row in csv.DictReader(file, delimiter=";")]
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(
            f"data: {table} should be a table with ';' between its columns Filename and ClassId ({error!r})."
        ) from None
    if not samples:
        raise UserError(f"data: {table} lists no image.")
    return samples


def _track(path: Path) -> int:
    """The track that a training image `track_frame.ppm` belongs to."""
    try:
        return int(path.stem.split("_")[0])
    except ValueError:
        raise UserError(f"data: {path} should be named after its track and frame, as 00001_00029.ppm is.") from None

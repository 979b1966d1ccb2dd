"""IMDB-WIKI: faces with the age of the person, as classes of age."""

from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ukemi.data.dataset import DataSet, labelled
from ukemi.data.decoding import Size, pixels
from ukemi.data.mat import read_mat
from ukemi.data.npz import TEST_SHARE
from ukemi.errors import UserError

SIZE = (128, 128)
AGES = (25, 35, 45, 55)
"""The first age of each class after the youngest: five classes. The papers name five but not their limits."""
OLDEST = 100

_FIELDS = ("dob", "photo_taken", "full_path", "name", "face_score")
_MATLAB_DAY_ONE = 366
"""MATLAB counts days from the year 0, Python from the year 1."""
_YEAR = 365.2425


def tables(folder: Path) -> list[Path]:
    """The tables that are there, of the two parts of the set."""
    paths = (place / f"{part}.mat" for part in ("imdb", "wiki") for place in (folder, folder / f"{part}_crop"))
    return [path for path in paths if path.is_file()]


def holds_imdb_wiki(folder: Path) -> bool:
    """Whether the table of one of the two parts is there."""
    return bool(tables(folder))


def read_imdb_wiki(folder: Path, *, size: Size = SIZE, ages: Sequence[int] = AGES, seed: int = 0) -> DataSet:
    """The cropped faces of imdb.mat and wiki.mat, whichever are there, in classes that begin at `ages`.

    Faces without a score (none was found) and ages outside 0 to 100 are left out. A share is held out for the test by
    person: nobody is in both parts.
    """
    if list(ages) != sorted(set(ages)) or not ages:
        raise UserError(f"ages: the first ages of the classes should rise, but {list(ages)} was given.")
    found = tables(folder)
    if not found:
        raise UserError(f"data: {folder} holds neither imdb.mat nor wiki.mat.")
    parts = [_faces(table) for table in found]
    paths = [path for part in parts for path in part[0]]
    years = np.concatenate([part[1] for part in parts])
    persons = np.unique([person for part in parts for person in part[2]], return_inverse=True)[1]
    whole = labelled(
        pixels(paths, size, 3),
        torch.from_numpy(np.searchsorted(ages, years, side="right")),
        class_names(ages),
        groups=torch.from_numpy(persons),
        name=f"data: {folder}",
    )
    return DataSet("imdb-wiki", *whole.split(TEST_SHARE, seed))


def class_names(ages: Sequence[int]) -> tuple[str, ...]:
    """What the classes are called.

    >>> class_names((25, 35))
    ('under 25', '25 to 34', '35 and over')
    """
    middle = (f"{low} to {high - 1}" for low, high in pairwise(ages))
    return (f"under {ages[0]}", *middle, f"{ages[-1]} and over")


def age(born: NDArray[np.float64], photo_year: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole years from a birthday (MATLAB's day number) to the middle of the year of the photograph."""
    summer = {year: date(year, 7, 1).toordinal() + _MATLAB_DAY_ONE for year in range(1800, 2200)}
    taken = np.array([summer.get(int(year), np.nan) for year in photo_year])
    return np.floor((taken - born) / _YEAR)


def _faces(table: Path) -> tuple[list[Path], NDArray[np.float64], list[str]]:
    """Files, ages and names of the persons, of the faces that are fit for use."""
    rows = read_mat(table, (table.stem,), _FIELDS)[table.stem]
    missing = [field for field in _FIELDS if field not in rows]
    if missing:
        raise UserError(f"data: {table} lacks the field {' and '.join(missing)}.")
    born, photo_year, score = (_numbers(rows[field]) for field in ("dob", "photo_taken", "face_score"))
    counts = {len(born), len(photo_year), len(score), len(rows["full_path"]), len(rows["name"])}
    if len(counts) > 1:
        raise UserError(f"data: the fields of {table} differ in length ({', '.join(map(str, sorted(counts)))}).")
    years = age(born, photo_year)
    fit = np.flatnonzero(np.isfinite(score) & (years >= 0) & (years <= OLDEST))
    if not len(fit):
        raise UserError(f"data: none of the {len(born)} faces in {table} has a score and an age of 0 to {OLDEST}.")
    names = [_name(rows["name"][row]) for row in fit]
    return [table.parent / str(rows["full_path"][row]) for row in fit], years[fit], names


def _numbers(value: Any) -> NDArray[np.float64]:
    return np.asarray(value, np.float64).flatten()


def _name(value: Any) -> str:
    """An empty name is stored as an empty array of numbers."""
    return value if isinstance(value, str) else ""

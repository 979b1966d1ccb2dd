"""Any folder of images: `train/<class>/*` with `test/<class>/*`, or `<class>/*` alone, of which a share is the test."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from ukemi.data.dataset import Data, DataSet, labelled
from ukemi.data.decoding import Wish, look, pixels
from ukemi.data.npz import TEST_SHARE
from ukemi.errors import UserError

ENDINGS = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))

_TEST = ("test", "val")

Listing = dict[str, list[Path]]
"""Class to its files, both in the order of their names."""


def read_folder(root: Path, wish: Wish) -> DataSet:
    """An image folder; classes are the folders' names in the order of their characters.

    Images of one size are taken as they are, and stay grey where all of them are, unless `wish` says otherwise. Those
    that stream, or would take much memory, are decoded when they are asked for.
    """
    if not _folders(root / "train"):
        lone = next((name for name in _TEST if _folders(root / name) and not _files(root / name)), None)
        if lone is not None:
            raise UserError(
                f"data: {root} has a folder {lone}, but no folder train beside it; {root / lone} alone is data too"
                " (--split all measures every image)."
            )
        whole = _listing(root)
        return DataSet(root.resolve().name, *_parts(root, [whole], wish)[0].split(TEST_SHARE, wish.seed))
    held_out = next((root / name for name in _TEST if (root / name).is_dir()), None)
    if held_out is None:
        raise UserError(f"data: {root} has a folder train, but no folder test beside it.")
    train, test = _listing(root / "train"), _listing(held_out)
    extra = sorted(set(test) - set(train))
    if extra:
        raise UserError(f"data: class {extra[0]!r} is in {held_out}, but {root / 'train'} lacks it.")
    return DataSet(root.resolve().name, *_parts(root, [train, test], wish))


def _parts(root: Path, listings: Sequence[Listing], wish: Wish) -> list[Data]:
    """Both parts share one size and one number of channels, so they are looked at together."""
    classes = tuple(listings[0])
    if len(classes) == 1:
        raise UserError(f"data: {root} has one class only ({classes[0]!r}); a classifier needs at least two.")
    files = [[path for paths in listing.values() for path in paths] for listing in listings]
    size, channels = look([path for part in files for path in part], wish)
    labels = [
        torch.tensor([classes.index(name) for name, paths in listing.items() for _ in paths]) for listing in listings
    ]
    return [
        labelled(pixels(part, size, channels, wish), numbers, classes, name=f"data: {root}")
        for part, numbers in zip(files, labels, strict=True)
    ]


def _listing(root: Path) -> Listing:
    listing = {_text(folder.name): _files(folder) for folder in _folders(root)}
    if not any(listing.values()):
        elsewhere = next((path for path in root.rglob("*") if _is_image(path)), None)
        raise UserError(
            f"data: {root} should hold one folder of images per class, but no image ({', '.join(sorted(ENDINGS))})"
            f" lies in a folder right below it{f' (one is {elsewhere})' if elsewhere else ''}."
        )
    empty = [name for name, paths in listing.items() if not paths]
    if empty:
        raise UserError(f"data: the class folder {root / empty[0]} holds no image.")
    return listing


def _text(name: str) -> str:
    """A folder's name; bytes of it that are no UTF-8 are written out, since no page or log could hold them."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _is_image(path))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".") and path.is_file()

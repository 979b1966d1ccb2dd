"""Accuracy on saved adversarial sets, always beside the white-box result: as JSON, a table, and a part of the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from rich.table import Table
from rich.text import Text

from ukemi.measures.transfer import NAMES
from ukemi.reports import words
from ukemi.reports.attacks import AttackResult, attack_row, plain_table, share_of, title_of

COLUMNS = ("transfer: saved images", "white-box: this model itself", "unchanged: same images")


@dataclass(frozen=True)
class Transfer:
    """Accuracy on a saved adversarial set, beside the white-box result of the same attack on the same images."""

    file: str
    origin: str
    """SHA-256 of the weights that the set was made for"""
    own: bool
    """these are the weights of this very model"""
    accuracy: float
    """on the adversarial images: what they take from one model to another"""
    images: int
    white_box: AttackResult


def transfer_summary(transfers: Sequence[Transfer]) -> dict[str, Any] | None:
    """All sets as plain values, with the means over them; None where there is no set."""
    if not transfers:
        return None
    transfer, white_box, unchanged = _means(transfers)
    return {
        "measure": "accuracy on frozen adversarial sets",
        "also_called": list(NAMES),
        "mean_transfer_accuracy": transfer,
        "mean_white_box_accuracy": white_box,
        "mean_unchanged_accuracy": unchanged,
        "sets": [_row(one) for one in transfers],
    }


def transfer_table(transfers: Sequence[Transfer]) -> Table:
    """The accuracy on each saved set beside the white-box result, and their means, for the terminal."""
    found = plain_table(
        "adversarial set",
        COLUMNS,
        f"transfer ({', '.join(NAMES)}): images that were made for another model, or for this one; white-box: the same"
        " attack on this model itself, from the same images",
    )
    for name, cells in _rows(transfers):
        found.add_row(Text(name), *cells)
    return found


def transfer_section(transfers: Sequence[Transfer]) -> dict[str, Any] | None:
    """What the page shows; None where there is no set."""
    if not transfers:
        return None
    return {
        "said": f"Transfer: accuracy on frozen adversarial images ({' and '.join(NAMES)} in the papers), beside the"
        " same attacks on this model itself from the same images. A model that holds against images made for another"
        " one may still fall to those made for it: go by the white-box numbers.",
        "columns": COLUMNS,
        "rows": _rows(transfers),
        "files": [(one.file, f"SHA-256 {one.origin[:12]}…") for one in transfers],
    }


def _row(transfer: Transfer) -> dict[str, Any]:
    """A set as plain values, the white-box result inside it."""
    return {
        "set": transfer.file,
        "origin_sha256": transfer.origin,
        "own_model": transfer.own,
        "images": transfer.images,
        "transfer_accuracy": transfer.accuracy,
        "white_box": attack_row(transfer.white_box),
    }


def _rows(transfers: Sequence[Transfer]) -> list[tuple[str, tuple[str, ...]]]:
    rows = [(_name(one), tuple(share_of(share, one.images) for share in _shares(one))) for one in transfers]
    if len(transfers) > 1:
        means = tuple(words.percent(share) for share in _means(transfers))
        rows.append((f"mean of the {len(transfers)} sets", means))
    return rows


def _name(transfer: Transfer) -> str:
    origin = "this very model" if transfer.own else f"another model ({transfer.origin[:12]}…)"
    return f"{words.plural(transfer.images, 'image')} of {title_of(transfer.white_box.config)}, made for {origin}"


def _shares(transfer: Transfer) -> tuple[float, float, float]:
    found = transfer.white_box.found
    return transfer.accuracy, found.attacked_accuracy, found.accuracy


def _means(transfers: Sequence[Transfer]) -> tuple[float, ...]:
    """Over the sets, each counting alike."""
    return tuple(mean(column) for column in zip(*map(_shares, transfers), strict=True))

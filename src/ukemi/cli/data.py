"""`ukemi data`."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ukemi import data
from ukemi.cli.parse import parse
from ukemi.schema import Schema

EMBEDDED = "part of the package"


class DataConfig(Schema):
    """Lists the data sets that `--data NAME` knows: what is there, where it was looked for, how to get it.

    `--data` also takes an image folder (train/CLASS/*.png and test/CLASS/*.png, or CLASS/*.png) and an .npz file
    (x_train, y_train, x_test, y_test).
    """

    get: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Download this set, verify it and unpack it."""
    folder: Path | None = None
    """Where data sets lie; default: $UKEMI_DATA, ./data, ~/.cache/ukemi."""


def run(arguments: list[str]) -> int:
    config = parse(DataConfig, arguments, "data")
    console = Console(highlight=False)
    if config.get is not None:
        found = data.load(config.get, folder=config.folder, download=True)
        console.print(f"{config.get}: {len(found.train):,} images to train on, {len(found.test):,} to test on.")
        return 0
    rows = data.survey(config.folder)
    for row in rows:
        console.print(f"[bold]{row.name}[/]  {row.about} ({row.images}; licence: {row.licence})")
        console.print(Padding(Text(_state(row)), (0, 0, 0, 4)))
    console.print(f"\nlooked in: {', '.join(str(place) for place in rows[0].looked)}", markup=False)
    return 0


def _state(row: data.Row) -> str:
    if row.get == EMBEDDED:
        return EMBEDDED
    return f"not found: {row.get}" if row.found is None else f"found: {row.found}"

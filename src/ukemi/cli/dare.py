"""`ukemi repair dare` and its null controls, `ukemi repair null`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from ukemi.errors import UserError
from ukemi.repairs import Dare, Dared, dare, null_control
from ukemi.repairs.dare import Told
from ukemi.repairs.null import Kind
from ukemi.reports.words import count, duration, percent
from ukemi.schema import Schema
from ukemi.training import Run


class DareConfig(Dare):
    """Tunes each class's own synapses towards what the network once knew better (DARE).

    The run needs a history and images that it has not trained on: `ukemi train --history half --validation 0.5`. The
    most confident right answer among its last epochs gives every image a gold standard at the penultimate layer; only
    the synapses that a class's slice keeps are moved by that class's images.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """A finished run folder of `ukemi train --history half --validation 0.5`."""
    out: Path | None = None
    """The new run folder; default: RUN-VARIANT."""

    def told(self) -> Dare:
        return Dare(**{name: getattr(self, name) for name in Dare.model_fields})


class NullConfig(Schema):
    """Makes the null control of a repair: the same run, changed as much, to no purpose.

    random moves its weights as far as the repair did, at random; continued trains it as long on its own images.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """The run folder that was repaired."""
    like: Path | None = None
    """The repaired run folder."""
    kind: Kind = "random"
    """random or continued."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Draws the random change, or the images and their order."""
    out: Path | None = None
    """The new run folder; default: RUN-null-KIND."""


def run_dare(config: DareConfig) -> Run:
    if config.run is None:
        raise UserError("repair: a run folder is needed: ukemi repair dare RUN.")
    with _bars() as report:
        done = dare(Run(config.run), config.told(), out=config.out, report=report)
    Console(highlight=False).print(_table(config, done))
    return done.run


def run_null(config: NullConfig) -> Run:
    if config.run is None or config.like is None:
        raise UserError("repair: two run folders are needed: ukemi repair null RUN --like TUNED.")
    return null_control(Run(config.run), Run(config.like), kind=config.kind, seed=config.seed, out=config.out)


@contextmanager
def _bars() -> Iterator[Told]:
    """One bar that names what is done: mine, slice, tune."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("mine", total=None)
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total)


def _table(config: DareConfig, done: Dared) -> Table:
    best = done.tuned.best
    assert best is not None  # else nothing was written
    found = Table(box=box.SIMPLE_HEAD, show_header=False)
    rows = {
        "images mined": f"{count(len(done.mined))} of {count(done.mined.searched)}"
        f" ({percent(len(done.mined) / done.mined.searched)})",
        "images that tuned": count(done.samples),
        "key neurons, key synapses": f"{percent(done.key_neurons)}, {percent(done.key_synapses)}",
        "kept": f"learning rate {best.learning_rate:g}, epoch {best.epoch} of {config.epochs}",
        "accuracy on the selection images": f"{percent(done.tuned.accuracy)} before, {percent(best.accuracy)} after",
    }
    rows |= {what: duration(seconds) for what, seconds in done.seconds.items()}
    for name, said in rows.items():
        found.add_row(name, said)
    return found

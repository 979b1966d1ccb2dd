"""`ukemi repair dare` and its null controls, `ukemi repair null`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn

from ukemi import reports
from ukemi.attacks.config import AttackConfig
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures.attacks import under_attack
from ukemi.repairs import Dare, Dared, columns_of, dare, null_control, verdict
from ukemi.repairs.dare import Told
from ukemi.repairs.more import read_about
from ukemi.repairs.null import Kind
from ukemi.reports.words import count, duration, percent
from ukemi.schema import Schema
from ukemi.training import Run
from ukemi.training.sets import Recorder, as_data
from ukemi.training.setup import fixed_subset, load_sets, trained_model


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
    controls: bool = False
    """Also make both null controls, freeze adversarial sets, and say whether the repair beats them (on the page)."""
    control_images: int = Field(500, ge=2)
    """Test images that the comparison with the controls uses."""

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
    run = Run(config.run)
    with _bars() as report:
        done = dare(run, config.told(), out=config.out, report=report)
        found = _compared(config, run, done.run, report) if config.controls else None
    console = Console(highlight=False)
    console.print(_table(config, done))
    for sentence in found.said if found else ():
        console.print(sentence)
    models, test = tested(run, done.run)
    page = reports.write_repair(done.run.folder, read_about(done.run), models, test, found)
    console.print(f"repair:  {page}", soft_wrap=True)
    return done.run


def run_null(config: NullConfig) -> Run:
    if config.run is None or config.like is None:
        raise UserError("repair: two run folders are needed: ukemi repair null RUN --like TUNED.")
    return null_control(Run(config.run), Run(config.like), kind=config.kind, seed=config.seed, out=config.out)


ATTACKS = {
    "C&W": AttackConfig(attack="carlini-wagner", steps=100, searches=5),
    "PGD 8/255": AttackConfig(attack="pgd", epsilon=8 / 255),
}
"""What the controls are compared by: an error as near as possible, and one within a budget."""


def _compared(config: DareConfig, run: Run, done: Run, report: Told) -> reports.Compared:
    """The origin, the repair and its null controls, on sets frozen for the origin and under attacks on each itself."""
    kinds: tuple[Kind, ...] = ("random", "continued")
    places = [done.folder / "controls" / kind for kind in kinds]
    made = [null_control(run, done, kind=kind, out=at, quiet=True) for kind, at in zip(kinds, places, strict=True)]
    models, test = tested(run, done, *made)
    data = fixed_subset(test, min(config.control_images, len(test)), 0)
    frozen = {}
    for name, attack in ATTACKS.items():
        recorder = Recorder(attack.made(0))
        under_attack(models[0], data, recorder, report=partial(report, f"freeze {name}"))
        found = recorder.set(models[0], data, attack, data=Run.config_of(run.folder).data, split="test")
        if bool(found.success.any()):
            frozen[name] = as_data(found)
    names = ("original", config.variant, *(f"null {kind}" for kind in kinds))
    standings = {}
    for at, (name, model) in enumerate(zip(names, models, strict=True)):
        report(f"attack {name}", at, len(names))
        standings[name] = columns_of(model, data, frozen, ATTACKS)
    controls = {name: standings[name] for name in names[2:]}
    said = verdict(config.variant.replace("dare", "DARE"), standings[config.variant], controls)
    return reports.Compared(standings, said)


def tested(*runs: Run) -> tuple[list[nn.Module], Data]:
    """The runs' models on their device, and the first one's test images."""
    config = Run.plain_config_of(runs[0].folder, space=False)
    device, own = config.chosen_device(), load_sets(config).test
    found = [trained_model(run, Run.plain_config_of(run.folder, space=False), own) for run in runs]
    return [model.to(device).eval() for model, _ in found], found[0][1].to(device)


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

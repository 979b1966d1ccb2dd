"""`ukemi repair uncertainty`."""

from pathlib import Path
from typing import Annotated

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from ukemi.errors import UserError
from ukemi.repairs import Enhance, Enhanced, enhance
from ukemi.reports.words import percent, plural
from ukemi.training import Run


class EnhanceConfig(Enhance):
    """Trains a run's model some epochs more on its images and on mixtures of generated inputs (uncertainty-guided).

    The inputs of --sets are mixed with each other, pixels or inner features and labels (manifold mixup); the run's own
    training images are trained unmixed beside them. Accuracy, the calibration rate on attacks that transfer, robust
    accuracy and PGD are measured before and after.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """A finished run folder of `ukemi train`."""
    sets: tuple[Path, ...] = ()
    """Files that `ukemi generate`, `ukemi attack` or `ukemi uncertainty --keep-fuzzed` wrote for this model with
    --split train: one group."""
    out: Path | None = None
    """The new run folder; default: RUN-VARIANT."""
    device: str | None = None
    """cpu, cuda, cuda:1; default: as the run says."""


def run_enhance(config: EnhanceConfig) -> Run:
    if config.run is None:
        raise UserError("repair: a run folder is needed: ukemi repair uncertainty RUN --sets FILE.")
    console = Console(stderr=True)

    def report(what: str) -> None:
        if console.is_terminal:
            console.print(what, style="dim")

    told = Enhance.taken_from(config)
    done = enhance(Run(config.run), config.sets, told, out=config.out, device=config.device, report=report)
    Console(highlight=False, markup=False).print(_table(done))
    return done.run


def _table(done: Enhanced) -> Table:
    found = Table(caption=f"{done.samples} inputs, each {done.repeats} times an epoch", box=box.SIMPLE_HEAD)
    for name in ("", "before", "after"):
        found.add_column(name, justify="left" if not name else "right")
    before, after = done.before, done.after
    rows = {
        "accuracy": (before.accuracy, after.accuracy),
        f"robust accuracy, T3 ({before.images} images)": (before.robust_accuracy, after.robust_accuracy),
        f"under PGD ({before.images} images)": (before.pgd_accuracy, after.pgd_accuracy),
    }
    for name, count in before.calibration_images.items():
        row = f"calibration rate, {name} ({plural(count, 'image')})"
        rows[row] = before.calibration[name], after.calibration[name]
    if before.calibration:
        rows["calibration rate, mean"] = (before.mean_calibration, after.mean_calibration)
    for name, values in rows.items():
        found.add_row(name, *(percent(value) for value in values))
    return found

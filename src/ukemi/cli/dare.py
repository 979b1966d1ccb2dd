"""`ukemi repair dare` and its null controls, `ukemi repair null`."""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic import Field
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn

from ukemi import reports
from ukemi.attacks.config import AttackConfig
from ukemi.cli.bars import stages
from ukemi.cli.brought import tell
from ukemi.data import Data
from ukemi.errors import UserError, field_called
from ukemi.measures.attacks import under_attack
from ukemi.repairs import Dare, columns_of, dare, null_control, verdict
from ukemi.repairs.dare import Told
from ukemi.repairs.more import REPAIR, folder_for, read_about
from ukemi.repairs.null import Kind
from ukemi.reports.repair import PAGE
from ukemi.reports.words import count, duration, percent
from ukemi.schema import Schema
from ukemi.training import Interrupted, Run
from ukemi.training.config import device_of
from ukemi.training.sets import Recorder, as_data, weights_hash
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
    device: str | None = None
    """cpu, cuda, cuda:1; default: as the run says."""


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
    device: str | None = None
    """cpu, cuda, cuda:1; default: as the run says."""


def run_dare(config: DareConfig) -> Run:
    if config.run is None:
        raise UserError("repair: a run folder is needed: ukemi repair dare RUN.")
    run, console = Run(config.run), Console(highlight=False, markup=False)
    done = _repaired(config, run)
    about = read_about(done)
    console.print(_table(about))
    models, test = models_and_test(run, done, device=config.device)
    if not (done.folder / PAGE).exists():  # before the controls, which take long and may be stopped
        reports.write_repair(done.folder, about, models, test)
    console.print(f"repair:  {done.folder / PAGE}", soft_wrap=True)
    if config.controls:
        found = _beside_controls(config, run, done)
        for sentence in found.said:
            console.print(sentence)
        reports.write_repair(done.folder, about, models, test, found)
    return done


def _repaired(config: DareConfig, run: Run) -> Run:
    """The new run; one that was made from the same weights by the same settings before is taken up."""
    told, found = Dare.taken_from(config), Run(folder_for(run, config.out, config.variant))
    if (found.folder / REPAIR).exists() and found.weights_path.exists():
        with field_called("out", "run"):
            about = read_about(found)
        (model,), _ = models_and_test(run, device=config.device)
        if (about.get("origin_model"), about.get("settings")) == (weights_hash(model), told.model_dump(mode="json")):
            tell(f"{found.folder} is this repair already, and is taken up")
            return found
    with stages("mine") as report:
        return dare(run, told, out=config.out, device=config.device, report=report).run


def _beside_controls(config: DareConfig, run: Run, done: Run) -> reports.Compared:
    try:
        with stages("mine") as report:
            return _compared(config, run, done, report)
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted("stopped among the controls; the same command goes on from here.") from None


def run_null(config: NullConfig) -> Run:
    if config.run is None or config.like is None:
        raise UserError("repair: two run folders are needed: ukemi repair null RUN --like TUNED.")
    run, like = Run(config.run), Run(config.like)
    return null_control(run, like, kind=config.kind, seed=config.seed, out=config.out, device=config.device)


ATTACKS = {
    "C&W": AttackConfig(attack="carlini-wagner", steps=100, searches=5),
    "PGD 8/255": AttackConfig(attack="pgd", epsilon=8 / 255),
}
"""What the controls are compared by: an error as near as possible, and one within a budget."""


def _compared(config: DareConfig, run: Run, done: Run, report: Told) -> reports.Compared:
    """The origin, the repair and its null controls, on sets frozen for the origin and under attacks on each itself."""
    kinds: tuple[Kind, ...] = ("random", "continued")
    made = [_control(config, run, done, kind) for kind in kinds]
    models, test = models_and_test(run, done, *made, device=config.device)
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


def _control(config: DareConfig, run: Run, done: Run, kind: Kind) -> Run:
    made = Run(done.folder / "controls" / kind)
    if made.weights_path.exists():
        return made
    shutil.rmtree(made.folder, ignore_errors=True)  # what a stop left half made
    return null_control(run, done, kind=kind, out=made.folder, device=config.device, quiet=True)


def models_and_test(*runs: Run, device: str | None = None) -> tuple[list[nn.Module], Data]:
    """The runs' models on `device` (default: the last one's own), and the first one's test images."""
    config = Run.plain_config_of(runs[0].folder, space=False)
    home = device_of(device or Run.plain_config_of(runs[-1].folder, space=False).device)
    own = load_sets(config).test
    found = [trained_model(run, Run.plain_config_of(run.folder, space=False), own) for run in runs]
    return [model.to(home).eval() for model, _ in found], found[0][1].to(home)


def _table(about: Mapping[str, Any]) -> Table:
    found = Table(box=box.SIMPLE_HEAD, show_header=False)
    rows = {
        "images mined": f"{count(about['mined'])} of {count(about['searched'])}"
        f" ({percent(about['mined'] / about['searched'])})",
        "images that tuned": count(about["samples"]),
        "key neurons, key synapses": f"{percent(about['key_neurons'])}, {percent(about['key_synapses'])}",
        "kept": f"learning rate {about['learning_rate']:g}, epoch {about['epochs']} of {about['settings']['epochs']}",
        "accuracy on the selection images": f"{percent(about['accuracy_before'])} before,"
        f" {percent(about['accuracy_after'])} after",
    }
    rows |= {what: duration(seconds) for what, seconds in about["seconds"].items()}
    for name, said in rows.items():
        found.add_row(name, said)
    return found

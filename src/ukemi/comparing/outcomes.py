"""What a run came to: its measures, and what became of every test image; one sealed file per run and measuring."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.attacks.config import AttackConfig
from ukemi.comparing.costs import cost_of
from ukemi.comparing.plan import Measured, Planned
from ukemi.comparing.shown import write_shown
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures import robustness_of
from ukemi.measures.attacks import under_attack
from ukemi.models.inference import home_of, seconds_per_image
from ukemi.repairs.retraining import DRAWS
from ukemi.spaces import T3, named_grid
from ukemi.training import Run, TrainConfig
from ukemi.training.checkpoints import read_checkpoint, write_checkpoint, write_whole
from ukemi.training.setup import Sets, fixed_subset, load_sets, machine, make_model, trained_model
from ukemi.variations.warp import check_kernels

KIND = "outcome"
SCHEMA = 1
"""Version of the fields: raised when one changes its meaning or goes."""
STOPPED, FAILED = "stopped.json", "failed.json"
"""why a training can't be finished, and would stop at the same place again; what went wrong when it was last tried"""
SUBSET = 0
"""the seed that draws the test images: the same ones for all runs, whatever their seed"""


@dataclass(frozen=True)
class Outcome:
    """A finished run in numbers."""

    measures: dict[str, float]
    """accuracy, robust (on the first grid), robust GRID; under attack the accuracy (attacked) and STYX's robustness,
    means over all groups of attacks, and of each group (attacked NAME, robustness NAME) where there are several"""
    images: dict[str, Tensor]
    """per test image: `[N]` in 0..1, by the name of its measure"""
    index: dict[str, Tensor]
    """int64 `[N]`: which images these are, by the name of the measure"""
    epochs: int
    seconds: float
    """of training, on whatever it ran on"""
    measuring_seconds: float
    forwards: int
    """passes of the training, counted in images"""
    backwards: int
    log: list[dict[str, Any]] = field(default_factory=list)
    machine: str = ""
    """what it was finished on, and by which torch; empty in files of earlier versions"""
    base_log: list[dict[str, Any]] = field(default_factory=list)
    """of the training before it, where the run is a retraining"""

    def losses(self) -> list[float]:
        """The training loss of every epoch, those before a retraining too."""
        return [line["loss"] for line in (*self.base_log, *self.log)]


def outcome_path(run: Run, measured: Measured) -> Path:
    return run.folder / f"outcome-{measured.key}.safetensors"


def finished(run: Run, measured: Measured) -> bool:
    return outcome_path(run, measured).exists() or (run.folder / STOPPED).exists()


def write_reason(run: Run, name: str, reason: str) -> None:
    write_whole(run.folder / name, (json.dumps({"reason": reason}) + "\n").encode())


def read_reason(run: Run, name: str) -> str | None:
    path = run.folder / name
    return json.loads(path.read_text(encoding="utf-8"))["reason"] if path.exists() else None


def measure(one: Planned, run: Run, measured: Measured) -> None:
    """Measures what a run trained and writes its outcome."""
    began = monotonic()
    sets, device = load_sets(one.config), one.config.chosen_device()
    trained = Run.config_of(run.folder)
    model, test = trained_model(run, trained, sets.test)
    model, test = model.to(device), test.to(device)
    test = test if measured.images is None else fixed_subset(test, min(measured.images, len(test)), SUBSET)
    measures, images, index = _varied(run, model, test, measured)
    _attacked(model, test, measured, measures, images, index)
    tensors = {f"image.{name}": kept for name, kept in images.items()}
    tensors |= {f"index.{name}": kept for name, kept in index.items()}
    where = ", torch ".join(machine(one.config.device).values())
    values = {"kind": KIND, "outcome_schema": SCHEMA, "machine": where, "measures": measures}
    values |= _spent(one, run, sets, model)
    write_checkpoint(outcome_path(run, measured), tensors, {**values, "measuring_seconds": monotonic() - began})


def read_outcome(run: Run, measured: Measured, base: Run | None = None) -> Outcome:
    """Reads and verifies; a damaged file is refused in one sentence that says how to go on. `base` is the run that this
    one trained further."""
    path = outcome_path(run, measured)
    try:
        read = read_checkpoint(path)
    except UserError as error:
        raise UserError(f"{error} Remove it, and it is measured again.".replace("checkpoint:", "outcome:", 1)) from None
    if read.values.get("kind") != KIND or read.values.get("outcome_schema", 0) > SCHEMA:
        raise UserError(f"outcome: {path} is none that this ukemi can read.")
    fields = ("measures", "epochs", "seconds", "measuring_seconds", "forwards", "backwards")
    told = {name: read.values[name] for name in fields} | {"machine": read.values.get("machine", "")}
    told |= {"log": run.read_log(), "base_log": [] if base is None else base.read_log()}
    return Outcome(images=read.part("image"), index=read.part("index"), **told)


def _varied(
    run: Run, model: nn.Module, test: Data, measured: Measured
) -> tuple[dict[str, float], dict[str, Tensor], dict[str, Tensor]]:
    measures: dict[str, float] = {}
    images: dict[str, Tensor] = {}
    for at, grid in enumerate(measured.grids):
        found = robustness_of(model, test, T3, grid)  # a named grid brings its own space
        name = "robust" if at == 0 else f"robust {grid}"
        images |= {"accuracy": found.correct, name: found.robust}
        measures |= {"accuracy": found.accuracy, name: found.robust_accuracy}
        if at == 0:
            write_shown(run, measured, model, test, found)
    return measures, images, dict.fromkeys(images, test.index.cpu())


def try_measures(config: TrainConfig, data: Data, measured: Measured) -> None:
    """Looks at the settings of attacks, and tries what is anyone's own of the measures on two images with the untrained
    network: a mistake in them should show before any training."""
    attacks = [AttackConfig(**told) for group in measured.attacks.values() for told in group]
    for attack in attacks:
        attack.check((data.channels, *data.size))
    own = [attack for attack in attacks if ":" in attack.name()]
    few = data.batch(torch.arange(min(2, len(data))), "cpu")
    for grid in measured.grids:
        check_kernels(few.images, named_grid(grid, data.size)[0])
    if own:
        model = make_model(config, data, data.classes, config.weights).eval()
        for attack in own:
            attack.made(SUBSET)(model, few.images, few.labels, index=few.index)


def _attacked(
    model: nn.Module,
    test: Data,
    measured: Measured,
    measures: dict[str, float],
    images: dict[str, Tensor],
    index: dict[str, Tensor],
) -> None:
    """Every group of attacks: the mean over its attacks, of the model and per image."""
    if not measured.attacks:
        return
    few = fixed_subset(test, min(measured.attack_images or len(test), len(test)), SUBSET)
    groups: dict[str, tuple[Tensor, float]] = {}
    for name, group in measured.attacks.items():
        found = [under_attack(model, few, AttackConfig(**told).made(SUBSET)) for told in group]
        holds = torch.stack([(one.right & ~one.fooled).double() for one in found]).mean(0)
        # where nothing is recognised nothing can be fooled, and nothing holds
        robustness = [one.robustness if int(one.right.sum()) else 0.0 for one in found]
        groups[f" {name}"] = holds, fmean(robustness)
    every = torch.stack([holds for holds, _ in groups.values()]).mean(0), fmean(one for _, one in groups.values())
    for name, (holds, share) in {"": every, **(groups if len(groups) > 1 else {})}.items():
        measures |= {f"attacked{name}": float(holds.mean()), f"robustness{name}": share}
        images[f"attacked{name}"], index[f"attacked{name}"] = holds, few.index.cpu()


def _spent(one: Planned, run: Run, sets: Sets, model: nn.Module) -> dict[str, Any]:
    """Passes and seconds of the whole training: the log counts scoring and images, a trial what a step takes."""
    log, cost = run.read_log(), cost_of(one, sets.train)
    first = log if one.then is None else one.base().run(run.folder.parent).read_log()
    seen = sum(line["images"] for line in first)
    forwards = first[-1]["scoring_forwards"] + cost.forwards * seen
    backwards, seconds, epochs = cost.backwards * seen, first[-1]["seconds"], len(first)
    if one.then is not None:
        tried = DRAWS * one.config.epochs * len(sets.train)  # the variants among which those that fool were found
        more = sum(line["images"] for line in log)
        forwards, backwards, epochs = forwards + tried + more, backwards + more, epochs + len(log)
        few = sets.train.batch(torch.arange(min(128, len(sets.train))), home_of(model)).images
        seconds += log[-1]["seconds"] + tried * seconds_per_image(model, few)
    return {"epochs": epochs, "seconds": seconds, "forwards": round(forwards), "backwards": round(backwards)}

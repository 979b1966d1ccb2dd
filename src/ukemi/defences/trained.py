"""Defences that are a new training of a run's network: defensive distillation, label smoothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.objectives import CrossEntropy, Distillation
from ukemi.training import Run, TrainConfig, train
from ukemi.training.history import ELSEWHERE
from ukemi.training.setup import trained_model

TEMPERATURE, SMOOTHING = 20.0, 0.1
ALIKE = {"history": 0, "robust_every": 0, "tensorboard": False, "weights": None}
"""what a further training of the same kind leaves out"""


def distilled(
    run: Run, out: Path, *, temperature: float = TEMPERATURE, device: str | None = None, quiet: bool = True
) -> Run:
    """The run's network trained as the run was, twice: a teacher at a temperature, then a student on its answers.
    `device` takes the place of the run's own."""
    config = _plain(run, device)
    soft = Distillation.Config(temperature=temperature)
    teacher = _finished(config, out / "teacher", {"objective": soft}, quiet)
    taught = Distillation.Config(temperature=temperature, teacher=str(teacher.weights_path.resolve()))
    return _finished(config, out / "student", {"objective": taught}, quiet)


def smoothed(
    run: Run, out: Path, *, smoothing: float = SMOOTHING, device: str | None = None, quiet: bool = True
) -> Run:
    """The run's network trained as the run was, with smoothed labels. `device` takes the place of the run's own."""
    return _finished(_plain(run, device), out, {"smoothing": smoothing}, quiet)


def network_of(run: Run, data: Data) -> nn.Module:
    """A finished run's network."""
    return trained_model(run, Run.config_of(run.folder), data)[0]


def _plain(run: Run, device: str | None) -> TrainConfig:
    config = Run.config_of(run.folder).on(device)
    if not isinstance(config.objective, CrossEntropy.Config):
        raise UserError(
            f"defences: this one trains the run's network anew with another loss, so the run's own should be"
            f" cross-entropy, but it is {config.objective.name}."
        )
    return config


def _finished(config: TrainConfig, out: Path, changes: Mapping[str, Any], quiet: bool) -> Run:
    """A training into `out`; one that is there and finished is taken, one that was stopped goes on."""
    wanted = TrainConfig.taken_from(config, **{**ALIKE, **changes, "out": out})
    if not (out / "config.toml").exists():
        return train(wanted, quiet=quiet)
    there = Run.config_of(out)
    _check_same(there, wanted, out)
    return Run(out) if Run(out).weights_path.exists() else train(there.on(config.device), resume=True, quiet=quiet)


def _check_same(there: TrainConfig, wanted: TrainConfig, out: Path) -> None:
    """What was trained for another state of the run is none of its defences."""
    found, here = (one.told(ELSEWHERE) for one in (there, wanted))
    for one in (found, here):
        one["objective"].pop("teacher", None)  # a path, which moves with the run
    for name in sorted(found.keys() | here.keys()):
        if found.get(name) != here.get(name):
            was, now = found.get(name, getattr(there, name)), here.get(name, getattr(wanted, name))
            raise UserError(
                f"defences: {out} was trained with {name.replace('_', '-')} {was!r}, but {now!r} is wanted now;"
                " remove that folder to train it anew."
            )

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


def distilled(run: Run, out: Path, *, temperature: float = TEMPERATURE, quiet: bool = True) -> Run:
    """The run's network trained as the run was, twice: a teacher at a temperature, then a student on its answers."""
    config = _plain(run)
    soft = Distillation.Config(temperature=temperature)
    teacher = _finished(config, out / "teacher", {"objective": soft}, quiet)
    taught = Distillation.Config(temperature=temperature, teacher=str(teacher.weights_path.resolve()))
    return _finished(config, out / "student", {"objective": taught}, quiet)


def smoothed(run: Run, out: Path, *, smoothing: float = SMOOTHING, quiet: bool = True) -> Run:
    """The run's network trained as the run was, with smoothed labels."""
    return _finished(_plain(run), out, {"smoothing": smoothing}, quiet)


def network_of(run: Run, data: Data) -> nn.Module:
    """A finished run's network, on the device that its settings name."""
    config = Run.config_of(run.folder)
    return trained_model(run, config, data)[0].to(config.chosen_device())


def _plain(run: Run) -> TrainConfig:
    config = Run.config_of(run.folder)
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
    _check_same(Run.config_of(out), wanted, out)
    return Run(out) if Run(out).weights_path.exists() else train(Run.config_of(out), resume=True, quiet=quiet)


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

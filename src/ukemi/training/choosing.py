"""STYX's `mutator = "auto"`: mutator and ratios are chosen by short trainings, judged on validation images."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from statistics import mean
from time import monotonic
from typing import Any

from torch import nn

from ukemi.attacks.config import AttackConfig
from ukemi.augmenters import Standard
from ukemi.augmenters.styx import AUTO, StyxConfig
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures.attacks import under_attack
from ukemi.training.checkpoints import write_whole
from ukemi.training.config import TrainConfig
from ukemi.training.guard import TrainingStopped
from ukemi.training.interrupt import Interrupted
from ukemi.training.loop import train
from ukemi.training.run import Run
from ukemi.training.setup import fixed_subset, load_sets, trained_model
from ukemi.variations.mutators import MIXTURE, MUTATORS

RATIOS = ((0.5, 0.1), (0.5, 0.3), (1.0, 0.1))
"""data and pixel ratios that are tried beside those that were given; the first are the paper's"""
SHARE = 0.1
"""of the training's epochs that each candidate gets"""
BUDGETS = tuple(steps / 255 for steps in (2, 4, 8, 16, 32))
"""Linf budgets of the attack (BIM, 10 steps): whatever the data, not all of them are too small or too large"""
FILE = "mutators.json"
SCHEMA = 1


@dataclass(frozen=True)
class Trial:
    """A short training and how it holds on the validation images."""

    mutator: str
    """or `none`: the same training without mutation, for comparison"""
    data_ratio: float
    pixel_ratio: float
    accuracy: float
    attacked_accuracy: float
    """share of the images that are recognised and stay so, mean over the budgets: what ranks. STYX's robustness alone
    would rank a network first that recognises nothing but a few images of one class."""
    robustness: float
    """1 - fooled / recognised, mean over the budgets"""
    seconds: float


@dataclass(frozen=True)
class Choice:
    """Candidates from the best to the worst, and the training with the best of them."""

    config: TrainConfig
    ranking: tuple[Trial, ...]
    without: Trial
    epochs: int
    """of each short training"""
    images: int
    """validation images that were attacked"""


def is_open(config: TrainConfig) -> bool:
    """Whether the mutator is still to be chosen."""
    return isinstance(config.augmenter, StyxConfig) and config.augmenter.mutator == AUTO


def choose_mutator(config: TrainConfig, *, report: Callable[[int, int], None] | None = None) -> Choice:
    """Trains every candidate (the four mutators and their mixture, at a few ratios) for a tenth of the epochs and ranks
    them by accuracy under BIM on the validation images; test images are never looked at. Nothing is kept but numbers.

    `choice.config` is the full training with the winner. `report(done, total)` hears how far it is.
    """
    if not is_open(config):
        raise UserError("augmenter.mutator: there is something to choose only where it is auto.")
    if not config.validation:
        raise UserError("validation: mutator auto ranks by validation images, so it should be above 0.")
    Run.check_free(config.folder())
    candidates = _candidates(config.augmenter)
    told = report or (lambda done, total: None)
    trials = []
    for at, augmenter in enumerate([Standard.Config(), *candidates]):
        trials.append(_trial(config, augmenter))
        told(at + 1, len(candidates) + 1)
    without, *tried = trials
    order = sorted(range(len(tried)), key=lambda at: -tried[at].attacked_accuracy)
    chosen = TrainConfig.taken_from(config, augmenter=candidates[order[0]])
    images = min(config.robust_images, len(load_sets(config).validation or ()))
    return Choice(chosen, tuple(tried[at] for at in order), without, _epochs(config), images)


def write_choice(folder: Path, choice: Choice) -> None:
    """The ranking, beside the run's other files."""
    values = {
        "schema": SCHEMA,
        "chosen": asdict(choice.ranking[0]),
        "ranking": [asdict(trial) for trial in choice.ranking],
        "without_mutation": asdict(choice.without),
        "epochs": choice.epochs,
        "validation_images": choice.images,
        "attack": {"name": "bim", "norm": "linf", "steps": 10, "epsilons": list(BUDGETS)},
    }
    write_whole(folder / FILE, (json.dumps(values, indent=2) + "\n").encode())


def _candidates(given: Any) -> list[StyxConfig]:
    """Every mutator at the given ratios and at a few others; what else is set stays."""
    ratios = dict.fromkeys([(given.data_ratio, given.pixel_ratio), *RATIOS])
    kept = given.model_dump(exclude={"mutator", "data_ratio", "pixel_ratio"})
    return [
        StyxConfig(**kept, mutator=mutator, data_ratio=data, pixel_ratio=pixel)
        for data, pixel in ratios
        for mutator in (*MUTATORS, MIXTURE)
    ]


def _trial(config: TrainConfig, augmenter: Any) -> Trial:
    """One candidate; one whose training breaks down holds nowhere."""
    mutator, ratios = "none", (0.0, 0.0)
    if isinstance(augmenter, StyxConfig):
        mutator, ratios = augmenter.mutator, (augmenter.data_ratio, augmenter.pixel_ratio)
    began = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        short = TrainConfig.taken_from(
            config,
            augmenter=augmenter,
            epochs=_epochs(config),
            drops=(),
            robust_every=0,
            compile=False,
            out=Path(folder) / "run",
        )
        try:
            found = _held(short, train(short, quiet=True))
        except TrainingStopped:
            found = (0.0, 0.0, 0.0)
        except Interrupted:
            raise Interrupted("stopped while mutators were compared; nothing was written.") from None
    return Trial(mutator, *ratios, *found, round(monotonic() - began, 3))


def _held(config: TrainConfig, run: Run) -> tuple[float, float, float]:
    """Accuracy, accuracy under attack and robustness on the validation images."""
    validation = load_sets(config).validation
    assert validation is not None
    model, data = trained_model(run, config, fixed_subset(validation, config.robust_images, config.seed))
    device = config.chosen_device()
    return _measured(model.to(device), data.to(device))


def _measured(model: nn.Module, data: Data) -> tuple[float, float, float]:
    attacks = [AttackConfig(attack="bim", epsilon=epsilon, steps=10).made() for epsilon in BUDGETS]
    found = [under_attack(model, data, attack) for attack in attacks]
    held, robust = mean(one.attacked_accuracy for one in found), mean(one.robustness for one in found)
    return found[0].accuracy, held, robust if robust == robust else 0.0


def _epochs(config: TrainConfig) -> int:
    return ceil(SHARE * config.epochs)

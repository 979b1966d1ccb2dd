"""Uncertainty-guided retraining: manifold mixup of one group of generated inputs, beside the unmixed training set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ukemi.data import Data, as_float, in_a_row
from ukemi.errors import UserError, field_called
from ukemi.measures.uncertainty import attack_of, turned_by
from ukemi.objectives import GroupedMixup
from ukemi.repairs.gains import Standing, standing_of
from ukemi.repairs.more import (
    about_further,
    free_folder,
    further,
    last_rate,
    like,
    pixels,
    same_steps,
    write_about,
    write_data,
)
from ukemi.schema import Number, Schema
from ukemi.training import Run, train
from ukemi.training.sets import AdversarialSet, check_once, read_set_for, some_inputs
from ukemi.training.setup import fixed_subset, in_classes, load_sets, trained_model

Variant = Literal["within", "with-original"]
Told = Callable[[str], None]


class Enhance(Schema):
    """How a model is trained on one group of generated inputs."""

    variant: Variant = "within"
    """Whom a generated input is mixed with: others of its group (within), or original images (with-original)."""
    samples: int | None = Field(None, ge=2)
    """Train on this many inputs of the sets, a fixed choice by the seed; default: all that succeeded."""
    share: Annotated[Number, Field(gt=0, lt=1)] = 0.25
    """The share of an epoch that the group makes up: its inputs are repeated as often as that takes."""
    alpha: Annotated[Number, Field(gt=0)] = 2.0
    """Mixtures are drawn from Beta(alpha, alpha)."""
    layers: tuple[str, ...] = ()
    """Names of the modules behind which features may be mixed, as in model.named_modules(); default: behind a third and
    two thirds of the network. The pixels are always among the choices."""
    epochs: int = Field(5, ge=1)
    """More passes over the training images and the group."""
    learning_rate: Annotated[Number, Field(gt=0)] | None = None
    """Held constant; default: what the run ended with, at least a hundredth of its peak."""
    attacks: tuple[str, ...] = ("fgsm", "bim", "deepfool", "carlini-wagner")
    """Attacks on the unrepaired model whose frozen inputs the calibration rate is taken on."""
    transfer: tuple[Path, ...] = ()
    """Frozen sets of `ukemi attack` for the unrepaired model, from test images; instead of --attacks."""
    epsilon: Annotated[Number, Field(gt=0, le=1)] = 8 / 255
    """Budget of these attacks and of PGD, in pixels of 0..1."""
    images: int = Field(500, ge=1)
    """Attack and vary this many test images, a fixed choice by the seed."""


@dataclass(frozen=True)
class Enhanced:
    """What a retraining did."""

    run: Run
    samples: int
    """inputs of the group"""
    repeats: int
    """how often each was seen in an epoch"""
    before: Standing
    after: Standing


def enhance(
    run: Run,
    sets: Sequence[Path],
    told: Enhance | None = None,
    *,
    out: Path | None = None,
    device: str | None = None,
    report: Told | None = None,
) -> Enhanced:
    """Trains a run's model further on what succeeded in `sets`, into a new run folder, and measures both.

    Sets must come from the training part: a model that had trained on what was made of test images would know them.
    `device` takes the place of the run's own.
    """
    told = told or Enhance()
    say = report or (lambda what: None)
    config, folder = Run.config_of(run.folder).on(device), free_folder(run, out, told.variant)
    home, own = config.chosen_device(), load_sets(config)
    model, data = trained_model(run, config, own.train)
    _, test = trained_model(run, config, own.test)
    group = _group(sets, told, model, data, config.seed)
    objective = _objective(told, model, len(data))
    check_once("transfer", told.transfer)
    kept = {path: read_set_for("transfer", path, model, test) for path in told.transfer}
    model, few = model.to(home), fixed_subset(test, min(told.images, len(test)), config.seed)
    say("attacks on the model")
    frozen = _frozen(told, kept, model, few, config.seed)
    say("measures before")
    options = {"epsilon": told.epsilon, "seed": config.seed}
    before = standing_of(model, test, few, frozen, **options)  # type: ignore[arg-type]
    repeats = max(1, round(told.share / (1 - told.share) * len(data) / len(group)))
    images, labels = _with_group(data, group, repeats)
    more = further(
        config,
        run,
        folder,
        epochs=told.epochs,
        learning_rate=told.learning_rate or last_rate(config, run),
        **same_steps(config),
        cuda_graphs=config.cuda_graphs,
        objective=objective,
    )
    write_data(folder, images, labels, test)
    finished = train(more)
    say("measures after")
    repaired = trained_model(finished, more, test)[0].to(home)
    after = standing_of(repaired, test, few, frozen, **options)  # type: ignore[arg-type]
    done = Enhanced(finished, len(group), repeats, before, after)
    write_about(folder, _about(told, sets, done) | about_further(run, model, more, len(images)))
    return done


def _objective(told: Enhance, model: nn.Module, first: int) -> GroupedMixup.Config:
    """Tried before the work: a network may show no layer to mix behind."""
    partners: Literal["group", "others"] = "group" if told.variant == "within" else "others"
    objective = GroupedMixup.Config(first=first, partners=partners, alpha=told.alpha, layers=told.layers)
    with field_called("layers", "objective.layers"):
        objective.build(0.0).attach(model)
    return objective


def _with_group(data: Data, group: Data, repeats: int) -> tuple[Tensor, Tensor]:
    """The training images, and behind them those of the group, each so often: pixels as they are stored, and labels."""
    stored = pixels(data).cpu()
    added = like(as_float(pixels(group)), stored).repeat(repeats, 1, 1, 1)
    return torch.cat([stored, added]), torch.cat([data.labels.cpu(), group.labels.repeat(repeats)])


def _group(sets: Sequence[Path], told: Enhance, model: nn.Module, data: Data, seed: int) -> Data:
    """What succeeded in the sets, in the classes of the model."""
    if not sets:
        raise UserError("sets: at least one file of `ukemi generate`, `ukemi attack` or `ukemi uncertainty` is needed.")
    check_once("sets", sets)
    group = in_a_row([_trained_on(path, model, data) for path in sets])
    if told.samples is None:
        return group
    if told.samples > len(group):
        raise UserError(f"samples: {told.samples} are asked for, but {len(group)} inputs of the sets succeeded.")
    return some_inputs(group, told.samples, seed)


def _trained_on(path: Path, model: nn.Module, data: Data) -> Data:
    found, succeeded = read_set_for("sets", path, model)
    if found.split != "train":
        raise UserError(
            f"sets: {path} was made from the {found.split} part, but a model that is measured on test images may not"
            " train on what was made of them; give `ukemi generate` or `ukemi attack` --split train."
        )
    made = in_classes(succeeded, data.classes)
    if tuple(made.images.shape[1:]) != (data.channels, *data.size):
        raise UserError(f"sets: the images of {path} have another shape than those of the run.")
    return made


def _frozen(
    told: Enhance, kept: dict[Path, tuple[AdversarialSet, Data]], model: nn.Module, few: Data, seed: int
) -> dict[str, Data]:
    """What fooled the unrepaired model, by attack."""
    if kept:
        names = transfer_names({path: one.attack for path, (one, _) in kept.items()})
        return {names[path]: in_classes(made, few.classes) for path, (_, made) in kept.items()}
    attacks = {name: attack_of(name, told.epsilon) for name in told.attacks}
    return {name: turned_by(model, few, attack.made(seed)) for name, attack in attacks.items()}


def transfer_names(attacks: Mapping[Path, str]) -> dict[Path, str]:
    """What frozen sets are called: by attack and file, or by attack and whole path where two would be alike."""
    short = {path: f"{attack} ({path.stem})" for path, attack in attacks.items()}
    taken = list(short.values())
    return {path: name if taken.count(name) == 1 else f"{attacks[path]} ({path})" for path, name in short.items()}


def _about(told: Enhance, sets: Sequence[Path], done: Enhanced) -> dict[str, Any]:
    return {
        "repair": "uncertainty",
        "settings": told.model_dump(mode="json"),
        "sets": [str(path) for path in sets],
        "samples": done.samples,
        "repeats": done.repeats,
        "before": done.before.as_json(),
        "after": done.after.as_json(),
        "accuracy_gained": done.after.accuracy - done.before.accuracy,
    }

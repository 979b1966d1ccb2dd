"""Uncertainty (paper 3) as an experiment: every piece is a command of ukemi, or several, into the cell's folder."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from ukemi.defences import DEFENCES
from ukemi.experiments.place import Place, flags, trained
from ukemi.repairs import standing_of
from ukemi.repairs.more import DATA, REPAIR, beside, last_rate, same_steps
from ukemi.repairs.uncertain import transfer_names
from ukemi.schema import Schema
from ukemi.training import Run
from ukemi.training.sets import as_data, read_set
from ukemi.training.setup import fixed_subset, in_classes, load_sets, trained_model
from ukemi.uncertainty import GOALS, PATTERNS

ATTACKS = ("fgsm", "bim", "deepfool", "carlini-wagner")
BUDGETED = ("fgsm", "bim")
FUZZERS = ("deephunter", "tensorfuzz")
CONTINUED = "continued"
"""the control: as many epochs more, at the same rate, on the training images alone"""


class UncertaintySizes(Schema):
    """How much is done in every cell."""

    place: ClassVar[str] = "sizes"
    images: int = Field(1000, ge=2)
    """test images that are profiled and defended; defences judge at most as many inputs of a fuzzer or a search"""
    validation_images: int = Field(1000, ge=2)
    """images that limits are found on"""
    seeds: int = Field(200, ge=1)
    """test images that a search starts from"""
    group_images: int = Field(2000, ge=2)
    """training images that groups are made of"""
    samples: int = Field(500, ge=2)
    """inputs of a group, where so many succeeded"""
    measured: int = Field(1000, ge=2)
    """test images for frozen attacks, robust accuracy and PGD"""
    epochs: int = Field(5, ge=1)
    """of a retraining"""
    passes: int = Field(50, ge=2)
    population: int = Field(50, ge=2)
    generations: int = Field(50, ge=1)
    carlini_steps: int = Field(200, ge=1)
    carlini_searches: int = Field(5, ge=1)
    defences: tuple[str, ...] = tuple(DEFENCES)


PARTS: dict[str, tuple[str, ...]] = {
    "study": ("profile",),
    "generation": tuple(f"generate {pattern} {goal}" for pattern in PATTERNS for goal in GOALS),
    "defences": ("defend",),
    "retraining": tuple(f"retrain {row}" for row in (CONTINUED, *PATTERNS, *ATTACKS, "fuzzed")),
}
"""What each recipe of the paper measures, piece by piece."""


class Uncertain:
    """One network with one seed; everything is made when it is first asked for, and kept."""

    def __init__(self, place: Place) -> None:
        self.place, self.sizes, self.folder, self.epsilon = place, place.sizes, place.folder, place.cell.epsilon

    @staticmethod
    def key(name: str, piece: str) -> dict[str, Any]:
        """How a line of results is called."""
        stage, _, row = piece.partition(" ")
        return {"model": name, "stage": stage, "row": row}

    def line(self, piece: str) -> dict[str, Any]:
        stage, _, row = piece.partition(" ")
        if stage == "profile":
            return self.profiled()
        if stage == "generate":
            return self.searched(*row.split())
        return self.defended() if stage == "defend" else self.retrained(row)

    # what is made once

    def run(self) -> Path:
        self.place.before("training")
        return trained(self.place.settings()).folder

    def common(self, *, thresholds: bool = True) -> list[Any]:
        """Flags that all commands about uncertainty share."""
        told = [("device", self.place.device), ("passes", self.sizes.passes), ("epsilon", self.epsilon)]
        told += [("validation-images", self.sizes.validation_images), ("seed", self.place.seed)]
        told += [("attacked", self.folder / "attacked")]
        return flags([*told, ("profile", self.profile())] if thresholds else told)

    def profile(self) -> Path:
        out = self.folder / "uncertainty"
        if not (out / "uncertainty.json").exists():
            own = flags([("images", self.sizes.images), ("gallery", 1), ("out", out)])
            self.place.told("uncertainty", self.run(), *self.common(thresholds=False), "--keep-fuzzed", *own)
        return out / "uncertainty.json"

    def generated(self, pattern: str, goal: str, split: str = "test") -> Path:
        out = self.folder / split / f"{pattern}-{goal}"
        if not (out / "generation.json").exists():
            many = self.sizes.seeds if split == "test" else self.sizes.group_images
            search = [("population", self.sizes.population), ("generations", self.sizes.generations)]
            wanted = [("pattern", pattern), ("goal", goal), ("split", split), ("images", many)]
            own = flags([*search, *wanted, ("gallery", 2), ("out", out)])
            self.place.told("generate", self.run(), *self.common(), *own)
        return out

    def attacked(self, attack: str, split: str) -> Path:
        out = self.folder / split / attack
        if not (out / "adversarial.safetensors").exists():
            many = self.sizes.measured if split == "test" else self.sizes.group_images
            told: list[tuple[str, Any]] = [("attack", attack), ("split", split), ("images", many)]
            told += [("epsilon", self.epsilon)] if attack in BUDGETED else []
            if attack == "carlini-wagner":
                told += [("steps", self.sizes.carlini_steps), ("searches", self.sizes.carlini_searches)]
            told += [("device", self.place.device), ("seed", self.place.seed), ("out", out)]
            self.place.told("attack", self.run(), *flags(told))
        return out / "adversarial.safetensors"

    def fuzzed(self) -> list[Path]:
        """What the fuzzers made of training images."""
        out = self.folder / "train" / "fuzzed"
        if not all((out / f"{name}.safetensors").exists() for name in FUZZERS):
            told = [("split", "train"), ("images", self.sizes.group_images), ("variants", None), ("gallery", 0)]
            own = [*flags([*told, ("out", out)]), "--keep-fuzzed", "--attacks"]
            self.place.told("uncertainty", self.run(), *self.common(), *own)
        return [out / f"{name}.safetensors" for name in FUZZERS]

    def group(self, row: str) -> list[Path]:
        if row in PATTERNS:
            return [self.generated(row, "misclassified", "train") / "generated.safetensors"]
        return self.fuzzed() if row == "fuzzed" else [self.attacked(row, "train")]

    # what is measured

    def profiled(self) -> dict[str, Any]:
        found = json.loads(self.profile().read_text())
        kept = {name: found[name] for name in ("thresholds", "passes")}
        kept["sources"] = [row for row in found["sources"] if row["images"]]
        epochs = len(Run(self.run()).read_log())
        return kept | {"calibration_error": found["calibration"]["expected_error"], "epochs": epochs}

    def searched(self, pattern: str, goal: str) -> dict[str, Any]:
        """Without what says only where it lay."""
        found = json.loads((self.generated(pattern, goal) / "generation.json").read_text()) | {"settings": None}
        return {name: value for name, value in found.items() if name not in ("title", "found_by")}

    def defended(self) -> dict[str, Any]:
        out = self.folder / "defended"
        if not (out / "defences.json").exists():
            made = [self.generated(pattern, "misclassified") / "generated.safetensors" for pattern in PATTERNS]
            sets = _some([*made, *(self.profile().parent / f"{name}.safetensors" for name in FUZZERS)])
            many = [("images", self.sizes.images), ("samples", self.sizes.images)]
            own = [*flags([*many, ("out", out)]), "--defences", *self.sizes.defences]
            self.place.told("defend", self.run(), *self.common(), *own, *(["--sets", *sets] if sets else []))
        found = json.loads((out / "defences.json").read_text())
        return {name: found[name] for name in ("sources", "patterns", "defences", "mean_uncommon_ratio")}

    def retrained(self, row: str) -> dict[str, Any]:
        frozen = _some([self.attacked(attack, "test") for attack in ATTACKS])
        if row == CONTINUED:
            return self.continued(frozen)
        out, sets = self.folder / "repaired" / row, _some(self.group(row))
        there = sum(int(read_set(path).success.sum()) for path in sets)
        if there < 2:
            return {"samples": there}
        if not (out / REPAIR).exists():
            shutil.rmtree(out, ignore_errors=True)  # of one that was stopped
            own = [("samples", min(self.sizes.samples, there)), ("epsilon", self.epsilon), ("out", out)]
            own += [("images", self.sizes.measured), ("epochs", self.sizes.epochs)]
            self.place.told("repair", "uncertainty", self.run(), *flags(own), "--sets", *sets, "--transfer", *frozen)
            (out / DATA).unlink()  # hundreds of megabytes that the sets can make again
        about = json.loads((out / REPAIR).read_text())
        return {name: about[name] for name in ("samples", "repeats", "before", "after")}

    def continued(self, frozen: Sequence[Path]) -> dict[str, Any]:
        run = Run(self.run())
        config = Run.config_of(run.folder)
        out, rate = self.folder / "repaired" / CONTINUED, last_rate(config, run)
        done = trained(beside(config, run, out, epochs=self.sizes.epochs, learning_rate=rate, **same_steps(config)))
        standings = {name: self.standing(own, frozen) for name, own in (("before", run), ("after", done))}
        return {"samples": 0, **standings}

    def standing(self, run: Run, frozen: Sequence[Path]) -> dict[str, Any]:
        config = Run.config_of(run.folder)
        model, data = trained_model(run, config, load_sets(config).test)
        few = fixed_subset(data, min(self.sizes.measured, len(data)), config.seed)
        kept = {path: read_set(path) for path in frozen}
        names = transfer_names({path: one.attack for path, one in kept.items()})
        sets = {names[path]: in_classes(as_data(one), data.classes) for path, one in kept.items()}
        options: dict[str, Any] = {"epsilon": self.epsilon, "seed": config.seed}
        return standing_of(model.to(config.chosen_device()), data, few, sets, **options).as_json()


def _some(paths: Sequence[Path]) -> list[Path]:
    """Those in which anything succeeded."""
    return [path for path in paths if bool(read_set(path).success.any())]

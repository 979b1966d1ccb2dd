"""The plan: one list of runs, each with the config that makes it and a name that is the hash of that config."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from filecmp import cmp
from functools import cached_property
from pathlib import Path
from typing import Any

from ukemi.comparing.config import Case, CompareConfig, Method
from ukemi.errors import UserError
from ukemi.training import Run, TrainConfig
from ukemi.training.config import digest

UNHASHED = {"out", "device", "data_folder", "tensorboard", "checkpoint_minutes", "stream", "workers"}
"""where a run is made and lies does not change what it is"""
PLACES = {"data", "weights"}
"""paths that a run's config keeps in full"""
USUAL = {"validation": 0}
"""of a training inside a comparison: nothing is kept aside, since what is compared is measured on test images"""


@dataclass(frozen=True, eq=False)
class Planned:
    """One training: a method on a case with a seed."""

    case: str
    method: str
    seed: int
    config: TrainConfig
    then: str | None = None

    @cached_property
    def key(self) -> str:
        """The name of its folder."""
        return digest({"train": self.config.told(UNHASHED), "then": self.then})

    def title(self) -> str:
        return f"{self.case}, {self.method}, seed {self.seed}"

    def run(self, runs: Path) -> Run:
        return Run(runs / self.key)

    def check(self, runs: Path) -> None:
        """Refuses a folder that was made by other settings: by a version of ukemi with other defaults, or with another
        file of that name. Of a repair what it began with is looked at."""
        folder = self.base().run(runs).folder
        if not (folder / "config.toml").exists():
            return
        made = Run.config_of(folder)
        for name in sorted(PLACES):
            was, now = (Path(getattr(one, name) or "").expanduser() for one in (made, self.config))
            if was.exists() and now.exists() and not _alike(was, now):
                raise UserError(
                    f"runs: {folder} was made with {name} {was}, and {now.absolute()} is wanted now;"
                    " give another --runs."
                )
        there, here = (one.model_dump(mode="json", exclude=UNHASHED | PLACES) for one in (made, self.config))
        for name in here:
            if there[name] != here[name]:
                raise UserError(
                    f"runs: {folder} was made with {name.replace('_', '-')} {there[name]!r}, by another version of"
                    f" ukemi, and {here[name]!r} is wanted now; remove it, or give another --runs."
                )

    def base(self) -> "Planned":
        """What is trained before it is repaired."""
        return Planned(self.case, self.method, self.seed, self.config)


def _alike(one: Path, other: Path) -> bool:
    """Whether both are the same; of files a copy is."""
    return one.samefile(other) or (one.is_file() and other.is_file() and cmp(one, other, shallow=False))


@dataclass(frozen=True)
class Measured:
    """What is measured of every run of a case; its hash names the file."""

    grids: tuple[str, ...]
    images: int | None
    attacks: dict[str, list[dict[str, Any]]]
    attack_images: int | None

    @cached_property
    def key(self) -> str:
        return digest([self.grids, self.images, self.attacks, self.attack_images])


@dataclass(frozen=True)
class Plan:
    """Everything that is to be done, in the order in which it is done: one seed of everything first."""

    planned: tuple[Planned, ...]
    measured: dict[str, Measured]
    """by case"""
    missing: dict[str, str]
    """cases that can't be run, and why"""
    runs: Path


def planned(config: CompareConfig, missing: dict[str, str] | None = None) -> Plan:
    """All runs of a comparison; every training's config is checked. `missing` are cases without data, by name."""
    missing = missing or {}
    cases = {case.title(): case for case in config.chosen_cases()}
    if len(cases) < len(config.chosen_cases()):
        raise UserError("cases: each needs a name of its own.")
    told = [
        Planned(name, method.name, seed, _train(config, case, method, seed), method.then)
        for seed in range(config.seed, config.seed + config.seeds)
        for name, case in cases.items()
        for method in config.methods
    ]
    present = tuple(one for one in told if one.case not in missing)
    measured = {name: _measured(config, case) for name, case in cases.items()}
    return Plan(present, measured, missing, config.runs or config.out / "runs")


def _measured(config: CompareConfig, case: Case) -> Measured:
    attacks = {
        name: [{"attack": one.name(), **one.settings()} for one in group]
        for name, group in config.attack_groups().items()
    }
    grids, images = case.grids or config.grids, case.images or config.images
    return Measured(grids, images, attacks, config.attack_images if attacks else None)


def _train(config: CompareConfig, case: Case, method: Method, seed: int) -> TrainConfig:
    """The case's settings on top of the comparison's, the method's on top of both."""
    layers = {
        "": USUAL,
        "train": config.train,
        f"cases.{case.title()}": case.settings(),
        f"methods.{method.name}": method.settings(),
    }
    values = {key: value for layer in layers.values() for key, value in layer.items()}
    for part in ("augmenter", "objective"):
        if isinstance(values.get(part), str):
            values[part] = {"name": values[part]}
    own = {"device": config.device, "data_folder": config.data_folder, "seed": seed}
    try:
        return TrainConfig(**{**own, **values, "seed": seed})
    except UserError as error:
        raise UserError(_placed(str(error), layers)) from None


def _placed(said: str, layers: Mapping[str, Mapping[str, Any]]) -> str:
    """The sentence on a wrong field, with the place where the field was given."""
    field = re.split(r"[.: ]", said)[0].replace("-", "_")
    places = [place for place, layer in layers.items() if place and field in layer]
    return f"{places[-1]}.{said}" if places else said

"""What an experiment is told: which one, which part of it, in which cells, how large."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field, model_validator

from ukemi.comparing.config import pairs
from ukemi.errors import UserError, check_known
from ukemi.experiments import dare, uncertain
from ukemi.experiments.dare import DareCell
from ukemi.experiments.frozen import DareSizes
from ukemi.experiments.place import CellConfig, Command, Place
from ukemi.experiments.uncertain import Uncertain, UncertaintySizes
from ukemi.schema import Schema
from ukemi.training.config import digest


class Subject(Protocol):
    """One cell with one seed."""

    def line(self, piece: str) -> dict[str, Any]: ...


class Subjects(Protocol):
    """What makes it, and how its lines are called."""

    def __call__(self, place: Place) -> Subject: ...
    def key(self, name: str, piece: str) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Kind:
    """A family of experiments that share their networks and sets."""

    subject: Subjects
    sizes: type[Schema]
    parts: Mapping[str, tuple[str, ...]]
    """the pieces of each part, in their order"""


KINDS: dict[str, Kind] = {
    "uncertainty": Kind(Uncertain, UncertaintySizes, uncertain.PARTS),
    "dare": Kind(DareCell, DareSizes, dare.PARTS),
}
"""Every experiment that is no comparison of trainings: adding one is a class and a line here."""


class ExperimentConfig(Schema):
    """A part of an experiment, in cells x seeds.

    What is there already is not done again; what was interrupted goes on. Parts of one experiment share their networks
    and sets, and processes that are started at once divide the cells.
    """

    place: ClassVar[str] = ""
    title: str = "Experiment"
    experiment: Literal["uncertainty", "dare"]
    part: str
    """study, generation, defences or retraining; effectiveness, variants, share, mining or efficiency"""
    cells: tuple[CellConfig, ...]
    """networks and their data"""
    sizes: dict[str, Any] = {}
    """how much is done in every cell"""
    seeds: int = Field(3, ge=1)
    seed: int = Field(0, ge=0, lt=2**31)
    """the first seed"""
    jobs: int = Field(1, ge=1)
    device: str = "auto"
    data_folder: Path | None = None
    out: Path = Path("experiment")
    runs: Path | None = None
    """where networks, sets and lines are kept; default: OUT/runs"""

    @model_validator(mode="after")
    def _fits(self) -> "ExperimentConfig":
        check_known("part", self.part, self.kind.parts)
        if not self.cells:
            raise UserError("cells: at least one is needed.")
        names = [cell.name for cell in self.cells]
        for cell in self.cells:
            if names.count(cell.name) > 1:
                raise UserError(f"cells: {cell.name!r} is there twice; each needs a name of its own.")
            self.placed(cell, self.seed).settings()
        return self

    @property
    def kind(self) -> Kind:
        return KINDS[self.experiment]

    def pieces(self) -> tuple[str, ...]:
        return self.kind.parts[self.part]

    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    def epochs_of(self, cell: CellConfig) -> int:
        """How long the cell's network is trained."""
        place = self.placed(cell, self.seed)
        return place.sizes.epochs if isinstance(place.sizes, DareSizes) else place.settings().epochs

    def placed(self, cell: CellConfig, seed: int, command: Command = lambda words: 0) -> Place:
        """The cell with a folder of its own for everything that changes its results."""
        sizes = self.kind.sizes(**{**pairs(self.sizes), **cell.sizes})
        told = cell.model_dump(mode="json", exclude={"sizes", "not_run", "paper"})
        key = digest({"cell": told, "sizes": sizes.model_dump(mode="json")})[:8]
        folder = f"{self.experiment}-{cell.name.replace(' ', '-')}-{seed}-{key}"
        runs = self.runs or self.out / "runs"
        return Place(cell, sizes, seed, runs / folder, self.device, self.data_folder, command)

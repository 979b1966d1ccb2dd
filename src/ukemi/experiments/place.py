"""One network with one seed, and the folder where all that is made of it is kept."""

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from ukemi.comparing.config import pairs
from ukemi.schema import Number, Schema
from ukemi.training import Run, TrainConfig, train

Command = Callable[[list[str]], int]
"""Runs a command of ukemi from its words; what goes wrong is raised."""


class CellConfig(Schema):
    """A network and its data, and what is particular to them."""

    place: ClassVar[str] = "cells"
    name: str
    """how tables call it"""
    data: str
    """as for `ukemi train`"""
    model: str
    train: Annotated[dict[str, Any], BeforeValidator(pairs)] = {}
    """settings of `ukemi train`"""
    epsilon: Number = Field(8 / 255, gt=0, le=1)
    """budget of attacks that have one, and of generated noise, in pixels of 0..1 (uncertainty)"""
    shifts: bool = False
    """trained on images shifted by up to an eighth, as DARE's code does with CIFAR-10"""
    sizes: Annotated[dict[str, Any], BeforeValidator(pairs)] = {}
    """where they differ from those of all cells"""
    not_run: str = ""
    """why this cell can't be run here"""
    paper: dict[str, Any] = {}
    """the paper's own figures, which tables show beside ours"""


@dataclass(frozen=True)
class Place:
    """Where a cell's work is done; `sizes` is the schema of its experiment."""

    cell: CellConfig
    sizes: Any
    seed: int
    folder: Path
    device: str = "auto"
    data_folder: Path | None = None
    command: Command = lambda words: 0
    before: Callable[[str], None] = lambda piece: None
    """called before every piece that takes long, with its name; may raise to stop"""

    @property
    def name(self) -> str:
        return self.cell.name

    def settings(self, **usual: Any) -> TrainConfig:
        """How the cell's network is trained; `usual` is what its experiment wants."""
        told = {"data": self.cell.data, "model": self.cell.model, "seed": self.seed, "device": self.device}
        told |= {"data_folder": self.data_folder, "out": self.folder / "base"}
        return TrainConfig(**{**usual, **self.cell.train, **told})

    def told(self, *words: Any) -> None:
        """Runs a command of ukemi in silence: its folders say what came of it."""
        self.before(" ".join(map(str, words[:1])))
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            self.command([str(word) for word in words])


def trained(config: TrainConfig) -> Run:
    """The run that a config makes: from the start, from where it was stopped, or as it is there."""
    run = Run(config.folder())
    if not run.weights_path.exists():
        train(config, resume=(run.folder / "config.toml").exists(), quiet=True)
    return run


def flags(settings: Sequence[tuple[str, Any]]) -> list[Any]:
    """--name value for each."""
    return [word for name, value in settings for word in (f"--{name}", value)]

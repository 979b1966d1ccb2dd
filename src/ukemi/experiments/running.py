"""One loop over cells, seeds and pieces, run by any number of processes at once; a line is kept of every piece."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter, sleep
from typing import Any

from ukemi.comparing import absent, make_folder
from ukemi.comparing.display import about_left, watched
from ukemi.comparing.locks import POLL, held
from ukemi.comparing.running import work_in
from ukemi.experiments.config import ExperimentConfig
from ukemi.experiments.place import CellConfig, Command, Place
from ukemi.training.checkpoints import write_whole
from ukemi.training.config import device_of
from ukemi.training.setup import load_sets, machine, make_model

Line = dict[str, Any]
LINES = "lines"


@dataclass(frozen=True)
class Findings:
    """All that was found so far."""

    config: ExperimentConfig
    lines: tuple[Line, ...]
    missing: dict[str, str]
    """cells that can't be run, and why"""
    open: int
    """pieces that are not finished"""


def conduct(config: ExperimentConfig, command: Command) -> Findings:
    """Does what is missing, goes on with what was interrupted, skips what is done, and says what came of it."""
    rehearse(config)
    make_folder(config.out, "out")
    make_folder(config.runs or config.out / "runs", "runs")
    with watched(Pieces(config)):
        if config.jobs == 1:
            work(config, command)
        else:
            work_in(partial(work, config, command), config.jobs)
    return gathered(config)


def rehearse(config: ExperimentConfig) -> None:
    """Loads the data and makes the network of every cell with work to do: a mistake should show before any of it."""
    device_of(config.device)
    for cell in _present(config):
        place = config.placed(cell, config.seed)
        if not all(line_path(place, piece).exists() for piece in config.pieces()):
            config.kind.subject(place)
            told = place.settings()
            train = load_sets(told).train
            make_model(told, train, train.classes, None)


def missing(config: ExperimentConfig) -> dict[str, str]:
    """Cells that can't be run, and why."""
    found = {}
    for cell in config.cells:
        why = cell.not_run or absent(config.placed(cell, config.seed).settings())
        if why:
            found[cell.name] = why
    return found


def work(config: ExperimentConfig, command: Command) -> None:
    """Does what nobody else is doing, until everything is done; what others are doing is waited for."""
    left = _places(config, command)
    while left := [place for place in left if not _done(config, place)]:
        sleep(POLL)


def _present(config: ExperimentConfig) -> list[CellConfig]:
    gone = missing(config)
    return [cell for cell in config.cells if cell.name not in gone]


def _places(config: ExperimentConfig, command: Command = lambda words: 0) -> list[Place]:
    """One seed of everything first."""
    here = _present(config)
    return [config.placed(cell, seed, command) for seed in config.all_seeds() for cell in here]


def _lines(config: ExperimentConfig) -> dict[Path, str]:
    """Where the line of every piece is kept, and which piece it is."""
    return {line_path(place, piece): piece for place in _places(config) for piece in config.pieces()}


def _done(config: ExperimentConfig, place: Place) -> bool:
    """Whether a cell is finished; where it is not and nobody is at it, it is done now."""
    if all(line_path(place, piece).exists() for piece in config.pieces()):
        return True
    with held(place.folder) as mine:
        if mine:
            subject = config.kind.subject(place)
            for piece in config.pieces():
                if not line_path(place, piece).exists():
                    line = lined(config, place, piece, subject.line)
                    write_whole(line_path(place, piece), (json.dumps(line) + "\n").encode())
        return mine


def lined(config: ExperimentConfig, place: Place, piece: str, measure: Callable[[str], Line]) -> Line:
    """What a piece came to, with its name, its time and its machine."""
    began = perf_counter()
    found = measure(piece)
    key = {**config.kind.subject.key(place.name, piece), "seed": place.seed}
    took = {} if "seconds" in found else {"seconds": perf_counter() - began}
    return {**key, **found, **took, "took": perf_counter() - began, **machine(config.device)}


def line_path(place: Place, piece: str) -> Path:
    return place.folder / LINES / f"{piece.replace(' ', '-')}.json"


def gathered(config: ExperimentConfig) -> Findings:
    """What the pieces have come to so far."""
    paths = _lines(config)
    there = [path for path in paths if path.exists()]
    lines = tuple(json.loads(path.read_text(encoding="utf-8")) for path in there)
    return Findings(config, lines, missing(config), len(paths) - len(there))


class Pieces:
    """Reads from the folders how many pieces are done, and from their lines how long the others will take."""

    def __init__(self, config: ExperimentConfig) -> None:
        self.left = _lines(config)
        self.total, self.jobs = len(self.left), config.jobs
        self.took: dict[str, list[float]] = {}

    def look(self) -> None:
        for path in [path for path in self.left if path.exists()]:
            line = json.loads(path.read_text(encoding="utf-8"))
            self.took.setdefault(self.left.pop(path), []).append(line["took"])

    def done(self) -> tuple[float, int]:
        return self.total - len(self.left), self.total

    def said(self) -> str:
        done = f"{self.total - len(self.left)} of {self.total} pieces"
        if not self.took or not self.left:
            return done
        usual = fmean(second for seconds in self.took.values() for second in seconds)
        means = {piece: fmean(seconds) for piece, seconds in self.took.items()}
        return about_left(done, sum(means.get(piece, usual) for piece in self.left.values()) / self.jobs)

"""A run is one folder: the config that made it, its log, its checkpoints, its weights."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from ukemi.errors import UserError
from ukemi.schema import read_config, toml
from ukemi.training.checkpoints import Checkpoint, check_folder, newest, read_checkpoint, write_whole
from ukemi.training.config import TrainConfig

TIMES = (
    *("seconds", "images_per_second", "history_seconds", "data_seconds", "validation_seconds"),
    *("scoring_seconds", "scoring_seconds_saved"),
)
"""Fields of the log that two equal runs need not share."""
PLACES = ("data", "data_folder", "weights")
"""Fields of the config that are or may be paths."""
BESIDE = "./"
"""A path in a run's config that begins so lies in the run's own folder, wherever that was moved."""


class Run:
    """The folder of a run and what is written to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_path = folder / "log.jsonl"
        self.checkpoints = folder / "checkpoints"
        self.weights_path = folder / "model.safetensors"
        self.history = folder / "history"
        self.resuming = f"--resume {quote(str(folder))}"
        """the flag of `ukemi train` that goes on with it, to be pasted"""

    @staticmethod
    def start(config: TrainConfig) -> "Run":
        """A new folder with its config; one that already holds a run is refused."""
        folder = config.folder()
        Run.check_free(folder)
        # genes take the place of a named space; paths hold wherever the run is looked at from
        left_out = {"out", "space"} if config.genes else {"out"}
        values = config.model_dump(mode="json", exclude=left_out)
        for field in PLACES:
            if values[field] is not None and Path(values[field]).exists():
                values[field] = _lasting(Path(values[field]).resolve(), folder.resolve())
        write_whole(folder / "config.toml", toml(values).encode())
        return Run(folder)

    @staticmethod
    def check_free(folder: Path) -> None:
        """Refuses a folder that already holds a run, or that can't be written."""
        check_folder(folder)
        if (folder / "config.toml").exists() or Run(folder).log_path.exists():
            go_on = Run(folder).resuming
            raise UserError(f"out: {folder} already holds a run; go on with {go_on}, or give another --out.")

    @staticmethod
    def config_of(folder: Path) -> TrainConfig:
        """The config that made a run."""
        return TrainConfig(**_read(folder))

    @staticmethod
    def plain_config_of(folder: Path, *, space: bool = True) -> TrainConfig:
        """The same as far as a trained model is looked at: the settings of augmenter and objective, which only training
        uses, are left at their defaults, and without `space` so is the space. A part of anyone's own that is named
        there need not be importable any more."""
        values = _read(folder)
        for part in ("augmenter", "objective"):
            if isinstance(values.get(part), dict):
                values[part] = {"name": values[part].get("name")}
        unneeded = () if space else ("space", "genes")
        return TrainConfig(**{name: value for name, value in values.items() if name not in unneeded})

    def write_log(self, line: Mapping[str, Any]) -> None:
        try:
            with self.log_path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(f"{self.log_path} can't be written: {error.strerror or error}.") from None

    def log_length(self) -> int:
        """Bytes in the log, flushed to the disk."""
        if not self.log_path.exists():
            return 0
        with self.log_path.open("rb") as file:
            os.fsync(file.fileno())
        return self.log_path.stat().st_size

    def cut_log(self, length: int) -> None:
        """Back to what a checkpoint knew: lines of work that was lost are written again."""
        if self.log_path.exists():
            os.truncate(self.log_path, length)

    def read_log(self) -> list[dict[str, Any]]:
        if not self.log_path.exists():
            return []
        try:
            return [json.loads(line) for line in self.log_path.read_text(encoding="utf-8").splitlines()]
        except ValueError:
            raise UserError(f"run: {self.log_path} is damaged; a run without its log has to be made again.") from None

    def has_checkpoint(self) -> bool:
        return bool(newest(self.checkpoints))

    def last_checkpoint(self) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
        """The newest checkpoint that is whole, and a sentence on each newer one that was refused."""
        refused: list[tuple[Path, str]] = []
        for path in newest(self.checkpoints):
            try:
                return read_checkpoint(path), refused
            except UserError as error:
                refused.append((path, str(error)))
        return None, refused


def _read(folder: Path) -> dict[str, Any]:
    """The fields of a run's config."""
    if not (folder / "config.toml").is_file():
        raise UserError(f"run: {folder} holds no run (there is no config.toml in it).")
    values = read_config(folder / "config.toml") | {"out": folder}
    own = {name: str(values[name]) for name in PLACES if str(values.get(name, "")).startswith(BESIDE)}
    return values | {name: str((folder / path).resolve()) for name, path in own.items()}


def _lasting(path: Path, folder: Path) -> str:
    """A path as a run's config states it: one inside the run's folder moves with it."""
    return BESIDE + path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)

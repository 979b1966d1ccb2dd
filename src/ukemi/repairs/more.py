"""Training a run's model further, on a data set made for it."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import check_folder, write_checkpoint, write_whole
from ukemi.training.sets import weights_hash

KEPT = (
    "model",
    "model_arguments",
    "mean",
    "std",
    "dropout",
    "space",
    "genes",
    "flips",
    "smoothing",
    "device",
    "precision",
    "channels_last",
    "seed",
)
"""What a further training takes over from the run."""
DATA, REPAIR = "data.npz", "repair.json"
SCHEMA = 1
"""Version of its fields: raised when one changes its meaning or goes."""


def further(config: TrainConfig, run: Run, out: Path, **changes: Any) -> TrainConfig:
    """The run's settings for more epochs from its weights, into `out` and on the data there, plainly augmented, at one
    learning rate."""
    if not run.weights_path.exists():
        raise UserError(f"run: {run.folder} has no weights yet; finish it with {run.resuming}.")
    kept = {name: getattr(config, name) for name in KEPT}
    more = {"data": str(out / DATA), "weights": run.weights_path, "schedule": "constant", "validation": 0, "out": out}
    return TrainConfig(**{**kept, **more, **changes})


def same_steps(config: TrainConfig) -> dict[str, Any]:
    """How the run itself stepped."""
    return {name: getattr(config, name) for name in ("batch_size", "optimiser", "weight_decay", "momentum")}


def beside(config: TrainConfig, run: Run, out: Path, **changes: Any) -> TrainConfig:
    """As `further`, but on the run's own data, split as the run split them."""
    own = {name: getattr(config, name) for name in ("data", "data_folder", "size", "channels", "classes", "validation")}
    return further(config, run, out, **{**own, **changes})


def folder_for(run: Run, out: Path | None, what: str) -> Path:
    return out or run.folder.with_name(f"{run.folder.name}-{what}")


def free_folder(run: Run, out: Path | None, what: str) -> Path:
    """Where a repair writes: `out`, or beside the run; one that holds a run already, or can't be written to, is refused
    before any work."""
    folder = folder_for(run, out, what)
    if (folder / "config.toml").exists():
        raise UserError(f"out: {folder} already holds a run; give another --out.")
    check_folder(folder)
    return folder


def last_rate(config: TrainConfig, run: Run) -> float:
    """The learning rate that a run ended with, but at least a hundredth of its peak: one-cycle ends at almost 0."""
    log = run.read_log()
    return max(log[-1]["learning_rate"] if log else 0.0, config.learning_rate / 100)


def write_data(folder: Path, images: Tensor, labels: Tensor, test: Data) -> None:
    """What a further training is given: these images to train on, `test` to test on."""
    file = io.BytesIO()
    np.savez(
        file,
        x_train=images.cpu().numpy(),
        y_train=labels.cpu().numpy(),
        x_test=pixels(test).cpu().numpy(),
        y_test=test.labels.cpu().numpy(),
        classes=np.array(test.classes),
    )
    write_whole(folder / DATA, file.getvalue())


def pixels(data: Data) -> Tensor:
    """All images of a set as one tensor."""
    return data.images[torch.arange(len(data))]


def like(images: Tensor, stored: Tensor) -> Tensor:
    """Float pixels in the type that a set is stored in: bytes are rounded to."""
    return (images * 255).round().to(torch.uint8) if stored.dtype == torch.uint8 else images.to(stored.dtype)


def write_tuned(
    config: TrainConfig,
    state: Mapping[str, Tensor],
    classes: Sequence[str],
    log: Iterable[Mapping[str, Any]],
    about: Mapping[str, Any],
) -> Run:
    """A run folder for weights that were not made by `train`: config, log, weights, and `about` as repair.json."""
    made = Run.start(config)
    for line in log:
        made.write_log(line)
    write_about(made.folder, about)
    write_checkpoint(made.weights_path, state, {"classes": list(classes)})
    return made


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Writes repair.json."""
    write_whole(folder / REPAIR, (json.dumps({"schema": SCHEMA, **about}, indent=2) + "\n").encode())


def about_further(run: Run, model: nn.Module, told: TrainConfig, images: int) -> dict[str, Any]:
    """What repair.json says of any further training: from which model, on how many images, and how."""
    names = ("epochs", "learning_rate", "batch_size", "optimiser", "weight_decay", "momentum")
    origin = {"origin": str(run.folder.resolve()), "origin_model": weights_hash(model)}
    return origin | {name: getattr(told, name) for name in names} | {"images": images}


def train_further(
    told: TrainConfig,
    run: Run,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    test: Data,
    about: Mapping[str, Any],
    *,
    quiet: bool,
) -> Run:
    """Trains as `further` has told, on these images; `about` is what repair.json says besides."""
    write_data(told.folder(), images, labels, test)
    write_about(told.folder(), {**about, **about_further(run, model, told, len(images))})
    return train(told, quiet=quiet)


def read_about(run: Run) -> dict[str, Any]:
    """What repair.json says; a run without one is refused."""
    try:
        values = json.loads((run.folder / REPAIR).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict):
        raise UserError(f"run: {run.folder} has no readable {REPAIR}; `ukemi repair dare` writes one.")
    return values

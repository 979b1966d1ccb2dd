"""The weights of a run's last epochs (DARE, section 3.2): one sealed file per epoch, read back one at a time."""

import shutil
from pathlib import Path
from time import monotonic

import torch
from torch import Tensor, nn

from ukemi.errors import UserError, field_called
from ukemi.training.checkpoints import read_checkpoint, write_checkpoint
from ukemi.training.config import TrainConfig, digest
from ukemi.training.run import Run

KIND = "history"
ELSEWHERE = {
    "out",
    "data",
    "data_folder",
    "weights",
    "device",
    "stream",
    "workers",
    "tensorboard",
    "checkpoint_minutes",
}
"""settings that may differ where a run is moved or goes on"""


def kept_epochs(config: TrainConfig) -> range:
    """The epochs whose weights a run keeps, counted from 1: the last is the finished model itself."""
    return range(config.epochs - config.history_epochs() + 1, config.epochs + 1)


def history_path(run: Run, epoch: int) -> Path:
    return run.history / f"epoch-{epoch:04d}.safetensors"


def size_on_disk(config: TrainConfig, model: nn.Module) -> str:
    """What the history will take, in a sentence; refused where the disk has no room for it."""
    one, epochs, folder = _bytes(config, model), len(kept_epochs(config)), config.folder().absolute()
    free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.is_dir())).free
    if one * epochs > free:
        raise UserError(
            f"history: {_said(one * epochs)} are needed, but {_said(free)} are free where {folder} will be."
        )
    return f"history: the weights of the last {epochs} epochs, {_said(one)} each, {_said(one * epochs)} in all."


def keep(config: TrainConfig, run: Run, model: nn.Module, epoch: int) -> float:
    """Writes the model's parameters and buffers after `epoch` (from 1), whole, and says how many seconds that took.

    It has to be on the disk before the checkpoint that ends the epoch: a run that is killed in between goes back to the
    checkpoint before, and writes the same file again.
    """
    began = monotonic()
    for left in run.history.glob("*.partial"):
        left.unlink(missing_ok=True)
    values = {"kind": KIND, "epoch": epoch, "precision": config.history_precision}
    values["run"] = _identity(Run.config_of(run.folder))  # as the file tells it: it says nothing that is None
    write_checkpoint(history_path(run, epoch), rounded(model, config.history_precision), values)
    return round(monotonic() - began, 4)


def rounded(model: nn.Module, precision: str) -> dict[str, Tensor]:
    """The state dictionary as it is kept: `bfloat16` rounds the parameters; buffers (BatchNorm's statistics, the
    normalisation) are small and stay as they are."""
    state = model.state_dict()
    if precision == "float32":
        return state
    parameters = {name for name, tensor in model.named_parameters() if tensor.is_floating_point()}
    return {name: tensor.bfloat16() if name in parameters else tensor for name, tensor in state.items()}


class History:
    """The historical models of a finished run: `epochs` counted from 1, and the `weights` of each.

    The finished model is the last of DARE's historical models and is kept like them, but no tutor of itself: it is not
    among `epochs`. (By Algorithm 1 it never wins; rounded to bfloat16 it might, by its rounding.)
    """

    def __init__(self, run: Run) -> None:
        config = Run.config_of(run.folder)
        self.run, self._identity = run, _identity(config)
        *self.epochs, self.last = list(kept_epochs(config)) or [0]
        if not self.epochs:
            none = "the finished model alone" if self.last else "none"
            raise UserError(f"history: {run.folder} kept {none}; train with --history half, for 3 epochs or more.")
        for epoch in (*self.epochs, self.last):
            if not history_path(run, epoch).is_file():
                raise UserError(f"history: {run.folder} lacks epoch {epoch} (the file {history_path(run, epoch)}).")

    def weights(self, epoch: int) -> dict[str, Tensor]:
        """Parameters and buffers after an epoch, by name, on the CPU; rounded ones as float32."""
        path = history_path(self.run, epoch)
        with field_called("history", "checkpoint"):
            found = read_checkpoint(path)
        if found.values.get("kind") != KIND or found.values.get("epoch") != epoch:
            raise UserError(f"history: {path} doesn't hold the weights of epoch {epoch}.")
        if found.values.get("run", self._identity) != self._identity:  # files of before have no such mark
            raise UserError(f"history: {path} belongs to a run with other settings.")
        return {name: kept.float() if kept.dtype == torch.bfloat16 else kept for name, kept in found.tensors.items()}

    def check(self, model: nn.Module) -> None:
        """Refuses a history that belongs to another model than this finished one: names, shapes, and the values of the
        last epoch."""
        path = history_path(self.run, self.last)
        with field_called("history", "checkpoint"):
            found = read_checkpoint(path)
        wanted = rounded(model, str(found.values.get("precision")))
        for name in sorted(found.tensors.keys() | wanted.keys()):
            shapes = [list(side[name].shape) if name in side else "absent" for side in (found.tensors, wanted)]
            if shapes[0] != shapes[1]:
                why = f"{name} is {shapes[0]} there and {shapes[1]} here"
                raise UserError(f"history: {path} belongs to another model ({why}).")
            if not torch.equal(found.tensors[name], wanted[name].cpu()):
                why = f"the values of {name} are not those of the finished model"
                raise UserError(f"history: {path} belongs to another model ({why}).")


def _identity(config: TrainConfig) -> str:
    """A mark of the training that a file belongs to."""
    return digest(config.told(ELSEWHERE))


def _bytes(config: TrainConfig, model: nn.Module) -> int:
    """Of one file, but for its header."""
    return sum(tensor.numel() * tensor.element_size() for tensor in rounded(model, config.history_precision).values())


def _said(count: int) -> str:
    units = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
    unit, name = next((one for one in units if count >= one[0]), units[-1])
    return f"{count / unit:.1f} {name}"

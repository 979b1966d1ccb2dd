"""From a config to the things that a run needs: data, network, order of the samples."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ukemi import data as data_room
from ukemi import models, randomness
from ukemi.data import Data, as_float
from ukemi.errors import UserError
from ukemi.randomness import Stream
from ukemi.training.checkpoints import Checkpoint, read_checkpoint
from ukemi.training.config import TrainConfig
from ukemi.training.run import Run

SMALLEST_TAIL = 0.25
"""A last batch shorter than this share of a batch is left out of its epoch: few images make poor statistics.
Every epoch is shuffled, so it is never the same images that are left out."""


@dataclass(frozen=True)
class Sets:
    """What to train on, what decides (None where nothing is kept aside), what to test on."""

    train: Data
    validation: Data | None
    test: Data

    def to(self, device: torch.device) -> "Sets":
        """The same with the pixels on the device, where they fit."""
        validation = None if self.validation is None else self.validation.to(device)
        return Sets(self.train.to(device), validation, self.test)


def load_sets(config: TrainConfig) -> Sets:
    found = data_room.load(config.data, folder=config.data_folder, size=config.size, seed=config.seed)
    if not config.validation:
        return Sets(found.train, None, found.test)
    train, validation = found.train.split(config.validation, config.seed)
    return Sets(train, validation, found.test)


def make_model(config: TrainConfig, data: Data) -> nn.Module:
    """The network with weights drawn by the seed, behind the normalisation of the data (a user's own: as it is)."""
    torch.manual_seed(randomness.key(config.seed, Stream.WEIGHTS))
    if ":" in config.model:
        model = models.load_own(config.model, config.model_arguments, config.weights)
    else:
        mean, std = pixel_statistics(data)
        model = models.create(
            config.model, classes=len(data.classes), channels=data.channels, size=data.size, mean=mean, std=std
        )
        if config.weights:
            models.load_weights(model, config.weights)
    models.check_head(model, as_float(data.images[torch.arange(2)]), len(data.classes))
    return model


def pixel_statistics(data: Data, most: int = 10_000) -> tuple[list[float], list[float]]:
    """Mean and deviation of each channel over the first images."""
    pixels = as_float(data.images[torch.arange(min(most, len(data)))]).double()
    deviation = pixels.std((0, 2, 3)).clamp(min=1e-3)
    return pixels.mean((0, 2, 3)).tolist(), deviation.tolist()


def batches_of_epoch(
    count: int, batch_size: int, seed: int, epoch: int, device: torch.device | str = "cpu"
) -> list[Tensor]:
    """The epoch's positions, shuffled by (seed, epoch) alone and cut into batches."""
    order = randomness.permutation(count, seed=seed, stream=Stream.ORDER, epoch=epoch, device=device)
    batches = list(order.split(batch_size))
    if len(batches) > 1 and len(batches[-1]) < SMALLEST_TAIL * batch_size:
        batches.pop()
    return batches


def fixed_subset(data: Data, count: int, seed: int) -> Data:
    """`count` samples that are the same in every epoch and every run of a seed."""
    rank = randomness.bits(data.index.cpu(), seed=seed, stream=Stream.SUBSET)
    return data.take(rank.argsort(stable=True)[:count].sort().values)


def trained_model(run: Run, config: TrainConfig, data: Data) -> nn.Module:
    """The network of a run with the weights that it ended with, or, while it has none, those of its last checkpoint."""
    model = make_model(config, data)
    if run.weights_path.exists():
        load_model(model, read_checkpoint(run.weights_path), run.weights_path)
        return model
    checkpoint, refused = run.last_checkpoint()
    if checkpoint is None:
        raise UserError(f"run: {run.folder} has no weights yet" + (f": {refused[0]}" if refused else "."))
    load_model(model, checkpoint, run.checkpoints)
    return model


def load_model(model: nn.Module, checkpoint: Checkpoint, path: Path) -> None:
    """The checkpoint's weights; those of another model are refused, naming the first tensor that differs."""
    given, wanted = checkpoint.part("model") or checkpoint.tensors, model.state_dict()
    for name in sorted(given.keys() | wanted.keys()):
        shapes = [list(side[name].shape) if name in side else "absent" for side in (given, wanted)]
        if shapes[0] != shapes[1]:
            raise UserError(
                f"checkpoint: {path} belongs to another model ({name} is {shapes[0]} there and {shapes[1]} here)."
            )
    model.load_state_dict(given)

"""From a config to the things that a run needs: data, network, order of the samples."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ukemi import data as data_room
from ukemi import models, randomness
from ukemi.data import Data, as_float
from ukemi.errors import UserError
from ukemi.models.inference import home_of
from ukemi.randomness import Stream
from ukemi.schema import reason
from ukemi.training.checkpoints import Checkpoint, read_checkpoint
from ukemi.training.config import TrainConfig
from ukemi.training.run import Run
from ukemi.uncertainty import insert_dropout
from ukemi.uncertainty.dropout import drops

MOST_NAMED = 10
"""classes that a sentence names"""
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
    told = {"folder": config.data_folder, "size": config.size, "channels": config.channels, "seed": config.seed}
    found = data_room.load(config.data, **told, stream=config.stream, workers=config.workers)  # type: ignore[arg-type]
    if config.classes:
        own = [in_classes(part, config.classes) for part in (found.train, found.test)]
        found = replace(found, train=own[0], test=own[1])
    train, validation = found.train, None
    if config.validation:
        train, validation = train.split(config.validation, config.seed)
    if len(train) < 2:
        raise UserError(f"data: {config.data} leaves {len(train)} image to train on; at least two are needed.")
    return Sets(train, validation, found.test)


def make_model(config: TrainConfig, data: Data, classes: Sequence[str], weights: Path | None) -> nn.Module:
    """The network with weights drawn by the seed, or from the file, behind the normalisation of the data (a user's own
    network: as it is, or behind theirs)."""
    torch.manual_seed(randomness.key(config.seed, Stream.WEIGHTS))
    if ":" in config.model:
        model = models.load_own(config.model, config.model_arguments, weights, config.mean or None, config.std or None)
    else:
        mean, std = pixel_statistics(data)
        model = models.create(
            config.model, classes=len(classes), channels=data.channels, size=data.size, mean=mean, std=std
        )
    if config.dropout and drops(model):
        raise UserError(f"dropout: {config.model} has dropout of its own, so none can be put before its classifier.")
    if weights and ":" not in config.model:
        models.load_weights(model, weights)
    few = as_float(data.images[torch.arange(min(2, len(data)))]).to(home_of(model))  # the data may lie elsewhere
    models.check_head(model, few, len(classes))
    if config.dropout:
        model = insert_dropout(model, config.dropout, few)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(f"model: {config.model} has no parameter that can be trained.")
    _check_trains(config.model, model)
    return model


def _check_trains(name: str, model: nn.Module) -> None:
    """Some only ever answer; every module's mode is as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.train()
    except Exception as error:  # a program of torch.export, for one, refuses
        raise UserError(
            f"model: {name} can't be set to training ({reason(error)}); train the network that it was made from."
        ) from error
    for module, mode in modes:
        module.training = mode


def pixel_statistics(data: Data) -> tuple[list[float], list[float]]:
    """Mean and deviation of each channel over the first images."""
    pixels = as_float(data.images[torch.arange(min(10_000, len(data)))]).double()
    deviation = pixels.std((0, 2, 3)).clamp(min=1e-3)
    return pixels.mean((0, 2, 3)).tolist(), deviation.tolist()


def batches_of_epoch(
    count: int, batch_size: int, seed: int, epoch: int, device: torch.device | str = "cpu"
) -> list[Tensor]:
    """The epoch's positions, shuffled by (seed, epoch) alone and cut into batches."""
    order = randomness.permutation(count, seed=seed, stream=Stream.ORDER, epoch=epoch, device=device)
    batches = list(order.split(batch_size))
    if len(batches) > 1 and len(batches[-1]) < max(2, SMALLEST_TAIL * batch_size):
        batches.pop()
    return batches


def fixed_subset(data: Data, count: int, seed: int) -> Data:
    """`count` samples that are the same in every epoch and every run of a seed."""
    rank = randomness.bits(data.index.cpu(), seed=seed, stream=Stream.SUBSET)
    return data.take(rank.argsort(stable=True)[:count].sort().values)


def trained_model(run: Run, config: TrainConfig, data: Data) -> tuple[nn.Module, Data]:
    """The network of a run with the weights that it ended with (or, while it has none, of its last checkpoint), in the
    layout that it was trained in, and the data with their labels in the order of the classes that the network was
    trained on."""
    if run.weights_path.exists():
        checkpoint, path = read_checkpoint(run.weights_path), run.weights_path
    else:
        last, refused = run.last_checkpoint()
        if last is None:
            raise UserError(f"run: {run.folder} has no weights yet" + (f": {refused[0][1]}" if refused else "."))
        checkpoint, path = last, run.checkpoints
    classes = checkpoint.values.get("classes")
    if classes is None:  # a file of the history, say
        raise UserError(f"checkpoint: {path} is no finished model (it names no classes).")
    model = make_model(config, data, classes, None)
    load_model(model, checkpoint, path)
    return laid_out(model, config), in_classes(data, classes)


def laid_out(model: nn.Module, config: TrainConfig) -> nn.Module:
    """The network with its weights in memory as the settings want it, in which its layers then hand on their maps."""
    if config.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def unfinished(run: Run, config: TrainConfig) -> str | None:
    """Whose weights `trained_model` takes while a training is not finished, in words; None where it is."""
    last = None if run.weights_path.exists() else run.last_checkpoint()[0]
    if last is None:
        return None
    epoch = last.values["epoch"] + (last.values["step"] > 0)
    return f"epoch {epoch} of {config.epochs}: a checkpoint of an unfinished training"


def in_classes(data: Data, classes: Sequence[str]) -> Data:
    """The same data with labels that count `classes`; a class that is not among them is named."""
    if list(data.classes) == list(classes):
        return data
    for name in data.classes:
        if name not in classes:
            known = ", ".join(classes if len(classes) <= MOST_NAMED else [*classes[:MOST_NAMED], "…"])
            raise UserError(f"data: class {name!r} is none of those that the model knows: {known}.")
    number = torch.tensor([list(classes).index(name) for name in data.classes], device=data.labels.device)
    return replace(data, labels=number[data.labels], classes=tuple(classes))


def taken_for(classes: Sequence[str]) -> str:
    """Which class is which output of somebody's own model, where nobody has said so."""
    names = [f"{at} {label}" for at, label in enumerate(classes)]
    shown = ", ".join(names if len(names) <= MOST_NAMED else [*names[: MOST_NAMED - 2], "…", names[-1]])
    return f"data: the model's outputs are taken for the classes by name: {shown}; --classes says another order."


def notes_of(config: TrainConfig, classes: Sequence[str], data: Data) -> list[str]:
    """What nobody could see in the numbers of a training."""
    notes, weights = [], config.weights
    elsewhere = weights is not None and Run(weights.parent).weights_path != weights  # a run knows its classes
    if ":" in config.model and elsewhere and not config.classes and Path(config.data).is_dir():
        notes.append(taken_for(classes))
    if not (data.labels == 0).any():
        notes.append(f"data: labels count from 0, but none of {len(data):,} training images has label 0.")
    if getattr(config.augmenter, "warmup", 0) >= config.epochs:
        notes.append(f"augmenter.warmup: nothing is searched, since it leaves none of the {config.epochs} epochs.")
    return notes


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


def machine(device: str) -> dict[str, str]:
    """What the work was done on."""
    on_gpu = device != "cpu" and torch.cuda.is_available()
    name = torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine() or "CPU"
    return {"device": name, "torch": torch.__version__}

"""The model and the images that a command is given: a run's own, or anyone's network beside images of theirs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from pydantic import Field
from rich.console import Console
from torch import Tensor, nn

from ukemi import data as data_room
from ukemi import models
from ukemi.cli.attacking import Limited
from ukemi.data import Data, DataSet, as_float
from ukemi.data.classes import classes_named
from ukemi.errors import UserError
from ukemi.models.check_head import gives_probabilities
from ukemi.models.create import not_known
from ukemi.ranks import is_first
from ukemi.schema import Fixed, Number, Schema
from ukemi.spaces import Gene, Space, space_of
from ukemi.training.config import TrainConfig
from ukemi.training.run import Run
from ukemi.training.setup import fixed_subset, in_classes, taken_for, trained_model, unfinished


class BroughtConfig(Schema):
    """What a command finds model and data by."""

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """A run folder: its model on its data set."""
    model: str | None = None
    """A network by name, or your own as package.module:factory."""
    model_arguments: Fixed[dict[str, Any]] = {}
    """Keyword arguments for your own factory (TOML only)."""
    weights: Path | None = None
    """The model's weights: safetensors, or .pt with tensors only."""
    mean: tuple[Number, ...] = ()
    """Per channel: put a normalisation in front of a model that wants normalised pixels."""
    std: tuple[Number, ...] = ()
    """Belongs to --mean."""
    classes: tuple[str, ...] = ()
    """The classes in the order of your own model's outputs, by name, or a text file with a name on each line; default:
    those of the data, in the order of their names."""
    data: str | None = None
    """A data set by name, an image folder, an .npz file, or package.module:name; default: the run's."""
    data_folder: Path | None = None
    """Where data sets lie; default: $UKEMI_DATA, ./data, ~/.cache/ukemi."""
    size: int | None = Field(None, ge=8)
    """Resize images to this side."""
    channels: int | None = Field(None, ge=1, le=3)
    """Read grey images as three equal channels (3), or colour as grey (1); default: as they are."""
    split: Literal["test", "train", "all"] = "test"
    """Which part of the data is measured; all: both, where the data have no test part of their own."""

    @property
    def folder(self) -> Path:
        """Where a command's own folder lies, unless another is asked for: in the run's, or in the current one."""
        return self.run or Path()


@dataclass(frozen=True)
class Brought:
    """What a command works on."""

    model: nn.Module
    data: Data
    settings: dict[str, Any]
    """what a report says of them"""
    trained: TrainConfig | None = None
    """the run's settings, where it is a run"""
    log: tuple[dict[str, Any], ...] = ()
    """its log"""

    def space(self, name: str | None = None, genes: Sequence[Gene] = ()) -> Space:
        """The space that is asked for, else the run's, else T3."""
        if self.trained is None or name is not None or genes:
            return space_of(name or "t3", genes)
        return self.trained.chosen_space()


def check_brought(config: BroughtConfig, command: str) -> None:
    """Either a run, which brings its own model: nothing that describes another may stand beside it; or a model with
    data."""
    if config.run is None and config.model is None:
        raise UserError(f"{command} needs a run folder, or --model with --data (one of the two).")
    if config.run is not None and config.model is not None:
        raise UserError(
            f"run: {config.run} is taken for a run folder, and --model {config.model} stands beside it; give one of the"
            " two."
        )
    if config.run is not None and config.run.is_file():
        raise UserError(f"run: {config.run} is a file; a run folder is needed.")
    if config.run is None and config.data is None:
        raise UserError(f"data: {command} --model needs --data: a data set by name, an image folder or an .npz file.")
    beside = [name for name in ("weights", "mean", "std", "classes", "model_arguments") if getattr(config, name)]
    if config.run is not None and beside:
        raise UserError(
            f"{beside[0].replace('_', '-')}: a run brings its own model, so it can't stand beside {config.run}."
        )
    if config.weights is not None:
        models.check_weights(config.weights)
    if config.model is None or ":" in config.model:
        return
    if config.model not in models.MODELS:
        raise not_known(config.model)
    beside = [name for name in ("mean", "std", "model_arguments") if getattr(config, name)]
    if beside:
        raise UserError(
            f"{beside[0].replace('_', '-')}: {config.model} brings its normalisation with its weights; this is for your"
            " own model, package.module:factory."
        )


def brought(config: BroughtConfig, device: torch.device, *, seed: int, varied: bool = False) -> Brought:
    """Loads model and data. Of a run only what is needed has to be importable: its space, where images are `varied`
    in it. The seed draws the test part of data that have none, unless a run drew it."""
    shown = config.model_dump(mode="json", exclude_defaults=True, include=set(BroughtConfig.model_fields))
    if config.run is not None:
        found = _of_run(config, config.run, shown, varied)
    else:
        model = _own_model(config)  # what is wrong with it shows before images are read, which may take long
        data = _data(config, config.data or "", None, seed)
        data = in_classes(data, classes_named(config.classes)) if config.classes else data
        model = _named_model(config, config.model or "", data) if model is None else model
        found = Brought(model, data, shown)
    model, data = found.model, found.data
    few = as_float(data.images[torch.arange(min(2, len(data)))])
    logits = _logits(model, few, data)
    if logits > len(data.classes):
        tell(f"model: it has {logits} outputs for {len(data.classes)} classes; the others are never right.")
    told = {"outputs": "probabilities"} if gives_probabilities(model, few) else {}
    return Brought(model.to(device), data.to(device), found.settings | told, found.trained, found.log)


def _of_run(config: BroughtConfig, folder: Path, shown: dict[str, Any], varied: bool) -> Brought:
    trained, run = Run.plain_config_of(folder, space=varied), Run(folder)
    data = _data(config, config.data or trained.data, trained, trained.seed)
    model, data = trained_model(run, trained, data)
    shown = {"model": trained.model, "data": trained.data, "augmenter": trained.augmenter.name, **shown}
    if config.split != "test" and config.data in (None, trained.data):
        shown["seen"] = "images that the run was trained on"
    log, stopped = tuple(run.read_log()), unfinished(run, trained)
    if stopped is not None:
        shown["unfinished"] = stopped
        tell(f"{folder}: {stopped}")
    return Brought(model, data, shown, trained, log)


def _logits(model: nn.Module, few: Tensor, data: Data) -> int:
    try:
        return models.check_head(model, few, len(data.classes))
    except UserError as error:
        said = str(error).rstrip(".")
        if few.shape[1] == 1 and "3 channels" in said:
            raise UserError(f"{said}; --channels 3 reads grey images as three equal channels.") from error
        if "labels" in said and not (data.labels == 0).any():
            raise UserError(f"{said}; no image has label 0, and labels count from 0.") from error
        raise


def few_of(data: Data, config: Limited) -> Data:
    """The images that are asked for; where there are fewer, that is said."""
    if config.images is None:
        return data
    if config.images > len(data):
        tell(f"images: {config.images:,} are asked for, but there are {len(data):,}; all of them are taken")
    return fixed_subset(data, min(config.images, len(data)), config.seed)


def tell(note: str) -> None:
    """A note on the error stream, once where there are several ranks."""
    if is_first():
        Console(stderr=True).print(f"ukemi: {note}", highlight=False, markup=False, soft_wrap=True)


def _data(config: BroughtConfig, name: str, trained: TrainConfig | None, seed: int) -> Data:
    """Read as the run that was trained read its own, unless another way is asked for. Its own seed decides what its
    test part is: another one would put training images into it."""
    own = {key: getattr(config, key) or getattr(trained, key, None) for key in ("data_folder", "size", "channels")}
    found = data_room.load(name, folder=own["data_folder"], size=own["size"], channels=own["channels"], seed=seed)
    if config.data is not None and Path(name).exists():
        _tell_parts(config, name, found)
    return _part(config, name, found)


def _part(config: BroughtConfig, name: str, found: DataSet) -> Data:
    if config.split != "all":
        return found.test if config.split == "test" else found.train
    whole = found.whole()
    if whole is None:
        raise UserError(
            f"split: all goes with data that have no test part of their own; {name} has one: test or train."
        )
    return whole


def _tell_parts(config: BroughtConfig, name: str, found: DataSet) -> None:
    """What nobody can see in the numbers: which images are measured, and which class is which output (a run knows)."""
    part, other = (found.test, "train") if config.split == "test" else (found.train, "test")
    if config.split != "all" and found.was_one():
        tell(
            f"data: {name} has no test part of its own, so the seed drew one: {len(part):,} of"
            f" {found.test.identities:,} images are measured (--split {other} takes the rest, --split all every one)."
        )
    if config.run is None and not config.classes and Path(name).is_dir():
        tell(taken_for(found.classes))


def _own_model(config: BroughtConfig) -> nn.Module | None:
    """The user's own network, where it is none of ours."""
    if config.model is None or ":" not in config.model:
        return None
    return models.load_own(
        config.model, config.model_arguments, config.weights, config.mean or None, config.std or None
    )


def _named_model(config: BroughtConfig, name: str, data: Data) -> nn.Module:
    if config.weights is None:
        raise UserError(f"weights: {name} has no weights of its own; give --weights FILE.safetensors.")
    model = models.create(name, classes=len(data.classes), channels=data.channels, size=data.size)
    models.load_weights(model, config.weights)
    return model

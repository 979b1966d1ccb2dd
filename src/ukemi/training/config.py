"""Everything that a training run is told: one schema for Python, TOML and the command line."""

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from ukemi.augmenters import AUGMENTERS, AnyAugmenter, Standard
from ukemi.data.classes import classes_named
from ukemi.errors import UserError
from ukemi.models.own import check_normalisation
from ukemi.objectives import AnyObjective, CrossEntropy
from ukemi.schema import Fixed, Number, Schema, check_nameable
from ukemi.spaces import Gene, Space, space_of
from ukemi.training import schedules
from ukemi.training.optimisers import OPTIMISERS


class TrainConfig(Schema):
    """Trains a classifier and writes a run folder."""

    data: str = "fashion-mini"
    """A data set by name (see `ukemi data`), an image folder, a folder of .tar shards, an .npz file, or your own as
    package.module:name."""
    data_folder: Path | None = None
    """Where data sets lie; default: $UKEMI_DATA, ./data, ~/.cache/ukemi."""
    size: int | None = Field(None, ge=8)
    """Resize images to this side."""
    channels: int | None = Field(None, ge=1, le=3)
    """Read grey images as three equal channels (3), or colour as grey (1); default: as they are."""
    stream: bool = False
    """Never hold an image folder or shards decoded, but decode every image once per epoch; done anyway where they would
    take more than 4 GiB."""
    workers: int | None = Field(None, ge=0)
    """Processes that decode what streams; default: the machine's processors, at most 8; 0 leaves it to threads."""
    model: str = "demo-cnn"
    """A network by name (see `ukemi models`), or your own as package.module:factory."""
    model_arguments: Fixed[dict[str, Any]] = {}
    """Keyword arguments for your own factory (TOML only)."""
    mean: tuple[Number, ...] = ()
    """Per channel: put a normalisation in front of your own network, where it wants normalised pixels."""
    std: tuple[Number, ...] = ()
    """Belongs to --mean."""
    classes: tuple[str, ...] = ()
    """The classes in the order of your own network's outputs, by name, or a text file with a name on each line;
    default: those of the data, in the order of their names."""
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Drop this share of the inputs of the classifier (the Linear or Conv2d that gives the logits) of a network that
    has no dropout of its own; 0 leaves the network as it is."""
    weights: Path | None = None
    """Weights to start from: safetensors, or .pt with tensors only."""
    space: str = "t3"
    """What is varied: t2, t3, t6, each also with -continuous, or package.module:SPACE."""
    genes: Fixed[tuple[Gene, ...]] = ()
    """A space of your own, as [[genes]] tables with name, low, high, identity, step (TOML only)."""
    augmenter: AnyAugmenter = Field(Standard.Config(), discriminator="name")
    """What replaces the images of a batch (see `ukemi augmenters`)."""
    objective: AnyObjective = Field(CrossEntropy.Config(), discriminator="name")
    """How images and labels become a loss (see `ukemi augmenters`); default: cross-entropy, for ukemi consistency."""

    epochs: int = Field(20, ge=1)
    """Passes over the training data."""
    batch_size: int = Field(128, ge=2)
    """Images per step."""
    optimiser: Literal["sgd", "adam", "adamw", "rmsprop", "adadelta"] = "sgd"
    """The update rule; SGD comes with Nesterov momentum, RMSprop and Adadelta with Keras's settings."""
    learning_rate: Annotated[Number, Field(gt=0)] = 0.1
    """The schedule's peak."""
    momentum: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    """SGD's momentum; 0 is none."""
    weight_decay: Annotated[Number, Field(ge=0)] = 5e-4
    """Pull of the weights towards 0."""
    schedule: Literal["one-cycle", "cosine", "step", "constant"] = "one-cycle"
    """How the learning rate moves."""
    drops: tuple[int, ...] = ()
    """Epochs at which the `step` schedule divides by 10; default: at 40 and 80 percent."""
    clip: Annotated[Number, Field(ge=0)] = 0.0
    """A gradient longer than this (all weights together) is shortened to it: keeps a high learning rate from bursts of
    loss. 0 never does."""
    smoothing: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Label smoothing."""
    average: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Keep a running average of the weights that forgets 1 - average of itself per step (0.999, say); it is what is
    validated and saved. 0 keeps none."""
    flips: bool = False
    """Mirror half of the images, decided once per sample and epoch."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Everything random follows from it."""

    validation: Annotated[Number, Field(ge=0, lt=1)] = 0.1
    """Share of the training data kept aside, drawn by the seed; 0 keeps none."""
    validate_every: int = Field(1, ge=1)
    """Epochs between two validations."""
    robust_every: int = Field(0, ge=0)
    """Epochs between two measures of robust accuracy on the validation images; 0 is never."""
    robust_images: int = Field(500, ge=1)
    """How many validation images that measure uses, always the same."""

    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU where there is one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 runs the network in mixed precision."""
    channels_last: bool = False
    """Memory layout that is faster for convolutions."""
    compile: bool = False
    """Compile the network with torch.compile (minutes at first use)."""
    autotune: bool = False
    """With --compile, on a GPU: try several kernels for the scoring passes and keep the fastest, and fuse those of the
    search; for long runs, as it takes a minute or two at first use."""
    cuda_graphs: bool = True
    """On a GPU each step is replayed as one CUDA graph, unless --no-cuda-graphs: small networks wait for launches."""
    checkpoint_minutes: Annotated[Number, Field(ge=0)] = 5.0
    """Minutes between checkpoints inside an epoch; one is written after every epoch anyway."""
    history: Literal["half"] | int = 0
    """Keep the weights of this many last epochs, or of the last half, for `ukemi repair dare`; 0 keeps none."""
    history_precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 keeps the history's parameters at half the size."""
    tensorboard: bool = False
    """Also write TensorBoard files (needs the tensorboard extra)."""
    out: Path | None = None
    """The run folder; default: runs/DATA-MODEL-AUGMENTER-SEED."""

    @field_validator("classes")
    @classmethod
    def _by_name(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        """A run's file has the names themselves, wherever they were read from."""
        return classes_named(given)

    @field_validator("history", mode="before")
    @classmethod
    def _half_or_a_count(cls, given: Any) -> Any:
        if given == "half" or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
            return given
        raise ValueError("should be half, or a number of epochs from 0 on")

    @model_validator(mode="before")
    @classmethod
    def _genes_or_space(cls, values: Any) -> Any:
        """Genes take the place of a named space, so that a config is the same as the one in its run's file."""
        if not isinstance(values, dict) or not values.get("genes"):
            return values
        return {name: given for name, given in values.items() if name != "space"}

    @model_validator(mode="before")
    @classmethod
    def _augmenters_objective(cls, values: Any) -> Any:
        """Where none is named, the objective that goes with the augmenter."""
        if not isinstance(values, dict) or "objective" in values or "augmenter" not in values:
            return values
        augmenter = values["augmenter"]
        name = augmenter.get("name") if isinstance(augmenter, dict) else getattr(augmenter, "name", None)
        settings = AUGMENTERS.get(name) if isinstance(name, str) else None
        return values if settings is None else {**values, "objective": {"name": settings.objective}}

    @model_validator(mode="after")
    def _fits(self) -> "TrainConfig":
        if (self.mean or self.std) and ":" not in self.model:
            raise UserError(
                f"mean: {self.model} is normalised by its training images; this is for your own network,"
                " package.module:factory."
            )
        check_normalisation(self.mean or None, self.std or None)
        if self.robust_every and not self.validation:
            raise UserError("robust-every needs validation images, so validation should be above 0.")
        if self.drops and self.schedule != "step":
            raise UserError(f"drops belong to the step schedule, but the schedule is {self.schedule}.")
        if not all(0 < drop < self.epochs for drop in self.drops):
            raise UserError(f"drops should lie between 0 and the {self.epochs} epochs, but {self.drops} was given.")
        if self.autotune and not self.compile:
            raise UserError("autotune goes with compile: give --compile too.")
        if self.history_epochs() > self.epochs:
            raise UserError(f"history: {self.history} of the run's {self.epochs} epochs can't be kept.")
        self.chosen_space()
        for part in (self.augmenter, self.objective):
            for name, given in part:
                check_nameable(given, f"{part.place}.{name}")
        return self

    def chosen_space(self) -> Space:
        return space_of(self.space, self.genes)

    def chosen_device(self) -> torch.device:
        return device_of(self.device)

    def on(self, device: str | None) -> "TrainConfig":
        """The same, on another device where one is named; a device that is not there is refused before any work."""
        found = self if device is None else self.model_copy(update={"device": device})
        found.chosen_device()
        return found

    def told(self, but: set[str]) -> dict[str, Any]:
        """What is not as by default, without `but`: a setting that a later version adds makes no other run of it."""
        values = self.model_dump(mode="json", exclude=but, exclude_defaults=True)
        for part in {"augmenter", "objective"} - but:
            one = getattr(self, part)
            values[part] = {**one.model_dump(mode="json", exclude_defaults=True), "name": one.name}
        return values

    def history_epochs(self) -> int:
        """Of how many last epochs the weights are kept; half of an odd number is rounded up."""
        return -(-self.epochs // 2) if self.history == "half" else self.history

    def folder(self) -> Path:
        data = self.data.split(":")[-1] if ":" in self.data else Path(self.data).stem
        model = self.model.split(":")[-1]
        return self.out or Path("runs") / f"{data}-{model}-{self.augmenter.name}-{self.seed}"

    def make_optimiser(self, modules: Sequence[nn.Module | None], rate: Tensor) -> torch.optim.Optimizer:
        """The update rule over all parameters that can be trained; it reads its rate from `rate`."""
        every = [parameter for module in modules if module is not None for parameter in module.parameters()]
        trained = [parameter for parameter in every if parameter.requires_grad]
        return OPTIMISERS[self.optimiser](trained, rate, self.weight_decay, self.momentum)

    def make_schedule(self) -> schedules.Schedule:
        shares = tuple(drop / self.epochs for drop in self.drops)
        stepped = partial(schedules.steps, drops=shares) if shares else schedules.steps
        return {
            "one-cycle": schedules.one_cycle,
            "cosine": schedules.cosine,
            "step": stepped,
            "constant": schedules.constant,
        }[self.schedule]


def device_of(name: str) -> torch.device:
    """A device by name; `auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise UserError(f"device: {name!r} is not there; cpu is, and auto finds a GPU where there is one.") from None
    return device


def digest(values: Any) -> str:
    """A short name of values that JSON knows."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

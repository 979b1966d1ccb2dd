"""`ukemi evaluate`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Annotated, Any, Literal, Protocol

import torch
import tyro
from pydantic import Field
from rich.console import Console
from torch import Tensor, nn

from ukemi import data as data_room
from ukemi import models, reports
from ukemi.attacks.config import AttackSettings
from ukemi.cli.attacking import Limited, attacked_by, attacks_of, bar, set_of, transferred
from ukemi.cli.parse import parse
from ukemi.data import Data, DataSet, as_float
from ukemi.data.classes import classes_named
from ukemi.errors import UserError, field_called
from ukemi.measures import Robustness, robustness_of
from ukemi.measures.attacks import as_csv
from ukemi.models.check_head import gives_probabilities
from ukemi.ranks import Ranks, is_first
from ukemi.schema import Fixed, Named, Number, Schema
from ukemi.spaces import GRIDS, Gene, Space, space_of
from ukemi.training.checkpoints import check_file, check_folder, write_whole
from ukemi.training.config import TrainConfig
from ukemi.training.parallel import check_measured, measuring
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


class VariantsConfig(BroughtConfig):
    """How a model is measured under natural variants."""

    images: int | None = Field(None, ge=1)
    """Measure this many images only, a fixed choice by the seed."""
    space: str | None = None
    """What is varied: t2, t3, t6, or package.module:SPACE; default: the run's, or t3."""
    genes: Fixed[tuple[Gene, ...]] = ()
    """A space of your own, as [[genes]] tables (TOML only)."""
    levels: int = Field(3, ge=2)
    """Values per gene: low, middle and high for 3."""
    grid: str | None = None
    """A named grid instead of space and levels: t3-81, t6-2187, t3-81-3px, t6-2187-3px, engstrom-775, t2-27; for
    regression beside the papers' code t3-81-released, t6-2187-released, t3-81-kaist."""
    mean_accuracy: bool = False
    """Also the mean accuracy over all variants (evaluates every one, so it takes longer)."""
    fail_under: tuple[str, ...] = ()
    """Exit with 1 where a number is below its limit: robust=0.8, accuracy=0.9, mean=0.85, attacked=0.5 (the lowest
    under any attack that is run)."""
    junit: Path | None = None
    """Also write the limits as a JUnit file."""
    out: Path | None = None
    """Where to write; default: RUN/evaluation, or ./evaluation."""
    gallery: int = Field(12, ge=0)
    """How many broken images the page shows."""
    landscapes: int = Field(4, ge=0)
    """How many loss landscapes the page shows."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Draws the images that are shown; without a run, also splits data that have no test part."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""


class EvaluateConfig(AttackSettings, VariantsConfig):
    """Finds where a classifier breaks, and writes a table, evaluation.json and a page with the pictures that break it.

    `ukemi evaluate RUN` takes a run folder of `ukemi train`; `ukemi evaluate --model package.module:factory --weights
    FILE --data FOLDER` takes your own model (pixels in [0, 1] in, logits out) and your own images. `--attack pgd
    --epsilon 8/255` also attacks the model, white-box.
    """

    attack: Named = None
    """Also attack the model: fgsm, bim, pgd, deepfool, carlini-wagner, jsma, square, package.module:function; or styx,
    STYX's whole grid of settings."""
    epsilons: tuple[Annotated[Number, Field(ge=0)], ...] = ()
    """Attack at each of these budgets instead of one --epsilon, for a curve: 0 1/255 2/255 4/255 8/255."""
    adversarial_set: tuple[Path, ...] = ()
    """Also measure transfer (empirical robustness, calibration rate): accuracy on saved sets of `ukemi attack` and its
    mean over them, beside their attacks on this model itself."""


def run(arguments: list[str]) -> int:
    config = parse(EvaluateConfig, arguments, "evaluate")
    limits, attacks = _checked(config), attacks_of(config, config.epsilons)
    sets = [set_of(path, config.split) for path in config.adversarial_set]
    with measuring(config.device) as (ranks, device):
        with ranks.together():
            model, data, space, settings, log = model_and_data(config, device)
            if config.grid is None:
                space.check_levels(config.levels)
            if limits and "unfinished" in settings:
                raise UserError(
                    f"fail-under: {config.run} has no finished weights, only {settings['unfinished']}; finish it with"
                    f" `ukemi train --resume {quote(str(config.run))}`."
                )
        check_measured(config, model, data, ranks)
        transfer = transferred(model, data, dict(zip(config.adversarial_set, sets, strict=True)), config, ranks)
        data = few_of(data, config)
        with field_called("epsilons" if config.epsilons else "epsilon", "epsilon"):
            attacked = attacked_by(model, data, attacks, config.seed, ranks) if attacks else []
        began = monotonic()
        found = measured(model, data, space, config.grid or config.levels, mean=config.mean_accuracy, ranks=ranks)
    if not ranks.first:
        return 0
    title = str(config.run or config.model)
    evaluation = reports.examine(
        model,
        data,
        found,
        title=title,
        model_name=settings["model"],
        data_name=settings["data"],
        log=log,
        settings={**settings, "space": found.space.name},
        gallery=config.gallery,
        landscapes=config.landscapes,
        seed=config.seed,
        seconds=monotonic() - began,
    )
    evaluation = replace(evaluation, attacks=tuple(attacked), transfer=tuple(transfer))
    out = _out(config)
    reports.write_json(out / "evaluation.json", evaluation)
    reports.write_page(out / "page.html", [evaluation], f"Where {title} breaks")
    checks = reports.checks_of(evaluation, limits)
    if config.junit is not None:
        reports.write_junit(config.junit, checks)
    console = Console(highlight=False, markup=False)
    console.print(reports.table([evaluation], console.width))
    if attacked:
        write_whole(out / "attacks.csv", as_csv([reports.attack_row(one) for one in attacked]).encode())
        console.print(reports.attacks_table(attacked))
    if transfer:
        console.print(reports.transfer_table(transfer))
    for note in reports.evaluation_notes(evaluation):
        console.print(note, style="yellow", markup=False)
    console.print(f"numbers: {out / 'evaluation.json'}\npage:    {out / 'page.html'}", soft_wrap=True)
    if attacked:
        console.print(f"attacks: {out / 'attacks.csv'}", soft_wrap=True)
    missed = [check for check in checks if not check.passed]
    for check in missed:
        console.print(f"{check.name} {check.value:.4f} is under {check.limit:g}", style="red")
    return 1 if missed else 0


def _out(config: EvaluateConfig) -> Path:
    if config.out is not None or config.run is None:
        return config.out or Path("evaluation")
    return config.run / ("evaluation" if config.split == "test" else f"evaluation-{config.split}")


def _checked(config: EvaluateConfig) -> dict[str, float]:
    """The limits; and what can be known to be wrong before anything is measured."""
    limits = reports.parse_fail_under(config.fail_under)
    if "mean" in limits and not config.mean_accuracy:
        raise UserError("fail-under: mean needs --mean-accuracy beside it.")
    if "attacked" in limits and config.attack is None:
        raise UserError("fail-under: attacked needs --attack beside it.")
    if config.junit is not None and not limits:
        raise UserError("junit: a JUnit file holds the limits, so --fail-under is needed beside it.")
    if config.junit is not None and is_first():
        check_file(config.junit, "junit")
    check_grid(config)
    check_beside(config)
    if is_first():
        check_folder(_out(config))
    return limits


class Varied(Protocol):
    """What a command says about the variants that it measures."""

    @property
    def grid(self) -> str | None: ...
    @property
    def space(self) -> str | None: ...
    @property
    def genes(self) -> Sequence[Gene]: ...


def check_grid(config: Varied) -> None:
    """A named grid has to be known, and brings its own space."""
    if config.grid is None:
        return
    if config.grid not in GRIDS:
        raise UserError(f"grid: {config.grid!r} is none of {', '.join(GRIDS)}.")
    if config.space is not None or config.genes:
        raise UserError(f"grid: {config.grid} brings its own space; give --grid or a space, not both.")


def check_beside(config: BroughtConfig) -> None:
    """A run brings its own model: nothing that describes another may stand beside it."""
    if config.run is not None and config.run.is_file():
        raise UserError(f"run: {config.run} is a file; a run folder is needed.")
    beside = [name for name in ("weights", "mean", "std", "classes", "model_arguments") if getattr(config, name)]
    if config.run is not None and beside:
        raise UserError(
            f"{beside[0].replace('_', '-')}: a run brings its own model, so it can't stand beside {config.run}."
        )
    if config.model is None or ":" in config.model:
        return
    if config.model not in models.MODELS:
        raise UserError(
            f"model: {config.model!r} is not a known network (known are {', '.join(models.MODELS)}) nor your own as"
            " package.module:factory."
        )
    beside = [name for name in ("mean", "std", "model_arguments") if getattr(config, name)]
    if beside:
        raise UserError(
            f"{beside[0].replace('_', '-')}: {config.model} brings its normalisation with its weights; this is for your"
            " own model, package.module:factory."
        )


def measured(
    model: nn.Module,
    data: Data,
    space: Space,
    grid: int | str,
    *,
    mean: bool = False,
    about: str = "variants",
    ranks: Ranks | None = None,
) -> Robustness:
    """Robust accuracy with a progress bar."""
    with bar(about, len(data)) as report:
        return robustness_of(model, data, space, grid, mean=mean, report=report, ranks=ranks)


def model_and_data(
    config: EvaluateConfig, device: torch.device, *, varied: bool = True
) -> tuple[nn.Module, Data, Space, dict[str, Any], list[dict[str, Any]]]:
    """Model, data, space (any, where nothing is `varied`), settings to show, and the run's log. Of a run only what is
    needed has to be importable."""
    own_space = varied and config.space is None and not config.genes and config.grid is None
    if (config.run is None) == (config.model is None):
        raise UserError("evaluate needs a run folder, or --model with --data (one of the two).")
    shown = config.model_dump(mode="json", exclude_defaults=True)
    if config.run is not None:
        trained = Run.plain_config_of(config.run, space=own_space)
        data = _data(config, config.data or trained.data, trained, trained.seed)
        model, data = trained_model(Run(config.run), trained, data)
        shown = {"model": trained.model, "data": trained.data, "augmenter": trained.augmenter.name, **shown}
        if config.split != "test" and config.data in (None, trained.data):
            shown["seen"] = "images that the run was trained on"
        log = Run(config.run).read_log()
        stopped = unfinished(Run(config.run), trained)
        if stopped is not None:
            shown["unfinished"] = stopped
            tell(f"{config.run}: {stopped}")
    else:
        assert config.model is not None
        check_beside(config)
        if config.data is None:
            raise UserError("data: evaluate --model needs --data: a data set by name, an image folder or an .npz file.")
        trained = None
        data = _data(config, config.data, None, config.seed)
        data = in_classes(data, classes_named(config.classes)) if config.classes else data
        model, log = _named_model(config, config.model, data), []
    few = as_float(data.images[torch.arange(min(2, len(data)))])
    logits = _logits(model, few, len(data.classes))
    if logits > len(data.classes):
        tell(f"model: it has {logits} outputs for {len(data.classes)} classes; the others are never right.")
    if gives_probabilities(model, few):
        shown["outputs"] = "probabilities"
    space = trained.chosen_space() if trained and own_space else space_of(config.space or "t3", config.genes)
    return model.to(device), data.to(device), space, shown, log


def _logits(model: nn.Module, few: Tensor, classes: int) -> int:
    try:
        return models.check_head(model, few, classes)
    except UserError as error:
        if few.shape[1] == 1 and "3 channels" in str(error):
            said = str(error).rstrip(".")
            raise UserError(f"{said}; --channels 3 reads grey images as three equal channels.") from error
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


def _data(config: EvaluateConfig, name: str, trained: TrainConfig | None, seed: int) -> Data:
    """Read as the run that was trained read its own, unless another way is asked for. Its own seed decides what its
    test part is: another one would put training images into it."""
    own = {key: getattr(config, key) or getattr(trained, key, None) for key in ("data_folder", "size", "channels")}
    found = data_room.load(name, folder=own["data_folder"], size=own["size"], channels=own["channels"], seed=seed)
    if config.data is not None and Path(name).exists():
        _tell_parts(config, name, found)
    return _part(config, name, found)


def _part(config: EvaluateConfig, name: str, found: DataSet) -> Data:
    if config.split != "all":
        return found.test if config.split == "test" else found.train
    whole = found.whole()
    if whole is None:
        raise UserError(
            f"split: all goes with data that have no test part of their own; {name} has one: test or train."
        )
    return whole


def _tell_parts(config: EvaluateConfig, name: str, found: DataSet) -> None:
    """What nobody can see in the numbers: which images are measured, and which class is which output (a run knows)."""
    part, other = (found.test, "train") if config.split == "test" else (found.train, "test")
    if config.split != "all" and found.was_one():
        tell(
            f"data: {name} has no test part of its own, so the seed drew one: {len(part):,} of"
            f" {found.test.identities:,} images are measured (--split {other} takes the rest, --split all every one)."
        )
    if config.run is None and not config.classes and Path(name).is_dir():
        tell(taken_for(found.classes))


def _named_model(config: EvaluateConfig, name: str, data: Data) -> nn.Module:
    if ":" in name:
        return models.load_own(name, config.model_arguments, config.weights, config.mean or None, config.std or None)
    if config.weights is None:
        raise UserError(f"weights: {name} has no weights of its own; give --weights FILE.safetensors.")
    model = models.create(name, classes=len(data.classes), channels=data.channels, size=data.size)
    models.load_weights(model, config.weights)
    return model

"""`ukemi repair`: one word for each way."""

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, NamedTuple

import tyro
from pydantic import Field
from rich.console import Console

from ukemi.cli.bars import progress
from ukemi.cli.brought import tell
from ukemi.cli.dare import DareConfig, NullConfig, models_and_test, run_dare, run_null
from ukemi.cli.enhance import EnhanceConfig, run_enhance
from ukemi.cli.help import overview
from ukemi.cli.parse import parse
from ukemi.cli.train import write_page
from ukemi.errors import UserError, check_known
from ukemi.measures import accuracy
from ukemi.models.inference import home_of
from ukemi.repairs import fine_tune, retrain
from ukemi.repairs.more import read_about
from ukemi.reports.words import percent, plural
from ukemi.schema import Number, Schema
from ukemi.training import Run


class RetrainConfig(Schema):
    """Trains a run's model some epochs more on its data and on the variants that fool it (SENSEI, Exp-3).

    Ten random variants per sample and epoch of the run are scored (as SENSEI would, but for its first epoch, which has
    none); the one of highest loss that fools the model is added to the training set.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """A finished run folder of `ukemi train`."""
    epochs: int = Field(5, ge=1)
    """More passes over the data and the added variants."""
    out: Path | None = None
    """The new run folder; default: RUN-retrained."""
    device: str | None = None
    """cpu, cuda, cuda:1; default: as the run says."""


class AdversarialConfig(Schema):
    """Trains a run's model further on adversarial sets of `ukemi attack` (the baseline of DARE, every layer trainable).

    Only the images that fool the model they were made for are trained on; --clean adds the run's own training images.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """A finished run folder of `ukemi train`."""
    sets: tuple[Path, ...] = ()
    """Files that `ukemi attack --split train` wrote for this model."""
    clean: bool = False
    """Train on the run's own training images too."""
    epochs: int = Field(20, ge=1)
    """Passes over the images."""
    learning_rate: Annotated[Number, Field(gt=0)] = 1e-4
    """Adam's, held constant."""
    batch_size: int = Field(32, ge=2)
    """Images per step."""
    out: Path | None = None
    """The new run folder; default: RUN-tuned."""
    device: str | None = None
    """cpu, cuda, cuda:1; default: as the run says."""


def run(arguments: list[str]) -> int:
    word, *rest = arguments or [""]
    if word not in WAYS:
        if word in ("-h", "--help"):
            told = {name: way.settings.__doc__ or "" for name, way in WAYS.items()}
            ways = {name: " ".join(text.partition(".")[0].split()) for name, text in told.items()}
            more = "`ukemi repair WAY --help` lists the options of one."
            overview("Changes a trained model.", "ukemi repair WAY [options] RUN", ways, more)
            return 0
        if not word or word.startswith("-"):
            raise UserError(f"repair: a way is needed, one of {', '.join(WAYS)}: ukemi repair retrain RUN.")
        check_known("repair", word, WAYS)
    way = WAYS[word]
    config: Any = parse(way.settings, rest, f"repair {word}")
    return _told(way.repaired(config), config.run if way.tells_accuracy else None)


def _adversarial(config: AdversarialConfig) -> Run:
    if config.run is None:
        raise UserError("repair: a run folder is needed: ukemi repair adversarial RUN --sets FILE.")
    if not config.sets:
        raise UserError("sets: at least one file of `ukemi attack` is needed.")
    done = fine_tune(
        Run(config.run),
        config.sets,
        epochs=config.epochs,
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        clean=config.clean,
        out=config.out,
        device=config.device,
    )
    if {"test", "all"} & set(read_about(done)["splits"]):
        tell(
            "sets: some were made from the test part, so the model was trained on images that it is tested on;"
            " `ukemi attack --split train` makes others"
        )
    return done


def _retrain(config: RetrainConfig) -> Run:
    if config.run is None:
        raise UserError("repair: a run folder is needed: ukemi repair retrain RUN.")
    with progress() as shown:
        task = shown.add_task("search", total=None)

        def told(done: int, total: int) -> None:
            shown.update(task, completed=done, total=total)
            if done == total:
                shown.stop()  # the training that follows has a bar of its own

        done = retrain(Run(config.run), epochs=config.epochs, out=config.out, device=config.device, report=told)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{done.fooling:,} of {done.samples:,} samples have a variant that fools the model; they were added.")
    console.print(
        f"{done.forwards:,} forward passes found them; SENSEI would have spent {done.search:,} in as many epochs."
    )
    return done.run


class Way(NamedTuple):
    """How a model is changed: what is asked for, and what makes the new run of it."""

    settings: type[Schema]
    repaired: Callable[[Any], Run]
    tells_accuracy: bool = True
    """before and after, where it has no table of its own"""


WAYS = {
    "retrain": Way(RetrainConfig, _retrain),
    "adversarial": Way(AdversarialConfig, _adversarial),
    "dare": Way(DareConfig, run_dare, tells_accuracy=False),
    "null": Way(NullConfig, run_null),
    "uncertainty": Way(EnhanceConfig, run_enhance, tells_accuracy=False),
}


def _told(finished: Run, origin: Path | None) -> int:
    """Says where everything is; with the run that was repaired, also how accurate both are."""
    page = write_page(finished, Run.config_of(finished.folder))
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if origin is not None:
        (before, after), test = models_and_test(Run(origin), finished)
        shares = [percent(accuracy(model, test, home_of(model))[0]) for model in (before, after)]
        console.print(f"accuracy on {plural(len(test), 'test image')}: {shares[0]} before, {shares[1]} after")
    console.print(f"run:     {finished.folder}\nweights: {finished.weights_path}\npage:    {page}")
    console.print(f"next:    ukemi evaluate {quote(str(finished.folder))}")
    return 0

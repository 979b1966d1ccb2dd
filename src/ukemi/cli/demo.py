"""`ukemi demo`: the whole walk on embedded images."""

from pathlib import Path
from time import monotonic

from pydantic import Field
from rich.console import Console

from ukemi import reports
from ukemi.augmenters import AUGMENTERS
from ukemi.cli.evaluate import measured
from ukemi.cli.parse import parse
from ukemi.errors import UserError
from ukemi.schema import Schema
from ukemi.training import TrainConfig, train
from ukemi.training.setup import load_sets, trained_model

SHOWN = ("standard", "random", "worst-of", "sensei", "ukemi")


class DemoConfig(Schema):
    """Trains a small network on 6,000 pictures of clothes five times (plainly, on random variants, on the worst of ten
    variants, on the worst that two genetic searches find), measures how each holds under 81 rotations, translations and
    shears, and writes a page that shows it."""

    epochs: int = Field(20, ge=1)
    """Passes over the training data."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Everything random follows from it."""
    out: Path = Path("runs/demo")
    """Where to write; a number is added where the folder is there already."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    config = parse(DemoConfig, arguments, "demo")
    out = _fresh(config.out)
    console = Console(highlight=False, markup=False)
    console.print(f"Training one network {len(SHOWN)} times on fashion-mini: 6,000 images, {config.epochs} epochs.")
    evaluations = [_walk(name, config, out) for name in SHOWN]
    page = out / "page.html"
    reports.write_page(page, evaluations, "How a small network falls, and how it learns to land")
    for name, evaluation in zip(SHOWN, evaluations, strict=True):
        reports.write_json(out / name / "evaluation.json", evaluation)
    console.print(reports.table(evaluations, console.width))
    console.print(f"page: {page.resolve()}", soft_wrap=True)
    return 0


def _walk(name: str, config: DemoConfig, out: Path) -> reports.Evaluation:
    """Train, load what was trained, measure it on the test images."""
    told = TrainConfig(
        augmenter=AUGMENTERS[name](),
        epochs=config.epochs,
        seed=config.seed,
        out=out / name,
        device=config.device,
        validation=0,
    )
    finished = train(told)
    sets = load_sets(told)
    model, test = trained_model(finished, told, sets.test)
    model, test = model.to(told.chosen_device()), test.to(told.chosen_device())
    began = monotonic()
    found = measured(model, test, told.chosen_space(), 3, about=f"{name}: variants")
    return reports.examine(
        model,
        test,
        found,
        title=name,
        model_name=told.model,
        data_name=told.data,
        log=finished.read_log(),
        settings=told.model_dump(mode="json", exclude={"out"}),
        seed=config.seed,
        seconds=monotonic() - began,
    )


def _fresh(folder: Path) -> Path:
    """`folder`, or the first of folder-2, folder-3, … that is not there."""
    for number in range(1, 10_000):
        path = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        if not path.exists():
            return path
    raise UserError(f"out: {folder} and its numbered neighbours are all taken.")

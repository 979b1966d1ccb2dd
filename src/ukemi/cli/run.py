"""`ukemi run`: one experiment of a paper, from its recipe to its page."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from pydantic import Field
from rich.console import Console

from ukemi import reports
from ukemi.cli.compare import code_of, compared
from ukemi.cli.main import command
from ukemi.cli.parse import parse
from ukemi.comparing.config import ENGINE, Engine
from ukemi.errors import UserError
from ukemi.experiments import ExperimentConfig, Findings, conduct
from ukemi.recipes import recipe_of
from ukemi.recipes.sizes import size_of

SMALL = "The small size shows that everything works and which way things point; it is too small for a claim."


class RunConfig(Engine):
    """Repeats an experiment of a paper; `ukemi recipes` lists them.

    What is done already is not done again, and recipes share their runs.
    """

    recipe: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """A recipe by name, or a .toml file of your own."""
    size: Literal["small", "full"] = "small"
    """small takes minutes on two cores; full has the paper's data, networks and epochs."""
    seeds: int | None = Field(None, ge=1)
    """Other than the recipe's number of seeds."""
    equal_cost: bool = False
    """Give every method the same number of forward and backward passes, by its epochs."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""
    data_folder: Path | None = None
    """Where data sets lie; default: $UKEMI_DATA, ./data, ~/.cache/ukemi."""
    out: Path | None = None
    """Where to write; default: runs/recipes/NAME-SIZE."""
    runs: Path = Path("runs/recipes/runs")
    """Where the runs lie; recipes share them."""


def run(arguments: list[str]) -> int:
    config = parse(RunConfig, arguments, "run")
    if config.recipe is None:
        raise UserError("run: the name of a recipe is needed (ukemi recipes lists them): ukemi run sensei-exp2.")
    recipe = recipe_of(config.recipe)
    chain = "experiment" in recipe.common
    if chain and config.engine != "local":
        raise UserError(f"engine: {recipe.name} is a chain of commands and runs on this machine (see --jobs).")
    engine = ("jobs",) if chain else tuple(ENGINE)
    changes: dict[str, Any] = {name: getattr(config, name) for name in (*engine, "device", "data_folder", "runs")}
    changes["out"] = config.out or Path("runs/recipes") / f"{recipe.name}-{config.size}"
    changes |= {"seeds": config.seeds} if config.seeds is not None else {}
    if config.equal_cost:
        if chain:
            raise UserError(f"equal-cost: {recipe.name} compares no trainings, so there is no budget to share.")
        changes["equal_cost"] = True
    told = recipe.config(config.size, **changes)
    notes = [f"Paper {recipe.paper}, {recipe.table}; recipe {recipe.name}, size {config.size}."]
    notes += [SMALL] * (config.size == "small")
    notes += [recipe.footnote(config.size)] * bool(recipe.footnote(config.size))
    said = shlex.join(["ukemi", "run", *arguments])
    if isinstance(told, ExperimentConfig):
        conducted(told, said, notes)
    else:
        return code_of(compared(told, said, [*notes, f"Size: {size_of(told)}."]))
    return 0


def conducted(config: ExperimentConfig, said: str, notes: Sequence[str]) -> Findings:
    """Runs an experiment, writes what came of it and prints the answer and the tables."""
    if config.out.is_file():
        raise UserError(f"out: {config.out} is a file; a folder is needed.")
    found = conduct(config, command)
    if config.jobs > 1:
        notes = [*notes, f"Times were taken while {config.jobs} cells shared the machine."]
    reports.write_experiment(config.out, found, command=said, notes=notes)
    console = Console(highlight=False, markup=False)
    for sentence in (*reports.experiment_answer(found), *notes, reports.size_said(found)):
        console.print(sentence, markup=False)
    for table in reports.experiment_tables(found, console.width):
        console.print(table)
    for name, why in found.missing.items():
        console.print(f"{name} was not run: {why}.", markup=False)
    names = {"numbers": "experiment.json", "tables": "table.md", "page": "page.html"}
    for what, name in names.items():
        console.print(f"{what + ':':8} {config.out / name}", soft_wrap=True)
    return found

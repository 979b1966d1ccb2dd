"""`ukemi run`: one experiment of a paper, from its recipe to its page."""

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from pydantic import Field

from ukemi.cli.compare import compared
from ukemi.cli.parse import parse
from ukemi.comparing.config import ENGINE, Engine
from ukemi.errors import UserError
from ukemi.recipes import recipe_of


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
    changes: dict[str, Any] = {name: getattr(config, name) for name in (*ENGINE, "device", "data_folder", "runs")}
    changes["out"] = config.out or Path("runs/recipes") / f"{recipe.name}-{config.size}"
    changes |= {"seeds": config.seeds} if config.seeds is not None else {}
    changes |= {"equal_cost": True} if config.equal_cost else {}
    told = recipe.config(config.size, **changes)
    notes = [f"Paper {recipe.paper}, {recipe.table}; recipe {recipe.name}, size {config.size}."]
    compared(told, shlex.join(["ukemi", "run", *arguments]), notes)
    return 0

"""`ukemi recipes`."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ukemi.cli.parse import parse
from ukemi.recipes import SIZES, recipes
from ukemi.recipes.sizes import size_of
from ukemi.reports.words import rough
from ukemi.schema import Schema


class RecipesConfig(Schema):
    """Lists the papers' experiments that `ukemi run NAME` repeats."""


def run(arguments: list[str]) -> int:
    parse(RecipesConfig, arguments, "recipes")
    console = Console(highlight=False)
    for name, recipe in recipes().items():
        console.print(f"[bold]{name}[/]")
        _indented(console, f"paper {recipe.paper}, {recipe.table}: {recipe.about}")
        for size in SIZES:
            told = f"{size}: {size_of(recipe.config(size))}, about {rough(60 * recipe.minutes[size])}"
            _indented(console, told)
    console.print("\nukemi run NAME --size small: two CPU cores, embedded images")
    console.print("ukemi run NAME --size full:  one GPU, the paper's data; its time is a rough estimate")
    return 0


def _indented(console: Console, text: str) -> None:
    console.print(Padding(Text(text), (0, 0, 0, 4)))

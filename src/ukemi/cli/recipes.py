"""`ukemi recipes`."""

from rich.console import Console

from ukemi.cli.parse import parse
from ukemi.recipes import SIZES, recipes
from ukemi.reports.words import duration
from ukemi.schema import Schema


class RecipesConfig(Schema):
    """Lists the papers' experiments that `ukemi run NAME` repeats."""


def run(arguments: list[str]) -> int:
    parse(RecipesConfig, arguments, "recipes")
    console = Console(highlight=False)
    for name, recipe in recipes().items():
        times = ", ".join(f"{size} {duration(60 * recipe.minutes[size])}" for size in SIZES)
        console.print(f"[bold]{name:<19}[/] paper {recipe.paper}, {recipe.table}; about {times}", soft_wrap=True)
        console.print(f"{'':19} {recipe.about}", soft_wrap=True, markup=False)
    console.print("\nukemi run NAME --size small: two CPU cores, embedded images")
    console.print("ukemi run NAME --size full:  one GPU, the paper's data; its time is a rough estimate")
    return 0

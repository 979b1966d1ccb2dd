"""`ukemi recipes`."""

from rich.console import Console

from ukemi.cli.parse import parse
from ukemi.recipes import SIZES, recipes
from ukemi.recipes.sizes import size_of
from ukemi.reports.words import duration
from ukemi.schema import Schema


class RecipesConfig(Schema):
    """Lists the papers' experiments that `ukemi run NAME` repeats."""


def run(arguments: list[str]) -> int:
    parse(RecipesConfig, arguments, "recipes")
    console = Console(highlight=False)
    for name, recipe in recipes().items():
        console.print(f"[bold]{name:<22}[/] paper {recipe.paper}, {recipe.table}: {recipe.about}", soft_wrap=True)
        for size in SIZES:
            told = f"{size}: {size_of(recipe.config(size))}, about {duration(60 * recipe.minutes[size])}"
            console.print(f"{'':22} {told}", soft_wrap=True, markup=False)
    console.print("\nukemi run NAME --size small: two CPU cores, embedded images")
    console.print("ukemi run NAME --size full:  one GPU, the paper's data; its time is a rough estimate")
    return 0

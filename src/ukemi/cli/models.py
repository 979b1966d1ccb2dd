"""`ukemi models`."""

from rich.console import Console
from rich.table import Table

from ukemi import models
from ukemi.cli.parse import parse
from ukemi.schema import Schema


class ModelsConfig(Schema):
    """Lists the networks that `--model NAME` knows, with their parameters at the shape of their paper.

    Your own network is named as package.module:factory; it takes pixels in [0, 1] and gives logits.
    """


def run(arguments: list[str]) -> int:
    parse(ModelsConfig, arguments, "models")
    table = Table("name", "parameters", "images", "classes", "about", box=None, header_style="bold")
    table.columns[1].justify = "right"
    for row in models.listing():
        channels, (height, width), classes = row.shape.channels, row.shape.size, row.shape.classes
        table.add_row(row.name, f"{row.parameters:,}", f"{channels}x{height}x{width}", str(classes), row.about)
    Console().print(table)
    return 0

"""`ukemi augmenters`."""

from rich.console import Console

from ukemi.augmenters import AUGMENTERS
from ukemi.cli.parse import parse
from ukemi.schema import Schema


class AugmentersConfig(Schema):
    """Lists what `ukemi train --augmenter NAME` knows, with the settings of each."""


def run(arguments: list[str]) -> int:
    parse(AugmentersConfig, arguments, "augmenters")
    console = Console(highlight=False)
    for name, settings in AUGMENTERS.items():
        console.print(f"[bold]{name}[/]  {settings.__doc__}")
        for field, info in settings.model_fields.items():
            if field != "name":
                console.print(f"    --augmenter.{field} (default: {info.default})  {info.description}")
    return 0

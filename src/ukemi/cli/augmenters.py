"""`ukemi augmenters`."""

from pydantic.fields import FieldInfo
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ukemi.augmenters import AUGMENTERS, PRESETS
from ukemi.augmenters.presets import SenseiSettings
from ukemi.cli.parse import parse
from ukemi.fitness import FITNESS
from ukemi.objectives import OBJECTIVES
from ukemi.schema import Schema


class AugmentersConfig(Schema):
    """Lists what `ukemi train --augmenter NAME` and `--objective NAME` know, with the settings of each."""


def run(arguments: list[str]) -> int:
    parse(AugmentersConfig, arguments, "augmenters")
    console = Console(highlight=False)
    for name, settings in AUGMENTERS.items():
        console.print(f"[bold]{name}[/]  {_one_line(settings)}")
        plain = SenseiSettings.model_fields if name in PRESETS and name != "sensei" else {}
        _fields(console, "augmenter", settings, plain)
    console.print(f"\n[bold]fitness[/] by name: {', '.join(FITNESS)}; or your own as package.module:name\n")
    for name, objective in OBJECTIVES.items():
        console.print(f"[bold]{name}[/]  {_one_line(objective)}")
        _fields(console, "objective", objective, {})
    return 0


def _one_line(settings: type[Schema]) -> str:
    return " ".join((settings.__doc__ or "").split())


def _fields(console: Console, part: str, settings: type[Schema], plain: dict[str, FieldInfo]) -> None:
    """The settings of one, or of a preset only those that differ from the plain ones."""
    for field, info in settings.model_fields.items():
        if field != "name" and (field not in plain or info.default != plain[field].default):
            said = info.description or ""
            flag = field.replace("_", "-")
            console.print(Padding(Text(f"--{part}.{flag} (default: {info.default})  {said}"), (0, 0, 0, 4)))
    if plain:
        console.print("    and all settings of sensei")

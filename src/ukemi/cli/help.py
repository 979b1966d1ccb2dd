"""What `--help` says: paragraphs as wide as the terminal, and of each flag what it takes and its default, if any."""

from collections.abc import Mapping
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from ukemi.schema import Schema

KINDS = {int: "INT", float: "NUMBER", str: "STR", Path: "PATH"}
NOTHING = ("", "None", "False")
"""defaults that go without saying: nothing is given"""
registry = ConstructorRegistry()


def paragraphs(text: str) -> str:
    width = get_terminal_size().columns
    return "\n\n".join(fill(" ".join(one.split()), width, break_on_hyphens=False) for one in text.split("\n\n"))


def overview(about: str, usage: str, commands: Mapping[str, str], more: str) -> None:
    """What can be asked for, one row each."""
    console = Console(highlight=False, markup=False)
    rows = Table.grid(padding=(0, 2))
    for name, said in commands.items():
        rows.add_row("", Text(name, "bold"), said)
    console.print(f"{about}\n\nusage: {usage}\n")
    console.print(rows)
    console.print(f"\n{more}")


@registry.struct_rule
def of_schema(info: StructTypeInfo) -> StructConstructorSpec | None:
    """The fields of a schema as flags."""
    if not (isinstance(info.type, type) and issubclass(info.type, Schema)):
        return None
    hints = get_type_hints(info.type, include_extras=True)
    fields = [
        StructFieldSpec(
            name=name,
            type=_told(hints[name]),
            default=getattr(info.default, name, field.get_default(call_default_factory=True)),
            helptext=field.description,
        )
        for name, field in info.type.model_fields.items()
    ]
    return StructConstructorSpec(instantiate=info.type, fields=tuple(fields))


def _told(hint: Any) -> Any:
    """With what help says of it; what the field itself says takes precedence."""
    kind, own = (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
    return Annotated[(kind, tyro.conf.arg(metavar=_kind(kind), help_behavior_hint=_usual), *own)]


def _usual(default: str) -> str:
    return "" if default in NOTHING else f"(default: {default})"


def _kind(hint: Any) -> str | None:
    """What is given where the field may also be None."""
    members = [one for one in get_args(hint) if one is not NoneType]
    if NoneType not in get_args(hint) or len(members) != 1:
        return None
    bare = get_args(members[0])[0] if get_origin(members[0]) is Annotated else members[0]
    return f"{{{','.join(map(str, get_args(bare)))}}}" if get_origin(bare) is Literal else KINDS.get(bare)

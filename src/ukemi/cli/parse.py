"""One schema, three ways to fill it: a TOML file, flags, defaults."""

from collections.abc import Mapping, Sequence
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import tyro
from pydantic import create_model

from ukemi.augmenters import AUGMENTERS
from ukemi.cli.flags import check_flags
from ukemi.cli.help import paragraphs, registry
from ukemi.errors import UserError, check_known
from ukemi.objectives import OBJECTIVES
from ukemi.schema import Schema, read_config
from ukemi.training import TrainConfig
from ukemi.training.run import BESIDE

AnySchema = TypeVar("AnySchema", bound=Schema)
FILE = "--config FILE.toml reads settings from a file; flags come on top."


def parse(schema: type[AnySchema], arguments: Sequence[str], command: str) -> AnySchema:
    """The schema filled from `--config FILE` first and the flags second. A wrong flag ends the process with 2."""
    tables, rest = _config(arguments)
    about = cleandoc(schema.__doc__ or "")
    return fill(schema, tables, rest, command, f"{about}\n\n{FILE}" if schema.model_fields else about)


CHOICES: dict[str, tuple[Mapping[str, type[Schema]], str]] = {
    "augmenter": (AUGMENTERS, "what replaces the images of a batch"),
    "objective": (OBJECTIVES, "how images and labels become a loss"),
}
"""The parts of a training whose name picks their schema: the schemas, and what they are."""


def parse_train(arguments: Sequence[str]) -> TrainConfig:
    """As `parse`, but `--augmenter NAME` and `--objective NAME` pick their schemas before the flags are read."""
    tables, rest = _config(arguments)
    fields, defaults = dict[str, Any](), dict[str, str]()
    usual = "standard"
    for part, (schemas, _) in CHOICES.items():
        name, rest = pop(rest, f"--{part}")
        given = tables.get(part, {})
        if not isinstance(given, str | dict):
            raise UserError(f"{part}: a name or a table is needed, but {given!r} was given.")
        table = {"name": given} if isinstance(given, str) else dict(given)
        if name is not None and name != table.get("name"):
            table = {"name": name}
        if table and "name" not in table:
            raise UserError(f"{part}.name is missing; it is one of {', '.join(schemas)}.")
        picked = defaults[part] = table.get("name", usual)
        check_known(part, picked, schemas)
        fields[part] = (schemas[picked], schemas[picked](**table))
        usual = getattr(schemas[picked], "objective", "")  # what goes with this augmenter
    schema = create_model("TrainConfig", __base__=TrainConfig, __doc__=TrainConfig.__doc__, **fields)
    about = "Trains a classifier and writes a run folder: config, log, checkpoints, weights, page.\n\n"
    for part, (schemas, what) in CHOICES.items():
        about += (
            f"--{part} NAME picks {what}: {', '.join(schemas)} (default: {defaults[part]}); its own settings follow as"
            f" --{part}.SETTING, and --{part} NAME --help lists them.\n\n"
        )
    about += (
        f"{FILE}\n\n"
        "--resume RUN goes on with a run that was stopped, from its last checkpoint, and takes no other flags."
    )
    filled = {part: default for part, (_, default) in fields.items()}
    return fill(schema, {**tables, **filled}, rest, "train", about)


def fill(
    schema: type[AnySchema], tables: dict[str, Any], arguments: Sequence[str], command: str, about: str
) -> AnySchema:
    if tables.get("genes") and "space" in tables:
        raise UserError("space: give a space by name or [[genes]], not both.")
    if any(argument.partition("=")[0] == "--space" for argument in arguments):
        tables = {name: value for name, value in tables.items() if name != "genes"}
    for flag, given in pairwise([*arguments, "end"]):
        if flag.startswith("--") and (given == "" or flag.endswith("=")):
            raise UserError(f"{flag.strip('-=')}: a value is needed, but '' was given.")
    default = schema(**tables)
    check_flags(default, arguments, command)
    if {"-h", "--help"} & set(arguments):
        print(paragraphs(about), end="\n\n")  # tyro would not break its lines
    filled = tyro.cli(
        schema,
        args=list(arguments),
        default=default,
        prog=f"ukemi {command}",
        description="",
        config=(tyro.conf.FlagCreatePairsOff,),
        registry=registry,
    )
    return filled.model_copy(update=_kept(default, filled))


def _kept(default: Schema, filled: Schema) -> dict[str, Any]:
    """What no flag can give, as the file has it (tyro builds such parts anew, without keys that it does not know), and
    the file's settings below those of a flag that gives some."""
    found = {}
    for name, field in type(default).model_fields.items():
        before, after = getattr(default, name), getattr(filled, name)
        if tyro.conf.Suppress in field.metadata:
            found[name] = before
        elif isinstance(before, dict) and isinstance(after, dict):
            found[name] = {**before, **after}
    return found


def pop(arguments: Sequence[str], flag: str) -> tuple[str | None, list[str]]:
    """Takes `flag VALUE` or `flag=VALUE` out of the arguments."""
    rest, value = list(arguments), None
    for at, argument in enumerate(arguments):
        if argument == flag:
            if at + 1 == len(arguments) or arguments[at + 1].startswith("--"):
                raise UserError(f"{flag} needs a value.")
            value = arguments[at + 1]
            del rest[at : at + 2]
            break
        if argument.startswith(flag + "="):
            value = argument[len(flag) + 1 :]
            del rest[at]
            break
    return value, rest


def _config(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    path, rest = pop(arguments, "--config")
    if path is None:
        return {}, rest
    tables = read_config(Path(path))
    data = str(tables.get("data", ""))
    if data.startswith(BESIDE) and not Path(data).exists() and (Path(path).parent / data).exists():
        tables["data"] = str(Path(path).parent / data)  # the config of a run that has its data beside it
    return tables, rest

"""One schema, three ways to fill it: a TOML file, flags, defaults."""

from collections.abc import Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any, TypeVar

import tyro
from pydantic import create_model

from ukemi.augmenters import AUGMENTERS
from ukemi.errors import UserError
from ukemi.schema import Schema, read_config
from ukemi.training import TrainConfig

AnySchema = TypeVar("AnySchema", bound=Schema)


def parse(schema: type[AnySchema], arguments: Sequence[str], command: str, about: str = "") -> AnySchema:
    """The schema filled from `--config FILE` first and the flags second. A wrong flag ends the process with 2."""
    tables, rest = _config(arguments)
    return fill(schema, tables, rest, command, about)


def parse_train(arguments: Sequence[str]) -> TrainConfig:
    """As `parse`, but `--augmenter NAME` picks the augmenter's schema before the flags are read."""
    tables, rest = _config(arguments)
    name, rest = pop(rest, "--augmenter")
    given = tables.get("augmenter", {})
    table = {"name": given} if isinstance(given, str) else dict(given)
    if name is not None and name != table.get("name"):
        table = {"name": name}
    chosen = table.get("name", "standard")
    if chosen not in AUGMENTERS:
        raise UserError(f"augmenter: {chosen!r} is none of {', '.join(AUGMENTERS)}.")
    config = AUGMENTERS[chosen]
    schema = create_model(
        "TrainConfig", __base__=TrainConfig, __doc__=TrainConfig.__doc__, augmenter=(config, config(**table))
    )
    about = (
        "Trains a classifier and writes a run folder: config, log, checkpoints, weights, page.\n\n"
        f"--augmenter NAME picks what replaces the images of a batch: {', '.join(AUGMENTERS)}; its own settings follow"
        " as --augmenter.SETTING (shown below for the chosen one).\n\n"
        "--config FILE.toml reads settings from a file; flags come on top.\n\n"
        "--resume RUN goes on with a run that was stopped, from its last checkpoint, and takes no other flags."
    )
    return fill(schema, {**tables, "augmenter": config(**table)}, rest, "train", about)


def fill(
    schema: type[AnySchema], tables: dict[str, Any], arguments: Sequence[str], command: str, about: str
) -> AnySchema:
    if "genes" in tables and "space" in tables:
        raise UserError("space: give a space by name or [[genes]], not both.")
    if any(argument.partition("=")[0] == "--space" for argument in arguments):
        tables = {name: value for name, value in tables.items() if name != "genes"}
    default = schema(**tables)
    return tyro.cli(
        schema,
        args=list(arguments),
        default=default,
        prog=f"ukemi {command}",
        description=about or cleandoc(schema.__doc__ or ""),
        config=(tyro.conf.FlagCreatePairsOff,),
    )


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
    return ({} if path is None else read_config(Path(path))), rest

"""What is wrong with a command's flags, in one sentence, before a parser draws a box around it."""

from collections.abc import Iterable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import tyro
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ukemi.errors import UserError, meant
from ukemi.schema import sentence


def check_flags(default: BaseModel, arguments: Sequence[str], command: str) -> None:
    """Raises a `UserError` for a flag that is not known, lacks its value, or has one that does not fit its field."""
    if {"-h", "--help"} & set(arguments):
        return
    fields = {f"--{name}": (info, usual) for name, info, usual in _fields(default)}
    places = sum(_positional(info) for info, _ in fields.values())
    loose, at = list[str](), 0
    while at < len(arguments):
        flag, equals, value = arguments[at].partition("=")
        at += 1
        if not flag.startswith("--"):
            loose.append(arguments[at - 1])
            continue
        flag = flag.replace("_", "-")
        if _switch(flag, fields, command):
            continue
        info, _ = fields[flag]
        if _positional(info):
            raise UserError(f"{flag} is no flag of ukemi {command}: what it names stands by itself, without it.")
        values = [value] if equals else _behind(arguments, at)
        at += 0 if equals else len(values)
        if not _many(info):
            loose += values[1:]
            values = values[:1]
        if not values and not _many(info):
            raise UserError(f"{flag} needs a value.")
        _check(flag.removeprefix("--"), info, values)
    if len(loose) > places:
        raise UserError(f"{loose[-1]!r} belongs to no flag of ukemi {command} (ukemi {command} --help lists them).")


def _fields(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Names as flags have them, with what they are unless given."""
    for name, info in type(model).model_fields.items():
        usual, flag = getattr(model, name), prefix + name.replace("_", "-")
        if isinstance(usual, BaseModel):
            yield from _fields(usual, f"{flag}.")
        else:
            yield flag, info, usual


def _switch(flag: str, fields: dict[str, tuple[FieldInfo, Any]], command: str) -> bool:
    """Whether the flag is one that takes no value; one that is not known at all is an error."""
    positive = flag.replace("--no-", "--", 1)
    if flag not in fields and (positive not in fields or fields[positive][0].annotation is not bool):
        meant = _meant(flag, fields)
        hint = f"; {meant} is" if meant else _of_part(flag, fields) or f" (ukemi {command} --help lists them)"
        raise UserError(f"{flag} is no flag of ukemi {command}{hint}.")
    if flag in fields and fields[flag][0].annotation is not bool:
        return False
    if (flag == positive) == bool(fields[positive][1]):
        other = positive.replace("--", "--no-", 1) if flag == positive else positive
        raise UserError(f"{flag}: that is so anyway; {other} is the flag that changes it.")
    return True


def _of_part(flag: str, fields: dict[str, tuple[FieldInfo, Any]]) -> str:
    """What the part that was picked takes, where a setting of another one was given."""
    part = flag.rpartition(".")[0]
    if f"{part}.name" not in fields:
        return ""
    own = [one.removeprefix(f"{part}.") for one in fields if one.startswith(f"{part}.") and one != f"{part}.name"]
    return f": {part} {fields[f'{part}.name'][1]} has {', '.join(own) or 'no settings'}"


def _meant(flag: str, fields: Iterable[str]) -> str | None:
    """A part's setting that was given without its part, or else the flag that is spelt nearly so."""
    dotted = "." in flag
    # of a part, its name is given as the part itself
    known = [one.removesuffix(".name") for one in fields if not (dotted and one.endswith(".name"))]
    inner = [one for one in known if one.endswith(f".{flag.removeprefix('--')}")]
    part = flag.rpartition(".")[0]
    shared = f"{part}." if any(one.startswith(f"{part}.") for one in known) else ""  # what begins alike is not near
    begin = shared or "--"
    near = meant(flag.removeprefix(begin), [one.removeprefix(begin) for one in known if one.startswith(begin)])
    return next(iter(inner), None if near is None else begin + near)


def _behind(arguments: Sequence[str], at: int) -> list[str]:
    found = []
    for argument in arguments[at:]:
        if argument.startswith("--"):
            break
        found.append(argument)
    return found


def _check(name: str, info: FieldInfo, values: Sequence[str]) -> None:
    kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    given: Any = list(values) if _many(info) else values[0]
    members = _members(info)
    if given == "None" and NoneType in members:
        return
    try:
        TypeAdapter(kind, config={"arbitrary_types_allowed": True}).validate_python(given)
    except ValidationError as error:
        if sum(one is not NoneType for one in members) < 2:
            raise UserError(sentence(error, name)) from None
        said = (one["msg"].removeprefix("Input should be ").partition(", unable")[0] for one in error.errors())
        wanted = " or ".join(dict.fromkeys(said))
        raise UserError(f"{name}: should be {wanted}, but {given!r} was given.") from None


def _members(info: FieldInfo) -> tuple[Any, ...]:
    return get_args(info.annotation) if get_origin(info.annotation) in (Union, UnionType) else (info.annotation,)


def _many(info: FieldInfo) -> bool:
    """Whether it takes a row of values."""
    return any((get_origin(one) or one) in (tuple, list, dict) for one in _members(info))


def _positional(info: FieldInfo) -> bool:
    return any(one is tyro.conf.Positional for one in info.metadata)

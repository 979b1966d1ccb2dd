"""One typed schema per component: the same class reads Python, TOML and the command line."""

import importlib
import json
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

import tyro
from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from ukemi.errors import UserError, meant


def number(value: Any) -> Any:
    """A float from a number or from text such as `0.1`, `1e-3` or `8/255`."""
    if not isinstance(value, str):
        return value
    try:
        return float(Fraction(value.strip())) if "/" in value else float(value)
    except (ValueError, ZeroDivisionError):
        raise ValueError("a number or a fraction such as 8/255 is expected") from None


def value_of(text: str) -> Any:
    """What a setting behind a comma is given as: a value of TOML, or else a bare word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _written(value: float) -> str:
    """As one would give it: levels of 255 as such, where few digits do not say them."""
    levels = value * 255
    whole = float(f"{value:g}") != value and abs(levels - round(levels)) < 1e-9
    return f"{round(levels)}/255" if whole else f"{value:g}"


Number = Annotated[
    float,
    AllowInfNan(False),
    BeforeValidator(number),
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="NUMBER",
        instance_from_str=lambda given: number(given[0]),
        is_instance=lambda given: isinstance(given, int | float),
        str_from_instance=lambda given: [_written(given)],
    ),
]
"""A float that may be written as a fraction: `8/255`."""


def _full_name(given: Any) -> Any:
    """A function or class as `package.module:name`, the way files name it."""
    return f"{given.__module__}:{given.__qualname__}" if hasattr(given, "__qualname__") else given


Named = Annotated[
    Any,
    PlainSerializer(_full_name, when_used="json"),
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME",
        instance_from_str=lambda given: given[0],
        is_instance=lambda given: True,
        str_from_instance=lambda given: [str(_full_name(given))],
    ),
]
"""One of a table by its name, anyone's own as `package.module:name`, or the very object (see `chosen`)."""

T = TypeVar("T")
Fixed = Annotated[T, tyro.conf.Suppress]
"""A field that TOML may state but the command line does not show."""


_TABLES = ("dict_type", "model_type", "model_attributes_type", "dataclass_type")
_CALLED = {"tuple_type": "list"} | dict.fromkeys(_TABLES, "table")
"""what files call what was expected, by pydantic's name of the mistake"""


def sentence(error: ValidationError, prefix: str = "", known: Iterable[str] = ()) -> str:
    """The first thing wrong, as one sentence that names the field, what was given and what is allowed."""
    first = error.errors(include_url=False)[0]
    place = ".".join([prefix] * bool(prefix) + [str(part) for part in first["loc"]]).replace("_", "-")
    kind, given = first["type"], first["input"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        names = [name.replace("_", "-") for name in known] if len(first["loc"]) == 1 else []
        near = meant(place.rpartition(".")[2], names)
        more = f"; did you mean {near}?" if near else f"; known are {', '.join(names)}." if names else "."
        return f"{place} is not a known field{more}"
    if kind == "missing" or kind == "missing_argument":
        return f"{place} is missing."
    if kind == "union_tag_not_found":
        return f"{place}.name is missing."
    if kind == "union_tag_invalid":
        return f"{place}: {first['ctx']['tag']!r} is none of {first['ctx']['expected_tags']}."
    if kind in _CALLED:  # pydantic's words are Python's
        return f"{place}: should be a {_CALLED[kind]}, but {given!r} was given."
    if kind == "too_short":
        return f"{place}: at least {first['ctx']['min_length']} is needed, but {given or 'none'} was given."
    if kind == "path_type":
        return f"{place}: should be a path, but {given!r} was given."
    what = first["msg"].removeprefix("Value error, ").removeprefix("Input ").partition(", unable")[0].rstrip(".")
    return f"{place + ': ' if place else ''}{what}, but {given!r} was given."


FAILURES = (Exception, SystemExit)
"""how code of a user's own fails: a script that ends Python when it is imported would end a gate with its own code"""
_SHORT = 60
"""signs of a value that a sentence shows"""
_NUMBERS = (int, float, int | None, float | None)


class Schema(BaseModel):
    """A frozen, checked set of fields; what does not fit is a `UserError` with one sentence."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, arbitrary_types_allowed=True)
    place: ClassVar[str] = ""
    """where this schema stands inside a larger one: `augmenter` makes a wrong k be named augmenter.k"""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(sentence(error, self.place, type(self).model_fields)) from None

    @classmethod
    def taken_from(cls, other: "Schema", **changes: Any) -> Self:
        """This schema's fields as another one has them, with some of them changed."""
        return cls(**{name: getattr(other, name) for name in cls.model_fields} | changes)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """A description is one line: help breaks it where a terminal ends, not where the source does."""
        for field in cls.model_fields.values():
            field.description = " ".join((field.description or "").split()) or None

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, values: Any) -> Any:
        """To Python True is 1."""
        for name, given in values.items() if isinstance(values, dict) else ():
            if isinstance(given, bool) and name in cls.model_fields and cls.model_fields[name].annotation in _NUMBERS:
                place = ".".join([cls.place] * bool(cls.place) + [name]).replace("_", "-")
                raise UserError(f"{place}: should be a number, but {given} was given.")
        return values


def read_config(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, with `-` in keys read as `_`."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin with a mark
    except FileNotFoundError:
        raise UserError(f"config: there is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"config: {path} can't be read ({error}).") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"config: {path} is not valid TOML ({error}).") from None
    return _underscored(values)


def _underscored(values: Any) -> Any:
    if isinstance(values, dict):
        read = {key.replace("-", "_"): key for key in values}
        twice = sorted(values.keys() - read.values())
        if twice:
            raise UserError(f"config: {twice[0].replace('_', '-')} stands there twice, with - and with _.")
        return {name: _underscored(values[key]) for name, key in read.items()}
    if isinstance(values, list):
        return [_underscored(value) for value in values]
    return values


def toml(values: Mapping[str, Any], table: str = "") -> str:
    """Plain tables, lists, strings, numbers and booleans as TOML; None is left out."""
    plain = [f"{_key(key)} = {_literal(value)}" for key, value in values.items() if not isinstance(value, dict | None)]
    text = (f"[{table}]\n" if table and plain else "") + "".join(line + "\n" for line in plain)
    for key, value in values.items():
        if isinstance(value, dict) and value:
            text += "\n" * bool(text) + toml(value, f"{table}.{_key(key)}" if table else _key(key))
    return text


def _literal(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value if item is not None) + "]"
    if isinstance(value, dict):
        pairs = [f"{_key(key)} = {_literal(item)}" for key, item in value.items() if item is not None]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # TOML writes inf and nan as Python does
    # JSON's text is TOML's, but for one character that TOML wants escaped
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _literal(key)


@contextmanager
def current_directory() -> Iterator[None]:
    """Imports look into the current directory first."""
    here = os.getcwd()
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with suppress(ValueError):  # the user's module may have taken it out
            sys.path.remove(here)


def imported(name: str, field: str) -> Callable[..., Any]:
    """The object named `package.module:name`; `field` is named in the error where there is none."""
    module, _, attribute = name.partition(":")
    if not attribute or not module or module.startswith("."):
        raise UserError(f"{field}: {name!r} should have the form package.module:name.")
    if module.endswith(".py") or "/" in module:
        plain = module.removesuffix(".py").replace("/", ".").strip(".")
        raise UserError(f"{field}: {name!r} should name a module, not its file: {plain}:{attribute}.")
    try:
        with current_directory():
            found = importlib.import_module(module)
    except FAILURES as error:  # a user's module fails in any way it likes
        raise UserError(f"{field}: {name!r} can't be imported ({reason(error)}).") from error
    for part in attribute.split("."):  # Class.method is a name too
        if not hasattr(found, part):
            raise UserError(f"{field}: module {module!r} has no name {attribute!r}.")
        found = getattr(found, part)
    return found  # type: ignore[return-value]


def chosen(given: Any, table: Mapping[str, T], field: str) -> T:
    """What a `Named` field means: an entry of the table, an import, or the object itself."""
    if not isinstance(given, str):
        if not callable(given):
            raise UserError(f"{field}: a name or a function is needed, but {given!r} was given.")
        return given
    if given in table:
        return table[given]
    if ":" not in given:
        if given.partition(",")[0] in table:
            raise UserError(f"{field}: {given!r} should be a name alone; its settings have fields of their own.")
        known = f"none of {', '.join(table)}, nor" if table else "not"
        raise UserError(f"{field}: {given!r} is {known} of the form package.module:name.")
    found = imported(given, field)
    if not callable(found):
        raise UserError(f"{field}: {given!r} is a {type(found).__name__}, not a function.")
    return found  # type: ignore[return-value]


def check_nameable(given: Any, field: str) -> None:
    """An object that a run's files must be able to name: a function or class that `package.module:name` leads to."""
    if isinstance(given, str | int | float | tuple | None):
        return
    name = _full_name(given)
    with suppress(UserError):
        if isinstance(name, str) and imported(name, field) is given:
            return
    raise UserError(f"{field}: a run's files name it as package.module:name, which does not lead to {given!r}.")


def called(function: Callable[..., T], field: str, *arguments: Any, **options: Any) -> T:
    """Calls what may be anyone's own; where that fails, one sentence names the field, the function and the reason."""
    try:
        return function(*arguments, **options)
    except UserError:
        raise
    except FAILURES as error:
        if str(getattr(function, "__module__", type(function).__module__)).startswith("ukemi."):
            raise
        name = getattr(function, "__name__", type(function).__name__)
        raise UserError(f"{field}: {name} failed ({reason(error)}).") from error


def in_short(value: Any) -> str:
    """What was given, or of what would fill a screen (a tensor, a data set, a long list) its type.

    >>> in_short("t3"), in_short(list(range(100)))
    ("'t3'", 'a list')
    """
    said = repr(value)
    return said if len(said) <= _SHORT and "\n" not in said else f"a {type(value).__name__}"


def reason(error: BaseException) -> str:
    """Another's error in a few words: its kind, its first line, and the last place in a file that it passed."""
    text = (str(error).strip() or "no message").partition("\n")[0].rstrip(".")
    trace = traceback.extract_tb(error.__traceback__)
    known = trace and not trace[-1].filename.startswith("<")  # Python's own machinery of imports has no file
    at = f", {Path(trace[-1].filename).name} line {trace[-1].lineno}" if known else ""
    return f"{type(error).__name__}: {text}{at}"

"""How all reports are written: numbers as JSON, pages from their templates, settings as rows."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined

from ukemi.reports import words
from ukemi.reports.command import command
from ukemi.reports.texts import LATEX
from ukemi.training.checkpoints import write_whole


def write_numbers(path: Path, values: Mapping[str, Any]) -> None:
    """Values as JSON knows them: none of them is NaN or infinite."""
    write_whole(path, (json.dumps(values, indent=2, allow_nan=False) + "\n").encode())


def finite(value: float) -> float | None:
    """A number as JSON knows it: one that is not finite is None."""
    return value if isfinite(value) else None


def write_html(path: Path, name: str, **shown: Any) -> None:
    """Fills a template: one file that carries everything inside itself."""
    loader = PackageLoader("ukemi.reports", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"command": command(), "versions": versions(), "latex": LATEX}
    write_whole(path, environment.get_template(name).render(**shown).encode())


def versions() -> dict[str, str]:
    """What made the numbers."""
    try:
        own = version("ukemi")
    except PackageNotFoundError:  # used from a source tree that was never installed
        own = "unknown"
    return {"ukemi": own, "torch": str(torch.__version__), "python": platform.python_version()}


def ran(seconds: float, device: str, settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a page says last: how long it took, on what, and with which settings."""
    return [("time", words.duration(seconds)), ("device", device), *flat(settings)]


def flat(settings: Mapping[str, Any], place: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows: augmenter.k, 10; of a list of tables each is a row."""
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        name = f"{place}{key}".replace("_", "-")
        if isinstance(value, Mapping):
            rows += flat(value, f"{name}.")
        elif _tables(value):
            rows += [(f"{name} {at}", _setting(one)) for at, one in enumerate(value, 1)]
        else:
            rows.append((name, _setting(value)))
    return rows


def _tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):  # what is not set need not be said
        told = {key: one for key, one in value.items() if one not in (None, [], ())}
        return ", ".join(f"{key} = {said}" for key, said in flat(told))
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value)) or "none"
    if isinstance(value, float):
        levels = words.budget(value) if 0 < value < 1 else ""
        return levels if "/" in levels else f"{value:g}"
    return "none" if value is None else str(value)

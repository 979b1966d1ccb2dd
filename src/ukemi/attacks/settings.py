"""Checks of an attack's plain settings, in one sentence each."""

from numbers import Integral, Real
from typing import Any

from ukemi.errors import UserError


def check_count(name: str, given: Any, least: int = 0) -> None:
    """A whole number that is not below `least`."""
    if not isinstance(given, Integral) or isinstance(given, bool):
        raise UserError(f"{name}: a whole number is needed, but {given!r} was given.")
    if given < least:
        raise UserError(f"{name}: it should be {least} or more, but {given} was given.")


def check_numbers(**given: Any) -> None:
    """Numbers, whatever their size: text such as 2/255 is for the command line."""
    for name, one in given.items():
        if not isinstance(one, Real) or isinstance(one, bool):
            raise UserError(f"{name}: a number is needed, but {one!r} was given.")

"""The command that made a page, so that the page can say how to make it again."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_command: ContextVar[str] = ContextVar("command", default="")


@contextmanager
def made_by(arguments: Sequence[str]) -> Iterator[None]:
    """Pages that are written inside name `ukemi arguments…` as what makes them again."""
    before = _command.set(shlex.join(["ukemi", *arguments]))
    try:
        yield
    finally:
        _command.reset(before)


def command() -> str:
    """As a shell takes it; empty where a page is made from Python."""
    return _command.get()

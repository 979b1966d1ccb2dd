"""Progress bars on the error stream, where that is a terminal; of several ranks the first shows its own share."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ukemi.measures.attacks import Report
from ukemi.ranks import is_first
from ukemi.repairs.dare import Told


def progress() -> Progress:
    """An empty display that leaves nothing behind: where it ends in a mistake, that sentence stands alone."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or not is_first())


@contextmanager
def stages(first: str, total: int | None = None) -> Iterator[Told]:
    """One bar as a function of what is done, how far, and of how much."""
    with progress() as shown:
        task = shown.add_task(first, total=total)
        yield lambda what, done, of: shown.update(task, description=what, completed=done, total=of)


@contextmanager
def bar(about: str, total: int | None = None) -> Iterator[Report]:
    """One bar as a function of how far it is, and of how much."""
    with stages(about, total) as report:
        yield partial(report, about)

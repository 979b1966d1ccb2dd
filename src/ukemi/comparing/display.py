"""What a person sees while a comparison runs: how much of all runs is done, by whomever, and the time left."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import fmean
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ukemi.comparing.outcomes import finished, outcome_path
from ukemi.comparing.plan import Plan, Planned
from ukemi.errors import UserError
from ukemi.training.checkpoints import read_checkpoint

LOOK = 1.0
"""seconds between two looks at the folders"""
MEASURING = 0.1
"""share of a run that measuring is taken for"""


class Watch:
    """Reads from the folders how far every run is, and from finished runs how long the others will take."""

    def __init__(self, plan: Plan, jobs: int) -> None:
        self.plan, self.jobs = plan, jobs
        self.took: dict[Planned, float] = {}
        self.over: set[Planned] = set()

    def look(self) -> None:
        for one in self.plan.planned:
            run, measured = one.run(self.plan.runs), self.plan.measured[one.case]
            if one not in self.over and finished(run, measured):
                self.over.add(one)
                with suppress(UserError):  # stopped, or damaged: the table says so
                    values = read_checkpoint(outcome_path(run, measured)).values
                    self.took[one] = values["seconds"] + values["measuring_seconds"]

    def share(self, one: Planned) -> float:
        """How much of a run is done."""
        if one in self.over:
            return 1.0
        with suppress(OSError):
            lines = one.run(self.plan.runs).log_path.read_bytes().count(b"\n")
            return (1 - MEASURING) * min(1.0, lines / one.config.epochs)
        return 0.0

    def whole(self, one: Planned) -> float | None:
        """What a run that is going on will have taken, by its last epoch."""
        with suppress(OSError, ValueError, IndexError, KeyError):
            last = one.run(self.plan.runs).log_path.read_bytes().splitlines()[-1]
            return float(json.loads(last)["seconds"]) / self.share(one)
        return None

    def seconds_left(self) -> float | None:
        """From runs of the same case and method, else from all; of runs that are not done, what their logs tell. None
        before the first epoch is."""
        open_ones = [one for one in self.plan.planned if one not in self.over]
        known = self.took | {one: whole for one in open_ones if (whole := self.whole(one)) is not None}
        if not known:
            return None
        alike: dict[tuple[str, str], list[float]] = {}
        for one, seconds in known.items():
            alike.setdefault((one.case, one.method), []).append(seconds)
        usual = fmean(known.values())
        means = {kind: fmean(seconds) for kind, seconds in alike.items()}
        left = sum((1 - self.share(one)) * means.get((one.case, one.method), usual) for one in open_ones)
        return left / min(self.jobs, max(1, len(open_ones)))

    def done(self) -> tuple[float, int]:
        """How many runs are done, in part too, and of how many."""
        return sum(map(self.share, self.plan.planned)), len(self.plan.planned)

    def said(self) -> str:
        left = self.seconds_left()
        runs = f"{len(self.over)} of {len(self.plan.planned)} runs"
        if left is None or len(self.over) == len(self.plan.planned):
            return runs
        return about_left(runs, left)


def about_left(done: str, seconds: float) -> str:
    """How much is done, and roughly how long the rest will take."""
    return f"{done}, about {seconds / 60:.0f} min left" if seconds >= 90 else f"{done}, about {seconds:.0f} s left"


class Looking(Protocol):
    """What a bar shows; `look` is called now and then."""

    def look(self) -> None: ...
    def done(self) -> tuple[float, int]: ...
    def said(self) -> str: ...


@contextmanager
def watched(watch: Looking) -> Iterator[None]:
    """While the block runs, a progress bar on the error stream; where that is no terminal, a line per finished run."""
    console, over = Console(file=sys.stderr), threading.Event()  # this very stream, wherever others' errors go
    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task, told = progress.add_task("", total=watch.done()[1]), ""

        def look() -> None:
            nonlocal told
            watch.look()
            (done, total), said = watch.done(), watch.said()
            progress.update(task, completed=done, description=escape(said))
            if total and not console.is_terminal and said.partition(",")[0] != told:
                told = said.partition(",")[0]
                console.print(said, highlight=False, markup=False)

        def looking() -> None:
            while not over.wait(LOOK):
                look()

        thread = threading.Thread(target=looking, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        look()  # the last one ended since

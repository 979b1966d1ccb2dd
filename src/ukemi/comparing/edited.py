"""What is anyone's own may change after runs with it were begun; a run's name knows only how it is called."""

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ukemi.comparing.outcomes import outcome_path
from ukemi.comparing.plan import Plan, Planned
from ukemi.schema import current_directory

_OWN = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*")


def told_of_edits(plan: Plan) -> list[str]:
    """A sentence on each module that was changed after runs that use it were begun: they are not begun again."""
    behind = Counter(path for one in plan.planned for path in _newer(one, plan))
    return [
        f"{path} was changed after {count} of these runs were begun, and what is done is not done again: remove"
        f" {plan.runs} or give another --runs to run all anew."
        for path, count in behind.items()
    ]


def _newer(one: Planned, plan: Plan) -> set[Path]:
    """The files of own code that are newer than the run, or than its measuring."""
    run, measured = one.run(plan.runs), plan.measured[one.case]
    written = {
        run.folder / "config.toml": one.config.told(set()),
        outcome_path(run, measured): [measured.grids, measured.attacks],
    }
    return {
        source
        for path, told in written.items()
        if path.exists()
        for source in _sources(told)
        if source.stat().st_mtime > path.stat().st_mtime
    }


def _sources(told: Any) -> Iterator[Path]:
    for text in _texts(told):
        found = _OWN.fullmatch(text)
        if found and found[1].split(".")[0] != "ukemi":
            with suppress(Exception), current_directory():  # what can't be found is named where it is needed
                spec = importlib.util.find_spec(found[1])
                if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
                    yield Path(spec.origin)


def _texts(told: Any) -> Iterator[str]:
    if isinstance(told, str):
        yield told
    for inner in told.values() if isinstance(told, dict) else told if isinstance(told, list | tuple) else ():
        yield from _texts(inner)

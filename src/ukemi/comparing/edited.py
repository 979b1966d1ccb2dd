"""What is anyone's own (code, images, weights) may change after runs with it were begun; a run's name knows only how it
is called."""

import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ukemi.comparing.outcomes import outcome_path
from ukemi.comparing.plan import Plan, Planned
from ukemi.data.sources import SOURCES
from ukemi.schema import current_directory

_OWN = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*")


def told_of_edits(plan: Plan) -> list[str]:
    """A sentence on each module, data set or file of weights that was changed after runs that use it were begun: they
    are not begun again."""
    changed = cache(_changed)  # many runs share a data set, and looking through its folders takes a while
    behind = Counter(path for one in plan.planned for path in _newer(one, plan, changed))
    return [
        f"{path} was changed after {count} of these runs were begun, and what is done is not done again: remove"
        f" {plan.runs} or give another --runs to run all anew."
        for path, count in behind.items()
    ]


def _newer(one: Planned, plan: Plan, changed: Callable[[Path], float]) -> set[Path]:
    """What is anyone's own and newer than the run, or than its measuring."""
    run, measured, told = one.run(plan.runs), plan.measured[one.case], one.config.told(set())
    written = {
        run.folder / "config.toml": {*_sources(told), *_files(told)},
        outcome_path(run, measured): {*_sources([measured.grids, measured.attacks])},
    }
    return {
        source
        for path, sources in written.items()
        if path.exists()
        for source in sources
        if changed(source) > path.stat().st_mtime
    }


def _files(told: Mapping[str, Any]) -> Iterator[Path]:
    """Data and weights that lie in a file or a folder."""
    for name in ("data", "weights"):
        given = str(told.get(name) or "")
        if given and given not in SOURCES and Path(given).expanduser().exists():
            yield Path(given).expanduser()


def _changed(path: Path) -> float:
    """When a file was written; of a folder, when anything came into it or its folders, or left, two levels down. Images
    that were overwritten in their place are not seen: there may be millions of them."""
    inner = [] if path.is_file() else [one for one in path.glob("*") if one.is_dir() or one.suffix == ".tar"]
    deeper = [one for folder in inner if folder.is_dir() for one in folder.glob("*/")]
    return max(one.stat().st_mtime for one in (path, *inner, *deeper))


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

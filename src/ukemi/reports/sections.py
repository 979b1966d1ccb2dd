"""Tables of experiments: sections of a page that are Markdown, LaTeX and HTML alike."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import mean, stdev
from typing import Any

from ukemi.reports.curves import Curves
from ukemi.reports.texts import Rows, as_latex, as_markdown

Line = Mapping[str, Any]
Lines = Sequence[Line]
FEW_SEEDS = 5
"""with fewer, differences are shown seed by seed too"""


@dataclass(frozen=True)
class Section:
    """A heading, what is said beneath it, a table, and on the page pictures of its numbers."""

    title: str
    said: Sequence[str] = ()
    table: Rows | None = None
    pictures: Sequence[Curves] = ()

    def showing(self, *pictures: Curves | None) -> "Section":
        """The same with those pictures that there are."""
        return replace(self, pictures=tuple(one for one in pictures if one is not None))

    def markdown(self, level: int = 2) -> str:
        said = "".join(f"{sentence}\n\n" for sentence in self.said)
        return f"{'#' * level} {self.title}\n\n{said}" + (as_markdown(self.table) + "\n" if self.table else "")

    def latex(self) -> str:
        return f"% {self.title}\n{as_latex(self.table)}" if self.table else ""


def spread(values: Iterable[float | None], scale: float = 100, digits: int = 1) -> str:
    """Mean ± standard deviation; a dash where nothing is known.

    >>> spread([0.1, 0.3])
    '20.0 ± 14.1'
    """
    known = [scale * value for value in values if value is not None and isfinite(value)]
    if not known:
        return "–"
    return f"{mean(known):.{digits}f}" + (f" ± {stdev(known):.{digits}f}" if len(known) > 1 else "")


def per_seed(values: Mapping[int, float], scale: float = 100, digits: int = 1) -> str:
    """One signed number per seed, where they are too few for an interval; else nothing.

    >>> per_seed({0: 0.01, 1: -0.002})
    '+1.0, -0.2'
    """
    if not 1 < len(values) < FEW_SEEDS:
        return ""
    return ", ".join(f"{scale * value:+.{digits}f}" for _, value in sorted(values.items()))


def seeded(lines: Lines) -> dict[int, Line]:
    return {line["seed"]: line for line in lines}

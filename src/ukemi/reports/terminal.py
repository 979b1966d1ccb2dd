"""A table for a terminal of any width: what does not fit is left out and said, never cut."""

from collections.abc import Sequence
from textwrap import fill, wrap
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ukemi.reports import words
from ukemi.reports.texts import Rows

LONGEST = 24
"""signs of a cell that stays on one line"""


def captioned(caption: str, **options: Any) -> Table:
    """An empty table as narrow as its cells, with what is to be said of it beneath."""
    plain = {"box": box.SIMPLE_HEAD, "caption_justify": "left", "pad_edge": False, "padding": (0, 1, 0, 0)}
    return Table(caption=caption or None, **{**plain, **options})


def terminal_table(rows: Rows, width: int, title: str = "", caption: str = "", whole: str = "table.md") -> Table:
    """The first column says what a row is; headings are as wide as what stands beneath them, or their longest word.
    What is left out stands in the file `whole`."""
    fitting = fitted(rows, width)
    left = len(rows.names) - len(fitting.names)
    more = ["deviations"] * (deviates(rows) and not deviates(fitting))
    more += [words.plural(left, "more column")] * bool(left)
    said = [caption] * bool(caption) + [f"{' and '.join(more)} in {whole}"] * bool(more)
    shown = captioned("; ".join(said), title=Text(title, "bold") if title else None, title_justify="left")
    for at, (name, needed) in enumerate(zip(fitting.names, _widths(fitting), strict=True)):
        head = fill(name, needed, break_long_words=False, break_on_hyphens=False)
        shown.add_column(head, justify="right" if at else "left", min_width=needed, overflow="fold")
    for cells in fitting.rows:
        shown.add_row(*map(Text, cells))
    return shown


def fitted(rows: Rows, width: int) -> Rows:
    """The table as it is where it fits, else means alone under folded names, and as many columns of them as fit.

    >>> fitted(Rows(["a", "b", "c"], [["net", "1.0 ± 0.1", "2.0 ± 0.2"]]), 10).rows
    [['net', '1.0']]
    """
    if _width(rows) <= width:
        return rows
    whole = [(columns, LONGEST) for columns in range(len(rows.names), 2, -1)]
    for columns, longest in (*whole, (3, max(1, width // 3)), (2, LONGEST)):  # the second number is worth a fold
        found = Rows(rows.names[:columns], [_narrow(cells[:columns], longest) for cells in rows.rows])
        if _width(found) <= width:
            break
    return found


def _narrow(cells: Sequence[str], longest: int) -> list[str]:
    return ["\n".join(wrap(cells[0], longest)), *(cell.partition(" ± ")[0] for cell in cells[1:])]


def deviates(rows: Rows) -> bool:
    """Whether standard deviations are shown."""
    return any(" ± " in cell for cells in rows.rows for cell in cells)


def _width(rows: Rows) -> int:
    return sum(_widths(rows)) + 2 * len(rows.names)


def _widths(rows: Rows) -> list[int]:
    """What every column needs: words of longer texts may stand beneath each other too."""
    found = []
    for name, *cells in zip(rows.names, *rows.rows, strict=True):
        parts = [word for cell in cells if len(cell) > LONGEST for word in cell.split()]
        found.append(
            max(map(len, [*name.split(), *parts, *(cell for cell in cells if len(cell) <= LONGEST)]), default=0)
        )
    return found

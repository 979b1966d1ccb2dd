"""Tables for terminals: nothing is cut, what is left out is said."""

import io

import pytest
from rich.console import Console

from ukemi.reports.terminal import terminal_table
from ukemi.reports.texts import Rows

ROWS = Rows(["method", "n", "robust t6-2187", "time"], [["worst-of,k=3", "3", "85.3 ± 1.2", "10 s"]])


def printed(width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(terminal_table(ROWS, width, caption="in %"))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("width", "cells", "said"),
    [
        (80, ["worst-of,k=3", "3", "85.3 ± 1.2", "10 s"], "in %"),
        (34, ["worst-of,k=3", "3", "85.3", "10 s"], "in %; deviations in table.md"),
        (28, ["worst-of,k=3", "3", "85.3"], "in %; deviations and 1 more column in table.md"),
        (18, ["worst-of,k=3", "3"], "in %; deviations and 2 more columns in table.md"),
    ],
)
def test_what_does_not_fit_is_left_out_and_said(width: int, cells: list[str], said: str) -> None:
    text = printed(width)
    (row,) = [line for line in text.splitlines() if "worst-of,k=3" in line]
    assert row.split() == " ".join(cells).split() and max(map(len, text.splitlines())) <= width
    assert said in " ".join(text.split())


def test_a_heading_takes_the_width_of_its_cells() -> None:
    rows = Rows(["method", "95 % over seeds"], [["random", "+20.4 to +21.9"]])
    console = Console(width=80, file=io.StringIO())
    console.print(terminal_table(rows, 80))
    heading = console.file.getvalue().split("\N{BOX DRAWINGS LIGHT HORIZONTAL}")[0]  # type: ignore[attr-defined]
    assert [line.split() for line in heading.splitlines() if line.strip()] == [["95", "%", "over"], ["method", "seeds"]]

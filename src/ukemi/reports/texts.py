"""A table as text for papers and issues."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ukemi.reports.words import INFINITE, MINUS, THIN

_MARKDOWN = re.compile(r"[\\|<*`]")
LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "°": r"$^\circ$",
    "→": r"$\to$",
    "←": r"$\leftarrow$",
    "·": r"$\cdot$",
    MINUS: "$-$",
    INFINITE: r"$\infty$",
    THIN: r"\,",
}
"""What a sign is in LaTeX, for the files and for the copies that a page makes."""


@dataclass(frozen=True)
class Rows:
    """The names of the columns and the cells of every row."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]


def as_markdown(table: Rows) -> str:
    """A table of GitHub's Markdown.

    >>> print(as_markdown(Rows(["a|b", "c"], [["1", "2"]])), end="")
    | a\\|b | c |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [table.names, ["---"] * len(table.names), *table.rows]
    return "".join("| " + " | ".join(map(in_markdown, cells)) + " |\n" for cells in lines)


def in_markdown(text: str) -> str:
    """A text whose signs are no markup.

    >>> print(in_markdown("a|b <c>"))
    a\\|b \\<c>
    """
    return _MARKDOWN.sub(r"\\\g<0>", text)


def as_latex(table: Rows) -> str:
    """A tabular with the rules of booktabs.

    >>> print(as_latex(Rows(["method", "%"], [["worst_of", "61.2 ± 0.4"]])), end="")
    \\begin{tabular}{lr}
    \\toprule
    method & \\% \\\\
    \\midrule
    worst\\_of & 61.2 $\\pm$ 0.4 \\\\
    \\bottomrule
    \\end{tabular}
    """
    columns = "".join("l" if name in ("case", "method") else "r" for name in table.names)
    head, *body = [" & ".join(map(_escaped, cells)) + r" \\" for cells in (table.names, *table.rows)]
    inside = [r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *inside, r"\end{tabular}"]) + "\n"


def _escaped(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in text)

"""Evaluations as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ukemi.reports.evaluation import Evaluation
from ukemi.reports.words import count, duration, percent, wilson


def table(evaluations: Sequence[Evaluation]) -> Table:
    """One row per evaluation: accuracy, robust accuracy with its 95 % interval, and what it cost."""
    found = Table(caption="robust: recognised unchanged and under every variant; in brackets a 95 % interval")
    found.add_column("model", overflow="fold")
    for name in ("accuracy", "robust accuracy", "robust images", "variants", "forward passes", "time"):
        found.add_column(name, justify="right")
    for one in evaluations:
        found.add_row(Text(one.title), *cells(one))
    return found


def cells(evaluation: Evaluation) -> tuple[str, ...]:
    """What a row says behind the title; the page's table says the same."""
    found = evaluation.robustness
    images, robust = len(found.correct), int(found.robust.sum())
    low, high = wilson(robust, images)
    return (
        percent(found.accuracy),
        f"{percent(found.robust_accuracy)} ({100 * low:.1f} to {100 * high:.1f})",
        f"{count(robust)} of {count(images)}",
        count(len(found.grid)),
        f"{count(found.forwards)} ({percent(found.share_evaluated)})",
        "" if evaluation.seconds is None else duration(evaluation.seconds),
    )

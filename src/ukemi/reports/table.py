"""Evaluations as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from ukemi.measures import Robustness
from ukemi.reports.evaluation import Evaluation
from ukemi.reports.terminal import terminal_table
from ukemi.reports.texts import Rows
from ukemi.reports.words import count, duration, percent, plural, wilson


def table(evaluations: Sequence[Evaluation], width: int = 120) -> Table:
    """One row per evaluation: accuracy, robust accuracy, its 95 % interval, and what it cost, as far as a terminal of
    this width has room."""
    means = any(one.robustness.mean_accuracy is not None for one in evaluations)
    grids = {len(one.robustness.grid) for one in evaluations}
    all_of_them = f"all {count(grids.pop())} variants" if len(grids) == 1 else "every variant"
    counts = {len(one.robustness.correct) for one in evaluations}
    images = f"{plural(counts.pop(), 'image')}; " if len(counts) == 1 else ""
    about = f"{images}robust: recognised unchanged and under {all_of_them}"
    if means:
        about += "; mean: accuracy over all variants"
    names = ["model", "accuracy", "robust accuracy", "its 95 % interval", *["mean"] * means, "forward passes", "time"]
    rows = []
    for one in evaluations:
        accuracy, _, _, _, forwards, seconds = cells(one)
        found, mean = one.robustness, one.robustness.mean_accuracy
        over_all = ["" if mean is None else percent(mean)] * means
        robust = [percent(found.robust_accuracy), _interval(found)]
        rows.append([one.title, accuracy, *robust, *over_all, forwards, seconds])
    return terminal_table(Rows(names, rows), width, caption=about, whole="evaluation.json")


def cells(evaluation: Evaluation) -> tuple[str, ...]:
    """What a row says behind the title; the page's table says the same."""
    found = evaluation.robustness
    return (
        percent(found.accuracy),
        f"{percent(found.robust_accuracy)} ({_interval(found)})",
        f"{count(int(found.robust.sum()))} of {count(len(found.correct))}",
        count(len(found.grid)),
        f"{count(found.forwards)} ({percent(found.share_evaluated)})",
        "" if evaluation.seconds is None else duration(evaluation.seconds),
    )


def _interval(found: Robustness) -> str:
    low, high = wilson(int(found.robust.sum()), len(found.correct))
    return f"{100 * low:.1f} to {100 * high:.1f}"

"""Training curves from the lines of a log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from markupsafe import Markup

from ukemi.reports import charts, words
from ukemi.reports.charts import Series

Log = Sequence[Mapping[str, Any]]

_CHARTS = (
    ("Loss", {"loss": "training", "validation_loss": "validation"}, words.plain, (0.0,)),
    (
        "Accuracy",
        {"accuracy": "training", "validation_accuracy": "validation", "robust_accuracy": "robust"},
        lambda share: words.percent(share, 0),
        (0.0, 1.0),
    ),
    ("Learning rate", {"learning_rate": "learning rate"}, words.plain, (0.0,)),
)
"""title, field of the log: name of the line, how values are said, what the height shows in any case"""


@dataclass(frozen=True)
class Curves:
    """One chart with its legend: names and pieces of their lines."""

    title: str
    svg: Markup
    legend: tuple[tuple[str, Markup], ...]


def curves(log: Log) -> list[Curves]:
    """Loss, accuracies and learning rate over the epochs; a chart without any value is left out."""
    drawn = []
    for title, fields, said, height in _CHARTS:
        series = [Series(name, _points(log, field), style) for style, (field, name) in enumerate(fields.items())]
        series = [one for one in series if one.points]
        if series:
            exact = words.percent if title == "Accuracy" else None
            svg = charts.lines(series, title=title, x_label="epoch", y_said=said, y_tip=exact, y_limits=height)
            drawn.append(Curves(title, svg, tuple((one.name, charts.swatch(one.style)) for one in series)))
    return drawn


def progress(log: Log) -> list[str]:
    """What the log says so far, in sentences."""
    if not log:
        return ["No epoch is done yet."]
    last = log[-1]
    took = f" in {words.duration(last['seconds'])}" if "seconds" in last else ""
    said = [f"{words.plural(len(log), 'epoch')} done{took}."]
    for field, name in (("validation_accuracy", "Validation accuracy"), ("robust_accuracy", "Robust accuracy")):
        points = _points(log, field)
        if points:
            epoch, best = max(points, key=lambda point: point[1])
            last_said = f"{name} is {words.percent(points[-1][1])}"
            best_said = f"it was best in epoch {epoch:g} with {words.percent(best)}"
            said.append(f"{last_said}, its best so far." if best == points[-1][1] else f"{last_said}; {best_said}.")
    saved = last.get("scoring_forwards_saved", 0)
    if saved > 0:
        share = words.percent(saved / (saved + last["scoring_forwards"]), 0)
        about = f", about {words.duration(last['scoring_seconds_saved'])}" if "scoring_seconds_saved" in last else ""
        said.append(f"Skipping robust samples saved {share} of the scoring passes{about}.")
    return said


def _points(log: Log, field: str) -> tuple[tuple[float, float], ...]:
    """Where the log has a finite value; epochs count from 1 for people."""
    given = ((float(line["epoch"] + 1), line.get(field)) for line in log)
    return tuple((epoch, float(value)) for epoch, value in given if value is not None and isfinite(value))

"""Uncertainty (paper 3) as pictures over seeds: patterns, AUROC, generation, defences, retraining."""

from collections.abc import Sequence

from ukemi.reports import words
from ukemi.reports.bars import bars
from ukemi.reports.curves import Curves
from ukemi.reports.dare_pictures import signed
from ukemi.reports.sections import Lines
from ukemi.reports.uncertain_tables import ENOUGH, METRICS, ROWS, gain, named, of, sources
from ukemi.uncertainty import GOALS, PATTERNS

CHANCE = 0.5


def patterns(lines: Lines, model: str) -> Curves | None:
    own = of(lines, model, "profile")
    groups = {
        name: {pattern: [row["patterns"][pattern] for row in named(own, name)] for pattern in PATTERNS}
        for name in sources(own)
    }
    return bars(groups, title="Shares of the four patterns", at_least=(0.0, 1.0), stacked=True)


def aurocs(lines: Lines, model: str) -> Curves | None:
    own = of(lines, model, "profile")
    rows = {name: [row["auroc"] for row in named(own, name) if row["auroc"]] for name in sources(own)}
    groups = {
        name: {metric.upper(): [row[metric] for row in kept] for metric in METRICS} for name, kept in rows.items()
    }
    return bars(
        groups,
        title=f"AUROC: {model}",
        said=lambda value: words.plain(value, 2),
        at_least=(0.0, 1.0),
        limit=CHANCE,
        limit_said="chance",
    )


def successes(lines: Lines, models: Sequence[str]) -> Curves | None:
    groups = {
        f"{pattern}, {goal}": {
            model: [line["success_rate"] for line in of(lines, model, "generate", f"{pattern} {goal}")]
            for model in models
        }
        for pattern in PATTERNS
        for goal in GOALS
    }
    aim = f"{words.percent(ENOUGH, 0)}, the aim"
    return bars(groups, title="Share of seeds that reach it", at_least=(0.0, 1.0), limit=ENOUGH, limit_said=aim)


def passing(lines: Lines, model: str) -> Curves | None:
    """Of the inputs that fool the bare model, those that pass each defence."""
    rows = [row for line in of(lines, model, "defend") for row in line["defences"]]
    groups = {
        name: {
            pattern: [row["passes_by_pattern"][pattern] for row in rows if row["defence"] == name]
            for pattern in PATTERNS
        }
        for name in dict.fromkeys(row["defence"] for row in rows)
    }
    return bars(groups, title="Share that passes, by pattern", at_least=(0.0, 1.0))


def retrained(lines: Lines, model: str) -> list[Curves | None]:
    """Accuracy gained, and the calibration rate."""
    done = {row: [line for line in of(lines, model, "retrain", row) if "after" in line] for row in ROWS}
    gains = {row: {"gain": [gain(line, "accuracy") for line in own]} for row, own in done.items()}
    rates = {row: {"rate": [line["after"]["mean_calibration"] for line in own]} for row, own in done.items()}
    return [
        bars(gains, title="Accuracy gained", said=signed),
        bars(rates, title="Calibration rate", at_least=(0.0, 1.0)),
    ]

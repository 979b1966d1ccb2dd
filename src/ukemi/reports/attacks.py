"""How a model holds under attacks: as rows for JSON and spreadsheets, a table, and a part of the evaluation's page."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from rich.table import Table
from rich.text import Text

from ukemi.attacks.config import AttackConfig, AttackSettings
from ukemi.measures.attacks import UnderAttack
from ukemi.reports import charts, words
from ukemi.reports.charts import Series
from ukemi.reports.curves import Curves
from ukemi.reports.terminal import captioned
from ukemi.reports.writing import finite

MOST_TICKS = 5
NORMS = {"l1": "L1", "l2": "L2", "linf": "L∞"}
BLACK_BOX = ("square",)
COLUMNS = ("accuracy under attack", "robustness", "median distance", "passes", "time")
_GRID_COLUMNS = ("settings", "mean robustness", "lowest", "mean accuracy", "lowest accuracy")


@dataclass(frozen=True)
class AttackResult:
    """One attack with its settings, on the model itself."""

    config: AttackConfig
    found: UnderAttack
    group: str
    """the attack and its norm: results of one group differ in settings only"""
    seconds: float = 0.0


def title_of(config: AttackConfig) -> str:
    """The attack with its settings; a budget that is whole steps of a pixel is said as such: epsilon 8/255."""
    if config.epsilon is None:
        return config.title()
    return config.title().replace(f"epsilon {config.epsilon:g}", f"epsilon {words.budget(config.epsilon)}")


def sight_of(config: AttackConfig) -> str:
    """Whether the attack follows the model's gradients or sees its outputs alone."""
    return "black-box" if config.name() in BLACK_BOX else "white-box"


def sight_said(results: Sequence[AttackResult]) -> str:
    """The same of several attacks, and for whom they are made; one that follows gradients decides."""
    several = len(results) > 1
    made = f"the {'attacks are' if several else 'attack is'} made for this very model"
    if {sight_of(one.config) for one in results} == {"black-box"}:
        return f"black-box: {made}, from its outputs alone"
    return f"white-box: {made}"


def worst_of(results: Sequence[AttackResult]) -> float | None:
    """The lowest accuracy under any of the attacks; None where there was none."""
    return min((one.found.attacked_accuracy for one in results), default=None)


def attack_row(result: AttackResult) -> dict[str, Any]:
    """One attack as plain values, the same names for every attack; what is not known is None."""
    found = result.found
    set_ = result.config.settings()
    return {
        "group": result.group,
        "attack": result.config.name(),
        **{name: set_.get(name) for name in AttackSettings.model_fields if name != "attack"},
        "norm": found.norm,
        "images": len(found.right),
        "recognised": int(found.right.sum()),
        "fooled": int(found.fooled.sum()),
        "accuracy": found.accuracy,
        "attacked_accuracy": found.attacked_accuracy,
        "robustness": finite(found.robustness),
        "median_distance": finite(found.median_distance),
        "forwards": found.forwards,
        "backwards": found.backwards,
        "seconds": result.seconds,
    }


def group_rows(results: Sequence[AttackResult]) -> list[dict[str, Any]]:
    """Mean and lowest of each group, as STYX reports its grid: per attack and norm."""
    rows = []
    for group, those in _groups(results).items():
        robust = [one.found.robustness for one in those]
        under = [one.found.attacked_accuracy for one in those]
        rows.append(
            {
                "group": group,
                "configurations": len(those),
                "robustness_mean": finite(sum(robust) / len(robust)),
                "robustness_lowest": finite(min(robust)),
                "attacked_accuracy_mean": sum(under) / len(under),
                "attacked_accuracy_lowest": min(under),
            }
        )
    return rows


def attacks_table(results: Sequence[AttackResult]) -> Table:
    """Attacks, or of a grid its groups, for the terminal."""
    about = f"{sight_said(results)}; robustness: 1 - fooled / recognised (STYX)"
    if _is_grid(results):
        found = plain_table("attack", _GRID_COLUMNS, about)
        for name, cells in _rows(results):
            found.add_row(Text(name), *cells)
        return found
    found = plain_table("attack", COLUMNS[:-1], about + "; passes: forwards + backwards")
    for one in results:
        under = words.percent(one.found.attacked_accuracy)
        found.add_row(Text(title_of(one.config)), under, *cells_of(one)[1:-1])
    return found


def attack_table(result: AttackResult) -> Table:
    """One attack beside the accuracy without it, for the terminal."""
    found = result.found
    about = f"{sight_said([result])}; robustness: 1 - fooled / recognised (STYX)"
    shown = plain_table(Text(title_of(result.config)), ("",), about)
    shown.add_row("accuracy", share_of(found.accuracy, len(found.right)))
    cells = dict(zip(COLUMNS, cells_of(result), strict=True))
    shown.add_row(f"accuracy under attack ({sight_of(result.config)})", cells["accuracy under attack"])
    for name in ("robustness", "median distance"):
        shown.add_row(name, cells[name])
    shown.add_row("forward passes", words.count(found.forwards))
    shown.add_row("backward passes", words.count(found.backwards))
    shown.add_row("time", cells["time"])
    return shown


def plain_table(first: str | Text, columns: Sequence[str], caption: str) -> Table:
    """An empty table for the terminal; the first column may fold."""
    found = captioned(caption)
    found.add_column(first, overflow="fold")
    for name in columns:
        found.add_column(name.replace(" ", "\n", 1), justify="right")
    return found


def attack_section(results: Sequence[AttackResult]) -> dict[str, Any] | None:
    """What the page shows about attacks; None where there were none."""
    if not results:
        return None
    grid = _is_grid(results)
    return {
        "said": _said(results),
        "sight": sight_said(results),
        "columns": _GRID_COLUMNS if grid else COLUMNS,
        "rows": _rows(results),
        "every": [(title_of(one.config), cells_of(one)) for one in results] if grid else [],
        "every_columns": COLUMNS,
        "curves": _curves(results),
    }


def cells_of(result: AttackResult) -> tuple[str, ...]:
    """What a row says behind the attack's title."""
    found = result.found
    return (
        share_of(found.attacked_accuracy, len(found.right)),
        share_said(found.robustness),
        distance_said(found),
        f"{words.count(found.forwards)} + {words.count(found.backwards)}",
        words.duration(result.seconds),
    )


def share_said(share: float) -> str:
    return words.percent(share) if isfinite(share) else "none"


def distance_said(found: UnderAttack) -> str:
    """The median distance with its norm: 0.0123 (L∞)."""
    far = found.median_distance
    return f"{words.plain(far)} ({NORMS[found.norm]})" if isfinite(far) else "none"


def _is_grid(results: Sequence[AttackResult]) -> bool:
    return len(_groups(results)) > 1


def _groups(results: Sequence[AttackResult]) -> dict[str, list[AttackResult]]:
    groups: dict[str, list[AttackResult]] = {}
    for one in results:
        groups.setdefault(one.group, []).append(one)
    return groups


def _rows(results: Sequence[AttackResult]) -> list[tuple[str, tuple[str, ...]]]:
    if not _is_grid(results):
        return [(title_of(one.config), cells_of(one)) for one in results]
    return [
        (
            row["group"],
            (
                words.count(row["configurations"]),
                *(
                    "none" if value is None else words.percent(value)
                    for name, value in row.items()
                    if name not in ("group", "configurations")
                ),
            ),
        )
        for row in group_rows(results)
    ]


def _said(results: Sequence[AttackResult]) -> str:
    worst = min(results, key=lambda one: one.found.attacked_accuracy)
    known, fooled = words.plural(int(worst.found.right.sum()), "recognised image"), int(worst.found.fooled.sum())
    name = title_of(worst.config)
    if len(results) > 1 and not fooled:
        return f"Of {words.count(len(results))} attacks none fools the model on any of {known}."
    if len(results) > 1:
        name = f"The hardest of {words.count(len(results))} attacks, {name},"
    return f"{name} fools the model on {words.count(fooled)} of {known}."


def _curves(results: Sequence[AttackResult]) -> list[Curves]:
    """Accuracy and robustness over epsilon, a chart for each group that has several."""
    drawn = []
    for group, those in _groups(results).items():
        by_epsilon = {one.config.epsilon: one.found for one in those if one.config.epsilon is not None}
        if len(by_epsilon) < 2:
            continue
        points = sorted(by_epsilon.items())
        said = words.budgets([epsilon for epsilon, _ in points])
        series = [
            Series("accuracy under attack", tuple((epsilon, found.attacked_accuracy) for epsilon, found in points), 0),
            Series("robustness (STYX)", tuple((epsilon, found.robustness) for epsilon, found in points), 1),
        ]
        svg = charts.lines(
            series,
            title=f"{group} over epsilon",
            x_label=f"epsilon ({NORMS[points[0][1].norm]})",
            x_said=lambda value, said=said: said[value],  # type: ignore[misc]
            x_ticks=_ticks(list(said)),
            y_said=lambda share: words.percent(share, 0),
            y_limits=(0.0, 1.0),
        )
        drawn.append(Curves(group, svg, tuple((one.name, charts.swatch(one.style)) for one in series)))
    return drawn


def _ticks(values: Sequence[float]) -> list[float]:
    """The first and those that keep clear of the one before and of the last, and the last."""
    room = (values[-1] - values[0]) / MOST_TICKS
    kept = [values[0]]
    for value in values[1:-1]:
        if value - kept[-1] >= room * 0.999 and values[-1] - value >= room * 0.999:
            kept.append(value)
    return [*kept, values[-1]]


def share_of(share: float, images: int) -> str:
    """A share with its 95 % interval."""
    low, high = words.wilson(round(share * images), images)
    return f"{words.percent(share)} ({100 * low:.1f} to {100 * high:.1f})"

"""In which settings the methods of a comparison differ; where it is one number, a chart over it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log10
from typing import Any

from pydantic_core import PydanticUndefined

from ukemi.augmenters import AUGMENTERS
from ukemi.comparing import Comparison
from ukemi.comparing.result import CaseResult
from ukemi.measures.statistics import Spread
from ukemi.reports import charts, words
from ukemi.reports.charts import Series
from ukemi.reports.curves import Curves

FEWEST = 3
"""methods that make a chart over a setting worth drawing"""
WIDE = 20
"""from this ratio on a setting has a logarithmic axis"""


@dataclass(frozen=True)
class Apart:
    """The setting in which methods differ, and each one's value; a single method may stand beside them, without one."""

    setting: str
    values: dict[str, float]
    beside: str | None


def settings_of(found: Comparison) -> dict[str, dict[str, Any]]:
    """Every method's settings by their dotted names, an augmenter's defaults among them."""
    train = found.settings.get("train", {})
    return {method["name"]: dict(_dotted(_whole({**train, **method}))) for method in found.settings.get("methods", ())}


def _whole(told: Mapping[str, Any]) -> dict[str, Any]:
    given = told.get("augmenter", "standard")
    given = {"name": given} if isinstance(given, str) else {key.replace("-", "_"): one for key, one in given.items()}
    kind = AUGMENTERS.get(given.get("name", "standard"))
    fields = kind.model_fields if kind else {}
    usual = {name: field.default for name, field in fields.items() if field.default is not PydanticUndefined}
    objective = told.get("objective", kind.objective if kind else None)
    objective = {"name": objective} if isinstance(objective, str) else objective
    kept = {key.replace("-", "_"): value for key, value in told.items() if key != "name"}
    return kept | {"augmenter": {**usual, **given}, "objective": objective}


def _dotted(told: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in told.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", tuple(value) if isinstance(value, list) else value


def apart(found: Comparison) -> Apart | None:
    """The one number in which all methods differ, or all but one."""
    told = settings_of(found)
    if len(told) < FEWEST:
        return None
    names = sorted({key for settings in told.values() for key, value in settings.items() if _number(value)})
    ways = [values for name in names for values in _alike(told, name)]
    best = max(ways, key=lambda one: len(one.values), default=None)
    return best if best and len(best.values) >= max(2, len(told) - 1) else None


def _alike(told: Mapping[str, Mapping[str, Any]], name: str) -> list[Apart]:
    """Methods that differ in this setting and in no other."""
    groups: dict[str, dict[str, float]] = {}
    for method, settings in told.items():
        if _number(settings.get(name)):
            rest = sorted((key, repr(value)) for key, value in settings.items() if key != name)
            groups.setdefault(repr(rest), {})[method] = float(settings[name])
    kept = [values for values in groups.values() if len(set(values.values())) == len(values)]
    left = [[method for method in told if method not in values] for values in kept]
    short = name.rpartition(".")[2].replace("_", "-")
    return [Apart(short, values, one[0] if one else None) for values, one in zip(kept, left, strict=True)]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def over_setting(found: Comparison, measure_name: str) -> list[Curves]:
    """What decides over the one setting in which methods differ (SENSEI, Figures 5 and 6), case by case."""
    one = apart(found)
    if one is None:
        return []
    drawn = [_chart(found, case, one, measure_name) for case in found.run_cases()]
    return [chart for chart in drawn if chart is not None]


def _chart(found: Comparison, case: CaseResult, one: Apart, measure_name: str) -> Curves | None:
    spreads = {method: case.spread(method, found.decides) for method in one.values}
    known = {one.values[method]: spread for method, spread in spreads.items() if spread is not None}
    if len(known) < 2:
        return None
    low, high = min(known), max(known)
    wide = low > 0 and high / low > WIDE
    at = {value: log10(value) if wide else value for value in sorted(known)}
    line = Series(
        measure_name,
        tuple((at[value], known[value].mean) for value in at),
        0,
        tuple(f"{one.setting} {value:g}: {_said(known[value])}" for value in at),
        tuple(known[value].deviation or 0.0 for value in at),
    )
    level = case.spread(one.beside, found.decides) if one.beside else None
    ends = (at[low], at[high])
    lines = [line]
    if level is not None and one.beside:
        points = tuple((end, level.mean) for end in ends)
        lines.append(Series(one.beside, points, 1, (f"{one.beside}: {_said(level)}",) * 2))
    svg = charts.lines(
        lines,
        title=f"{measure_name.capitalize()} over {one.setting}: {case.name}",
        x_label=one.setting,
        x_said=lambda place: f"{10**place if wide else place:g}",
        x_ticks=list(at.values()),
        y_said=lambda share: words.percent(share, 0),
        y_tip=words.percent,
    )
    return Curves(case.name, svg, tuple((each.name, charts.swatch(each.style)) for each in lines))


def _said(found: Spread) -> str:
    return words.percent(found.mean) + ("" if found.deviation is None else f" ± {100 * found.deviation:.1f}")

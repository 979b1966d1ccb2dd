"""Bars with whiskers: means over seeds in groups, beside each other or end to end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup

from ukemi.measures.statistics import Interval, Spread, spread
from ukemi.reports import drawing, words
from ukemi.reports.charts import COLOURS, Said
from ukemi.reports.curves import Curves
from ukemi.reports.scales import Scale, limits, rounded

THICK, THIN = 14, 8
"""of a bar that is alone in its row, and of one among several"""
GAP = 2

Values = Mapping[str, Iterable[float | None]]
"""what every seed found, by the name of the series"""


@dataclass(frozen=True)
class _Style:
    scale: Scale
    series: Sequence[str]
    said: Said
    limit: float | None
    stacked: bool
    within: Interval | None
    """where all values lie, whatever their deviation"""


def bars(
    groups: Mapping[str, Values],
    *,
    title: str,
    said: Said = words.percent,
    at_least: tuple[float, ...] = (0.0,),
    limit: float | None = None,
    limit_said: str = "",
    stacked: bool = False,
) -> Curves | None:
    """A row per group, a bar per series: the mean over the seeds, with a whisker of one standard deviation.

    `at_least` are values that the width shows in any case; where they are two and nothing lies beyond them, as with
    shares, whiskers end there too. `limit` is drawn across all rows. Stacked bars lie end to
    end, with the deviation of their sum. None where no value is known. Places are shares of the width.
    """
    known = {
        group: {name: spread(given) for name, given in own.items()}
        for group, values in groups.items()
        if (own := _finite(values))
    }
    if not known:
        return None
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    sums = {group: _sum(groups[group]) for group in known} if stacked else {}
    shown = [*sums.values()] if stacked else [one for found in known.values() for one in found.values()]
    inside = len(at_least) == 2 and all(min(at_least) <= one.mean <= max(at_least) for one in shown)
    within = (min(at_least), max(at_least)) if inside else None
    ends = [end for one in shown for end in _ends(one, within)]
    low, high = rounded(*limits(ends, (*at_least, *([] if limit is None else [limit]))))
    style = _Style(Scale(low, high, 0, 100), series, said, limit, stacked, within)
    rows = [_row(group, found, sums.get(group), style) for group, found in known.items()]
    drawn = Markup('<ul class="bars">{}</ul><div class="ends"><span>{}</span><span>{}</span></div>').format(
        Markup("").join(rows), said(low), said(high)
    )
    return Curves(title, drawn, _legend(style, limit_said))


def _finite(values: Values) -> dict[str, list[float]]:
    """The series that have any value, without what is not finite."""
    known = {name: [one for one in given if one is not None and isfinite(one)] for name, given in values.items()}
    return {name: given for name, given in known.items() if given}


def _sum(values: Values) -> Spread:
    """Over the seeds of all parts; where a seed lacks a part the deviation is not known."""
    parts = list(_finite(values).values())
    if len({len(given) for given in parts}) == 1:
        return spread([sum(seed) for seed in zip(*parts, strict=True)])
    return Spread(sum(spread(given).mean for given in parts), None, 1)


def _ends(found: Spread, within: Interval | None) -> Interval:
    """Of a whisker."""
    low, high = found.mean - (found.deviation or 0), found.mean + (found.deviation or 0)
    return (low, high) if within is None else (max(low, within[0]), min(high, within[1]))


def _row(group: str, found: Mapping[str, Spread], whole: Spread | None, style: _Style) -> Markup:
    """The group's name, its value where it has one, and its bars."""
    alone = style.stacked or len(style.series) == 1
    thick = THICK if alone else THIN
    shapes = _stacked(group, found, style) if style.stacked else _beside(group, found, thick, style)
    shapes += _whisker(whole, GAP + thick / 2, style) if whole else []
    shapes += [_upright("zero", 0.0, style)] * (style.scale.low < 0)
    shapes += [_upright("limit", style.limit, style)] if style.limit is not None else []
    one = whole or (next(iter(found.values())) if alone else None)
    value = Markup("<span><b>{}</b></span>").format(_said(one, style.said)) if one and not _sums_to_one(style) else ""
    heard = "; ".join(_tip(group, name, one, style) for name, one in found.items())
    height = GAP + (1 if style.stacked else len(style.series)) * (thick + GAP)
    svg = Markup('<svg class="chart grouped" style="height:{}px" role="img" aria-label="{}">{}</svg>').format(
        height, heard, Markup("").join(shapes)
    )
    return Markup('<li><div class="name"><span>{}</span>{}</div>{}</li>').format(group, value, svg)


def _stacked(group: str, found: Mapping[str, Spread], style: _Style) -> list[Markup]:
    shapes, left = [], 0.0
    for name, one in found.items():
        tip = _tip(group, name, one, style)
        shapes.append(_bar(left, left + one.mean, GAP, THICK, style.series.index(name), tip, style))
        left += one.mean
    return shapes


def _beside(group: str, found: Mapping[str, Spread], thick: int, style: _Style) -> list[Markup]:
    """One beneath the other; a series that is not known leaves its place empty."""
    shapes: list[Markup] = []
    for name, one in found.items():
        at = style.series.index(name)
        top = GAP + at * (thick + GAP)
        shapes.append(_bar(0.0, one.mean, top, thick, at, _tip(group, name, one, style), style))
        shapes += _whisker(one, top + thick / 2, style)
    return shapes


def _sums_to_one(style: _Style) -> bool:
    """Shares of a whole: that they come to 100 % says nothing."""
    return style.stacked and style.said is words.percent


def _bar(start: float, end: float, top: int, thick: int, at: int, tip: str, style: _Style) -> Markup:
    first, last = sorted((style.scale(start), style.scale(end)))
    place = (f"{drawing.n(first)}%", top, f"{drawing.n(max(last - first, 0.2))}%", thick)
    shape = '<rect class="part s{}" x="{}" y="{}" width="{}" height="{}" data-tip="{}"/>'
    return Markup(shape).format(at % COLOURS, *place, tip)


def _whisker(found: Spread, y: float, style: _Style) -> list[Markup]:
    if not found.deviation:
        return []
    low, high = (f"{drawing.n(style.scale(end))}%" for end in _ends(found, style.within))
    return [Markup('<line class="whisker" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>').format(low, high, drawing.n(y))]


def _upright(kind: str, value: float, style: _Style) -> Markup:
    at = f"{drawing.n(style.scale(value))}%"
    return Markup('<line class="{0}" x1="{1}" x2="{1}" y1="0" y2="100%"/>').format(kind, at)


def _said(found: Spread, said: Said) -> str:
    return said(found.mean) + ("" if found.deviation is None else f" ± {said(found.deviation).lstrip('+')}")


def _tip(group: str, name: str, found: Spread, style: _Style) -> str:
    which = f"{group}, {name}" if len(style.series) > 1 else group
    return f"{which}: {_said(found, style.said)}"


def _legend(style: _Style, limit_said: str) -> tuple[tuple[str, Markup], ...]:
    box = Markup('<span class="key-box part s{}"></span>')
    several = len(style.series) > 1
    keys = [(name, box.format(at % COLOURS)) for at, name in enumerate(style.series)] if several else []
    return (*keys, *([(limit_said, Markup('<span class="limit-key"></span>'))] if limit_said else []))

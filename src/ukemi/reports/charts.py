"""Small charts as inline SVG. Colours are the page's (`--c0` …), so that they follow light and dark."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup
from torch import Tensor

from ukemi.measures.sensitivity import Axis, Landscape
from ukemi.reports import words
from ukemi.reports.pictures import RAMP, heat
from ukemi.reports.scales import Scale, limits, rounded, ticks

COLOURS = 6
WIDTH, HEIGHT = 256, 180
LEFT, RIGHT, TOP, BOTTOM = 44, 18, 8, 42
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_MARKS = (
    "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0",
    "M-2.8,-2.8h5.6v5.6h-5.6z",
    "M0,-3.6L3.6,2.8H-3.6z",
    "M0,-3.8L3.8,0L0,3.8L-3.8,0z",
)
_MOST_MARKS = 24
"""a line of more points than this is drawn without marks"""
_MOST_NAMES = 60
"""of more rows or columns of cells not each is named"""

Said = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """A line: its points in order; those that are not finite are left out. `style` picks colour, mark and dash."""

    name: str
    points: tuple[tuple[float, float], ...]
    style: int = 0

    def finite(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if isfinite(x) and isfinite(y)]


def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    x_said: Said = words.plain,
    y_said: Said = words.plain,
    x_ticks: Sequence[float] | None = None,
    y_limits: tuple[float, ...] = (),
) -> Markup:
    """A line chart. `y_limits` are values that its height shows in any case; `x_ticks` defaults to round values."""
    points = [point for one in series for point in one.finite()]
    x_low, x_high = limits((x for x, _ in points), tuple(x_ticks or ()))
    y_low, y_high = rounded(*limits((y for _, y in points), y_limits))
    x, y = Scale(x_low, x_high, LEFT, WIDTH - RIGHT), Scale(y_low, y_high, HEIGHT - BOTTOM, TOP)
    body = [_across(y, value, y_said(value)) for value in ticks(y_low, y_high)]
    body += [_below(x(value), x_said(value)) for value in x_ticks or ticks(x_low, x_high, whole=True)]
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "axis-name"))
    body += [_line(one, x, y) for one in series]
    return _svg(WIDTH, HEIGHT, title, _heard(series, x_said, y_said), body, "chart")


def histogram(values: Sequence[float], *, title: str, x_label: str, y_label: str, bins: int = 24) -> Markup:
    """How often values from 0 up fall into each of `bins` equal parts; `y_label` names what is counted."""
    low, high = 0.0, max([value for value in values if isfinite(value)], default=0.0) or 1.0
    counts = [0] * bins
    for value in values:
        if isfinite(value):
            counts[min(bins - 1, max(0, int(value / high * bins)))] += 1
    _, y_high = rounded(0.0, max(1.0, max(counts)))
    x, y = Scale(low, high, LEFT, WIDTH - RIGHT), Scale(0.0, y_high, HEIGHT - BOTTOM, TOP)
    body = [_across(y, value, words.plain(value)) for value in ticks(0.0, y_high, whole=True)]
    body += [_below(x(value), words.plain(value)) for value in ticks(low, high)]
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "axis-name"))
    wide = (WIDTH - RIGHT - LEFT) / bins
    for at, count in enumerate(counts):
        top = y(float(count))
        place = map(_n, (LEFT + at * wide + 0.5, top, wide - 1, HEIGHT - BOTTOM - top))
        body.append(Markup('<rect class="column" x="{}" y="{}" width="{}" height="{}"/>').format(*place))
    middle = sorted(values)[len(values) // 2] if values else 0.0
    heard = f"{words.plural(len(values), 'value')} of {y_label}, the middle one {words.plain(middle)}."
    return _svg(WIDTH, HEIGHT, title, heard, body, "chart")


def scatter(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_rules: Sequence[float] = (),
    y_rules: Sequence[float] = (),
) -> Markup:
    """Points in the unit square; `x_rules` and `y_rules` are limits, drawn as lines across it."""
    x, y = Scale(0.0, 1.0, LEFT, WIDTH - RIGHT), Scale(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    body = [_across(y, value, words.plain(value)) for value in ticks(0.0, 1.0)]
    body += [_below(x(value), words.plain(value)) for value in ticks(0.0, 1.0)]
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "axis-name"))
    body.append(_turned(10, (TOP + HEIGHT - BOTTOM) / 2, y_label))
    shape = Markup('<line class="limit" x1="{}" x2="{}" y1="{}" y2="{}"/>')
    body += [shape.format(_n(x(at)), _n(x(at)), TOP, HEIGHT - BOTTOM) for at in x_rules]
    body += [shape.format(LEFT, WIDTH - RIGHT, _n(y(at)), _n(y(at))) for at in y_rules]
    for one in series:
        mark = _MARKS[one.style % len(_MARKS)]
        drawn = Markup("").join(
            Markup('<path class="mark" d="{}" transform="translate({},{})scale(.6)"/>').format(
                mark, _n(x(at)), _n(y(up))
            )
            for at, up in one.finite()
        )
        body.append(Markup('<g class="s{} points">{}</g>').format(one.style % COLOURS, drawn))
    heard = "; ".join(f"{one.name}: {words.plural(len(one.finite()), 'point')}" for one in series) + "."
    return _svg(WIDTH, HEIGHT, title, heard, body, "chart scatter")


def swatch(style: int) -> Markup:
    """A short piece of a series' line, for a legend."""
    path = Markup('<path class="line" d="M1,7H29"{}/>').format(_dash(style))
    mark = Markup('<path class="mark" d="{}" transform="translate(15,7)"/>').format(_MARKS[style % len(_MARKS)])
    return Markup('<svg class="swatch s{}" width="30" height="14" aria-hidden="true">{}{}</svg>').format(
        style % COLOURS, path, mark
    )


def bar(accuracy: float, robust: float, interval: tuple[float, float], title: str) -> Markup:
    """Accuracy as a pale bar, robust accuracy as a strong one on it, and the latter's interval as a whisker.

    Places are shares of the width, so the bar fits wherever it stands.
    """
    low, high = (_share(value) for value in interval)
    return Markup(
        '<svg class="bar" width="100%" height="18" role="img" aria-label="{title}"><title>{title}</title>'
        '<rect class="track" width="100%" height="14" y="2" rx="3"/>'
        '<rect class="pale" width="{accuracy}" height="14" y="2" rx="3"/>'
        '<rect class="strong" width="{robust}" height="14" y="2" rx="3"/>'
        '<line class="whisker-edge" x1="{low}" x2="{high}" y1="9" y2="9"/>'
        '<line class="whisker" x1="{low}" x2="{high}" y1="9" y2="9"/></svg>'
    ).format(title=title, accuracy=_share(accuracy), robust=_share(robust), low=low, high=high)


def heat_map(ground: Landscape, most: float, *, title: str) -> Markup:
    """A landscape: darker is a higher loss (`most` and above is darkest); the misclassified region is outlined."""
    rows, columns = ground.losses.shape
    left, top, side = 62.0, 8.0, 208.0
    height = side if rows > 1 else 34.0
    right, bottom = left + side, top + height
    place = Markup('x="{}" y="{}" width="{}" height="{}"').format(*map(_n, (left, top, side, height)))
    body = [
        Markup('<image class="pixels" {} preserveAspectRatio="none" href="{}"/>').format(
            place, heat(ground.losses, most)
        ),
        _outline(ground.wrong.flip(0).tolist(), left, top, side / columns, height / rows),
    ]
    across = Scale(0, columns - 1, left + side / columns / 2, right - side / columns / 2)
    down = Scale(0, max(1, rows - 1), bottom - height / rows / 2, top + height / rows / 2)
    body += [_below(across(at), said, bottom) for at, said in _written(ground.across)]
    body.append(_text((left + right) / 2, bottom + 34, words.directions(ground.across.gene), "axis-name"))
    if ground.down:
        body += [_text(left - 6, down(at) + 4, said, "end") for at, said in _written(ground.down)]
        body.append(_turned(12, (top + bottom) / 2, words.directions(ground.down.gene)))
    body.append(_here(across(ground.across.rest), down(ground.down.rest if ground.down else 0)))
    wrong = float(ground.wrong.double().mean())
    heard = f"{words.percent(wrong, 0)} of the variants shown are misclassified."
    return _svg(right + 14, bottom + 42, title, heard, body, "chart heat")


def cells(
    values: Tensor, rows: Sequence[str], columns: Sequence[str], ends: tuple[float, float], *, title: str
) -> Markup:
    """A table `[R, C]` as colours from light at `ends[0]` to dark at `ends[1]`; of many names every n-th is written."""
    left, top, side = 6.4 * max(map(len, rows)) + 12, 4.0, max(14.0, min(28.0, 560 / len(columns)))
    width, height = side * len(columns), 16.0 * len(rows)
    low, high = ends
    place = Markup('x="{}" y="{}" width="{}" height="{}"').format(*map(_n, (left, top, width, height)))
    drawn = heat((values.double() - low).flip(0), high - low)
    body = [Markup('<image class="pixels" {} preserveAspectRatio="none" href="{}"/>').format(place, drawn)]
    named = range(0, len(rows), -(-len(rows) // _MOST_NAMES))
    body += [_text(left - 6, top + 16 * at + 12, rows[at], "end") for at in named]
    for at in range(0, len(columns), -(-len(columns) // _MOST_NAMES)):
        x, y = left + side * (at + 0.5) + 4, top + height + 12
        turned = Markup('<text class="end" transform="translate({},{}) rotate(-40)">{}</text>')
        body.append(turned.format(_n(x), _n(y), columns[at]))
    below = 14 + 4.6 * max(map(len, columns))
    heard = f"From {words.percent(float(values.min()))} to {words.percent(float(values.max()))}."
    chart = _svg(left + width + 8, top + height + below, title, heard, body, "chart cells")
    # as wide as its cells ask for: a small table does not grow to the page's width
    return Markup('<div style="width: {}px">{}</div>').format(_n(left + width + 8), chart)


def ramp() -> Markup:
    """The colours of heat maps from low to high, for a legend."""
    stops = Markup("").join(
        Markup('<rect x="{}%" width="{}%" height="12" fill="{}"/>').format(
            _n(100 * at / len(RAMP)), _n(100 / len(RAMP) + 0.5), colour
        )
        for at, colour in enumerate(RAMP)
    )
    return Markup('<svg class="ramp" width="120" height="12" aria-hidden="true">{}</svg>').format(stops)


def _svg(width: float, height: float, title: str, heard: str, body: Iterable[Markup], kind: str) -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title><desc>{}</desc>{}</svg>'
    ).format(kind, _n(width), _n(height), f"{title}. {heard}", title, heard, Markup("").join(body))


def _line(series: Series, x: Scale, y: Scale) -> Markup:
    places = [(x(at), y(value)) for at, value in series.finite()]
    if not places:
        return Markup("")
    path = "M" + "L".join(f"{_n(across)},{_n(down)}" for across, down in places)
    shape = _MARKS[series.style % len(_MARKS)]
    marked = places if len(places) <= _MOST_MARKS else places[-1:]
    marks = Markup("").join(
        Markup('<path class="mark" d="{}" transform="translate({},{})"/>').format(shape, _n(across), _n(down))
        for across, down in marked
    )
    return Markup('<g class="s{}"><path class="line" d="{}"{}/>{}</g>').format(
        series.style % COLOURS, path, _dash(series.style), marks
    )


def _dash(style: int) -> Markup:
    """Series beyond the number of colours differ by their dashes."""
    dash = _DASHES[style // COLOURS % len(_DASHES)]
    return Markup(' stroke-dasharray="{}"').format(dash) if dash else Markup("")


def _across(y: Scale, value: float, said: str) -> Markup:
    """A line across the chart with its value on the left."""
    at = _n(y(value))
    rule = Markup('<line class="rule" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, at, at)
    return rule + _text(LEFT - 6, y(value) + 4, said, "end")


def _below(at: float, said: str, y: float = HEIGHT - BOTTOM) -> Markup:
    tick = Markup('<line class="tick" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(_n(at), _n(y), _n(y + 4))
    return tick + _text(at, y + 17, said)


def _written(axis: Axis) -> list[tuple[int, str]]:
    """The places of an axis that are written out: its ends and the identity."""
    places = sorted({0, axis.rest, len(axis.values) - 1})
    return [(at, words.gene_value(axis.gene, axis.values[at])) for at in places]


def _here(x: float, y: float) -> Markup:
    """A ring around the unchanged image."""
    return Markup(
        '<circle class="outline-edge" cx="{0}" cy="{1}" r="5"/><circle class="outline" cx="{0}" cy="{1}" r="5"/>'
    ).format(_n(x), _n(y))


def _text(x: float, y: float, said: str, kind: str = "middle") -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, _n(x), _n(y), said)


def _turned(x: float, y: float, said: str) -> Markup:
    return Markup('<text class="axis-name" transform="translate({},{}) rotate(-90)">{}</text>').format(
        _n(x), _n(y), said
    )


def _outline(wrong: list[list[bool]], left: float, top: float, width: float, height: float) -> Markup:
    """The border between misclassified cells and others (the map's edge is none), drawn twice to show on any colour."""
    parts = []
    for row, cells in enumerate(wrong):
        for column, cell in enumerate(cells):
            x, y = left + column * width, top + row * height
            if column and cells[column - 1] != cell:
                parts.append(f"M{_n(x)},{_n(y)}v{_n(height)}")
            if row and wrong[row - 1][column] != cell:
                parts.append(f"M{_n(x)},{_n(y)}h{_n(width)}")
    path = "".join(parts)
    return (
        Markup('<path class="outline-edge" d="{0}"/><path class="outline" d="{0}"/>').format(path)
        if path
        else Markup("")
    )


def _heard(series: Sequence[Series], x_said: Said, y_said: Said) -> str:
    """What a screen reader says: every line by its first, highest and last point."""
    said = []
    for one in series:
        points = one.finite()
        if points:
            (x0, y0), (x1, y1) = points[0], points[-1]
            peak = max(points, key=lambda point: point[1])
            said.append(
                f"{one.name}: {y_said(y0)} at {x_said(x0)}, {y_said(y1)} at {x_said(x1)},"
                f" at most {y_said(peak[1])} at {x_said(peak[0])}"
            )
    return "; ".join(said) + "." if said else "No points."


def _share(share: float) -> str:
    return f"{_n(100 * share)}%"


def _n(value: float) -> str:
    """A coordinate to a hundredth of a unit."""
    return f"{value:.2f}".rstrip("0").rstrip(".")

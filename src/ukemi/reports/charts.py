"""Small charts as inline SVG. Colours are the page's (`--c0` …), so that they follow light and dark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log10

from markupsafe import Markup

from ukemi.reports import drawing, words
from ukemi.reports.drawing import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from ukemi.reports.scales import Scale, limits, rounded, ticks

COLOURS = 6
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_MARKS = (
    "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0",
    "M-2.8,-2.8h5.6v5.6h-5.6z",
    "M0,-3.6L3.6,2.8H-3.6z",
    "M0,-3.8L3.8,0L0,3.8L-3.8,0z",
)
DIGIT, GAP = 8.0, 6.0
"""how wide a digit of an axis may be, and how far from the axis it ends"""
CROWDED = 0.95
"""from which limit on the shares beside it crowd at 1"""
NINES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)
_MOST_MARKS = 24
"""a line of more points than this is drawn without marks"""

Said = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """A line: its points in order; those that are not finite are left out. `style` picks colour, mark and dash."""

    name: str
    points: tuple[tuple[float, float], ...]
    style: int = 0
    tips: tuple[str, ...] = ()
    """what is said of each point that is pointed at; empty: its name and values"""
    spreads: tuple[float, ...] = ()
    """a whisker up and down from each point; empty: none"""

    def finite(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if isfinite(x) and isfinite(y)]

    def said(self, usual: Callable[[float, float], str]) -> list[str]:
        """The tips of the finite points."""
        tips = self.tips or tuple(f"{self.name}, {usual(x, y)}" for x, y in self.points)
        return [tip for tip, point in zip(tips, self.points, strict=True) if all(map(isfinite, point))]

    def whiskers(self) -> list[tuple[float, float, float]]:
        """Place, lower and upper end."""
        known = zip(self.points, self.spreads, strict=True) if self.spreads else ()
        return [
            (x, y - wide, y + wide)
            for (x, y), wide in known
            if all(map(isfinite, (x, y - wide, y + wide))) and wide > 0
        ]


def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    x_said: Said = words.plain,
    y_said: Said = words.plain,
    y_tip: Said | None = None,
    x_ticks: Sequence[float] | None = None,
    y_limits: tuple[float, ...] = (),
) -> Markup:
    """A line chart. `y_limits` are values that its height shows in any case; `x_ticks` defaults to round values;
    `y_said` says a value beside the axis, `y_tip` one that is pointed at."""
    points = [point for one in series for point in one.finite()]
    x_low, x_high = limits((x for x, _ in points), tuple(x_ticks or ()))
    ends = [end for one in series for _, *both in one.whiskers() for end in both]
    y_low, y_high = rounded(*limits((*(y for _, y in points), *ends), y_limits))
    beside = _read_apart(y_low, y_high, y_said)
    left = max(LEFT, DIGIT * max(len(y_said(value)) for value in beside) + GAP)
    x, y = Scale(x_low, x_high, left, WIDTH - RIGHT), Scale(y_low, y_high, HEIGHT - BOTTOM, TOP)
    body = [_across(x, y, value, y_said(value)) for value in beside]
    body += [drawing.below(x(value), x_said(value)) for value in x_ticks or ticks(x_low, x_high, whole=True)]
    body.append(drawing.text((x.start + x.end) / 2, HEIGHT - 6, x_label, "axis-name"))
    what = "" if "→" in x_label else f"{x_label} "
    body += [_line(one, x, y, lambda at, up: f"{what}{x_said(at)}: {(y_tip or y_said)(up)}") for one in series]
    return drawing.svg(WIDTH, HEIGHT, title, _heard(series, x_said, y_said), body, "chart")


def histogram(values: Sequence[float], *, title: str, x_label: str, y_label: str, bins: int = 24) -> Markup:
    """How often values from 0 up fall into each of `bins` equal parts; `y_label` names what is counted."""
    low, high = 0.0, max([value for value in values if isfinite(value)], default=0.0) or 1.0
    counts = [0] * bins
    for value in values:
        if isfinite(value):
            counts[min(bins - 1, max(0, int(value / high * bins)))] += 1
    _, y_high = rounded(0.0, max(1.0, max(counts)))
    x, y = Scale(low, high, LEFT, WIDTH - RIGHT), Scale(0.0, y_high, HEIGHT - BOTTOM, TOP)
    body = [_across(x, y, value, words.plain(value)) for value in ticks(0.0, y_high, whole=True)]
    body += [drawing.below(x(value), words.plain(value)) for value in ticks(low, high)]
    body.append(drawing.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "axis-name"))
    wide = (WIDTH - RIGHT - LEFT) / bins
    for at, count in enumerate(counts):
        top = y(float(count))
        place = map(drawing.n, (LEFT + at * wide + 0.5, top, wide - 1, HEIGHT - BOTTOM - top))
        ends = " to ".join(words.plain(high * end / bins) for end in (at, at + 1))
        tip = f"{ends}: {words.count(count)} {y_label}"
        column = Markup('<rect class="column" x="{}" y="{}" width="{}" height="{}" data-tip="{}"/>')
        body.append(column.format(*place, tip))
    middle = sorted(values)[len(values) // 2] if values else 0.0
    heard = f"{words.plural(len(values), 'value')} of {y_label}, the middle one {words.plain(middle)}."
    return drawing.svg(WIDTH, HEIGHT, title, heard, body, "chart")


def scatter(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_rules: Sequence[float] = (),
    y_rules: Sequence[float] = (),
) -> Markup:
    """Points in the unit square; `x_rules` and `y_rules` are limits, drawn as lines across it. Where one of `x_rules`
    lies near 1, every further nine gets as much room."""
    whole, y = Scale(0.0, 1.0, LEFT, WIDTH - RIGHT), Scale(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    crowded = any(at > CROWDED for at in x_rules)
    x = (lambda at: whole(_nines(at))) if crowded else whole
    body = [_across(whole, y, value, words.plain(value)) for value in ticks(0.0, 1.0)]
    body += [drawing.below(x(value), words.plain(value, 4)) for value in (NINES if crowded else ticks(0.0, 1.0))]
    body.append(drawing.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "axis-name"))
    body.append(drawing.turned(10, (TOP + HEIGHT - BOTTOM) / 2, y_label))
    shape = Markup('<line class="limit" x1="{}" x2="{}" y1="{}" y2="{}"/>')
    body += [shape.format(drawing.n(x(at)), drawing.n(x(at)), TOP, HEIGHT - BOTTOM) for at in x_rules]
    body += [shape.format(LEFT, WIDTH - RIGHT, drawing.n(y(at)), drawing.n(y(at))) for at in y_rules]
    for one in series:
        mark = _MARKS[one.style % len(_MARKS)]
        tips = one.said(lambda at, up: f"{x_label} {words.plain(at, 4)}, {y_label} {words.plain(up)}")
        drawn = Markup("").join(
            Markup('<path class="mark" d="{}" transform="translate({},{})scale(.6)" data-tip="{}"/>').format(
                mark, drawing.n(x(at)), drawing.n(y(up)), tip
            )
            for (at, up), tip in zip(one.finite(), tips, strict=True)
        )
        body.append(Markup('<g class="s{} points">{}</g>').format(one.style % COLOURS, drawn))
    heard = "; ".join(f"{one.name}: {words.plural(len(one.finite()), 'point')}" for one in series) + "."
    return drawing.svg(WIDTH, HEIGHT, title, heard, body, "chart scatter")


def _nines(share: float) -> float:
    """0 at 0, a quarter at 0.9, half at 0.99, …; from the last of `NINES` on 1."""
    return log10(max(1 - share, 1 - NINES[-1])) / log10(1 - NINES[-1])


def swatch(style: int) -> Markup:
    """A short piece of a series' line, for a legend."""
    return _key(style, 30, Markup('<path class="line" d="M1,7H29"{}/>').format(_dash(style)))


def dot(style: int) -> Markup:
    """A series' mark alone, for the legend of a scatter."""
    return _key(style, 14)


def _key(style: int, width: int, line: Markup | str = "") -> Markup:
    mark = Markup('<path class="mark" d="{}" transform="translate({},7)"/>').format(
        _MARKS[style % len(_MARKS)], width // 2
    )
    return Markup('<svg class="swatch s{}" width="{}" height="14" aria-hidden="true">{}{}</svg>').format(
        style % COLOURS, width, line, mark
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


def _line(series: Series, x: Scale, y: Scale, usual: Callable[[float, float], str]) -> Markup:
    places = [(x(at), y(value)) for at, value in series.finite()]
    if not places:
        return Markup("")
    path = "M" + "L".join(f"{drawing.n(across)},{drawing.n(down)}" for across, down in places)
    plain = 0 if len(places) <= _MOST_MARKS else len(places) - 1  # of a long line the last point alone is marked
    shape = Markup('<path class="mark" d="{}" transform="translate({},{})" data-tip="{}"/>')
    spot = Markup('<circle class="spot" cx="{}" cy="{}" r="3" data-tip="{}"/>')
    marks = Markup("").join(
        spot.format(drawing.n(across), drawing.n(down), tip)
        if at < plain
        else shape.format(_MARKS[series.style % len(_MARKS)], drawing.n(across), drawing.n(down), tip)
        for at, ((across, down), tip) in enumerate(zip(places, series.said(usual), strict=True))
    )
    upright = Markup('<line class="deviation" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>')
    whiskers = Markup("").join(
        upright.format(*map(drawing.n, (x(at), y(low), y(high)))) for at, low, high in series.whiskers()
    )
    return Markup('<g class="s{}">{}<path class="line" d="{}"{}/>{}</g>').format(
        series.style % COLOURS, whiskers, path, _dash(series.style), marks
    )


def _dash(style: int) -> Markup:
    """Series beyond the number of colours differ by their dashes."""
    dash = _DASHES[style // COLOURS % len(_DASHES)]
    return Markup(' stroke-dasharray="{}"').format(dash) if dash else Markup("")


def _read_apart(low: float, high: float, said: Said) -> list[float]:
    """Ticks whose words differ: fewer than usual where these would read alike."""
    for about in (4, 2, 1):
        values = ticks(low, high, about)
        if len(set(map(said, values))) == len(values):
            return values
    return values[:1]


def _across(x: Scale, y: Scale, value: float, said: str) -> Markup:
    """A line across the chart with its value on the left."""
    shape = Markup('<line class="rule" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>')
    rule = shape.format(*map(drawing.n, (x.start, x.end, y(value))))
    return rule + drawing.text(x.start - GAP, y(value) + 4, said, "end")


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
    return f"{drawing.n(100 * share)}%"

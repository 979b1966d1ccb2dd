"""Tables of values as colours: landscapes, overlaps, where a search went."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from torch import Tensor

from ukemi.measures.sensitivity import Axis, Landscape
from ukemi.reports import drawing, words
from ukemi.reports.pictures import RAMP, heat
from ukemi.reports.scales import Scale

_MOST_NAMES = 60
"""of more rows or columns of cells not each is named"""


@dataclass(frozen=True)
class Hover:
    """What is said of a cell that is pointed at: its row, its column and its value; one that ends in `!` is marked."""

    columns: Sequence[str]
    rows: Sequence[str]
    """from the top"""
    values: Sequence[Sequence[str]]
    unit: str = ""
    marked: str = ""

    def json(self) -> str:
        fields = [self.columns, self.rows, self.values, self.unit, self.marked]
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def heat_map(ground: Landscape, most: float, *, title: str) -> Markup:
    """A landscape: darker is a higher loss (`most` and above is darkest); the misclassified region is outlined."""
    rows, columns = ground.losses.shape
    left, top, side = 62.0, 8.0, 208.0
    height = side if rows > 1 else 34.0
    right, bottom = left + side, top + height
    hover = Hover(
        [words.gene_value(ground.across.gene, value) for value in ground.across.values],
        [words.gene_value(ground.down.gene, value) for value in reversed(ground.down.values)] if ground.down else [""],
        [
            [f"{loss:.2f}" + "!" * wrong for loss, wrong in zip(losses, marked, strict=True)]
            for losses, marked in zip(ground.losses.flip(0).tolist(), ground.wrong.flip(0).tolist(), strict=True)
        ],
        "loss ",
        ", misclassified",
    )
    body = [
        _image((left, top, side, height), heat(ground.losses, most), hover),
        _outline(ground.wrong.flip(0).tolist(), left, top, side / columns, height / rows),
    ]
    across = Scale(0, columns - 1, left + side / columns / 2, right - side / columns / 2)
    down = Scale(0, max(1, rows - 1), bottom - height / rows / 2, top + height / rows / 2)
    body += [drawing.below(across(at), said, bottom) for at, said in _written(ground.across)]
    body.append(drawing.text((left + right) / 2, bottom + 34, words.directions(ground.across.gene), "axis-name"))
    if ground.down:
        body += [drawing.text(left - 6, down(at) + 4, said, "end") for at, said in _written(ground.down)]
        body.append(drawing.turned(12, (top + bottom) / 2, words.directions(ground.down.gene)))
    body.append(_here(across(ground.across.rest), down(ground.down.rest if ground.down else 0)))
    wrong = float(ground.wrong.double().mean())
    heard = f"{words.percent(wrong, 0)} of the variants shown are misclassified."
    return drawing.svg(right + 14, bottom + 42, title, heard, body, "chart heat")


def over_epochs(
    values_BE: Tensor,
    columns: Sequence[str],
    rows: Sequence[str],
    ticks: Sequence[tuple[float, str]],
    most: float,
    *,
    title: str,
) -> Markup:
    """How often a gene's values (`rows`, the first at the bottom; `ticks` lie in 0..1 along them) were trained on in
    every epoch: 1 is as often as by chance, `most` and above is darkest."""
    left, top, side, height = 62.0, 8.0, 208.0, 130.0
    said = [[f"{value:.2f}" for value in row] for row in values_BE.flip(0).tolist()]
    hover = Hover([f"epoch {name}" for name in columns], list(reversed(rows)), said, "×", "")
    body = [_image((left, top, side, height), heat(values_BE, most), hover)]
    wide = side / len(columns)
    named = sorted({0, len(columns) - 1})
    body += [drawing.below(left + wide * (at + 0.5), columns[at], top + height) for at in named]
    body.append(drawing.text(left + side / 2, top + height + 34, "epoch", "axis-name"))
    body += [drawing.text(left - 6, top + height * (1 - at) + 4, said, "end") for at, said in ticks]
    peak = float(values_BE.max()) if values_BE.numel() else 0.0
    heard = f"At most {words.plain(peak)} times as often as by chance."
    return drawing.svg(left + side + 14, top + height + 42, title, heard, body, "chart heat")


def cells(
    values: Tensor, rows: Sequence[str], columns: Sequence[str], ends: tuple[float, float], *, title: str
) -> Markup:
    """A table `[R, C]` as colours from light at `ends[0]` to dark at `ends[1]`; of many names every n-th is written."""
    left, top, side = 6.4 * max(map(len, rows)) + 12, 4.0, max(14.0, min(28.0, 560 / len(columns)))
    width, height = side * len(columns), 16.0 * len(rows)
    low, high = ends
    drawn = heat((values.double() - low).flip(0), high - low)
    hover = Hover(columns, rows, [[words.percent(value) for value in row] for row in values.tolist()])
    body = [_image((left, top, width, height), drawn, hover)]
    named = range(0, len(rows), -(-len(rows) // _MOST_NAMES))
    body += [drawing.text(left - 6, top + 16 * at + 12, rows[at], "end") for at in named]
    for at in range(0, len(columns), -(-len(columns) // _MOST_NAMES)):
        x, y = left + side * (at + 0.5) + 4, top + height + 12
        turned = Markup('<text class="end" transform="translate({},{}) rotate(-40)">{}</text>')
        body.append(turned.format(drawing.n(x), drawing.n(y), columns[at]))
    below = 14 + 4.6 * max(map(len, columns))
    heard = f"From {words.percent(float(values.min()))} to {words.percent(float(values.max()))}."
    chart = drawing.svg(left + width + 8, top + height + below, title, heard, body, "chart cells")
    # as wide as its cells ask for: a small table does not grow to the page's width
    return Markup('<div style="width: {}px">{}</div>').format(drawing.n(left + width + 8), chart)


def ramp() -> Markup:
    """The colours of heat maps from low to high, for a legend."""
    stops = Markup("").join(
        Markup('<rect x="{}%" width="{}%" height="12" fill="{}"/>').format(
            drawing.n(100 * at / len(RAMP)), drawing.n(100 / len(RAMP) + 0.5), colour
        )
        for at, colour in enumerate(RAMP)
    )
    return Markup('<svg class="ramp" width="120" height="12" aria-hidden="true">{}</svg>').format(stops)


def _image(place: tuple[float, float, float, float], href: str, hover: Hover) -> Markup:
    x, y, width, height = map(drawing.n, place)
    return Markup(
        '<image class="pixels" x="{}" y="{}" width="{}" height="{}" preserveAspectRatio="none" href="{}"'
        ' data-cells="{}"/>'
    ).format(x, y, width, height, href, hover.json())


def _written(axis: Axis) -> list[tuple[int, str]]:
    """The places of an axis that are written out: its ends and the identity."""
    places = sorted({0, axis.rest, len(axis.values) - 1})
    return [(at, words.gene_value(axis.gene, axis.values[at])) for at in places]


def _here(x: float, y: float) -> Markup:
    """A ring around the unchanged image."""
    return Markup(
        '<circle class="outline-edge" cx="{0}" cy="{1}" r="5"/><circle class="outline" cx="{0}" cy="{1}" r="5"/>'
    ).format(drawing.n(x), drawing.n(y))


def _outline(wrong: list[list[bool]], left: float, top: float, width: float, height: float) -> Markup:
    """The border between misclassified cells and others (the map's edge is none), drawn twice to show on any colour."""
    parts = []
    for row, cells in enumerate(wrong):
        for column, cell in enumerate(cells):
            x, y = left + column * width, top + row * height
            if column and cells[column - 1] != cell:
                parts.append(f"M{drawing.n(x)},{drawing.n(y)}v{drawing.n(height)}")
            if row and wrong[row - 1][column] != cell:
                parts.append(f"M{drawing.n(x)},{drawing.n(y)}h{drawing.n(width)}")
    path = "".join(parts)
    return (
        Markup('<path class="outline-edge" d="{0}"/><path class="outline" d="{0}"/>').format(path)
        if path
        else Markup("")
    )

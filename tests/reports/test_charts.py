"""Charts are well-formed and finite for any values."""

import re
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ukemi.measures.sensitivity import Axis, Landscape
from ukemi.reports.charts import Series, bar, dot, lines, scatter, swatch
from ukemi.reports.curves import progress
from ukemi.reports.drawing import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from ukemi.reports.maps import heat_map, ramp
from ukemi.reports.scales import Scale, limits, rounded, ticks
from ukemi.reports.words import percent

finite = st.floats(allow_nan=False, allow_infinity=False)
anything = st.floats()
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def _coordinates(svg: str) -> list[float]:
    """Every number in a place, a path or a move; the whole must be XML and free of nan, inf and exponents."""
    found: list[float] = []
    for element in ElementTree.fromstring(svg).iter():
        for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "d", "transform", "viewBox"):
            text = element.get(name, "")
            assert not re.search(r"nan|inf|e[+-]?\d", text), text
            if name not in ("d", "transform") or element.get("class") != "mark":
                found += map(float, NUMBER.findall(text))
    return found


@given(st.lists(st.lists(st.tuples(finite, finite), max_size=6), max_size=4))
def test_any_finite_series_is_drawn_inside_the_chart(points: list[list[tuple[float, float]]]) -> None:
    series = [Series(f"line {at} <&>", tuple(some), at) for at, some in enumerate(points)]
    svg = lines(series, title="a <title>", x_label="x & y")
    root = ElementTree.fromstring(svg)
    for path in root.iter("path"):
        if path.get("class") == "line":
            numbers = [float(number) for number in NUMBER.findall(path.get("d", ""))]
            assert all(0 <= x <= WIDTH for x in numbers[::2])
            assert all(0 <= y <= HEIGHT for y in numbers[1::2])
    _coordinates(svg)
    assert len(list(root.iter("path"))) >= sum(bool(some) for some in points)


@given(st.lists(st.tuples(anything, anything), max_size=6))
def test_what_is_not_finite_is_left_out(points: list[tuple[float, float]]) -> None:
    svg = lines([Series("line", tuple(points))], title="t", x_label="x")
    _coordinates(svg)
    assert svg.count('class="mark"') <= len(points)


@given(
    st.lists(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=6), max_size=4),
    st.sampled_from([(0.3, 0.7), (0.3, 0.995)]),
)
def test_a_scatter_has_every_point_inside_and_its_limits(
    points: list[list[tuple[float, float]]], rules: tuple[float, float]
) -> None:
    series = [Series(f"<{at}>", tuple(some), at) for at, some in enumerate(points)]
    svg = scatter(series, title="a <title>", x_label="x", y_label="y", x_rules=rules, y_rules=(0.5,))
    root = ElementTree.fromstring(svg)
    marks = [element for element in root.iter("path") if element.get("class") == "mark"]
    assert len(marks) == sum(map(len, points))
    for mark in marks:
        x, y = map(float, re.findall(r"[\d.]+", mark.get("transform", ""))[:2])
        assert LEFT <= x <= WIDTH - RIGHT and TOP <= y <= HEIGHT - BOTTOM
    limits = [element for element in root.iter("line") if element.get("class") == "limit"]
    assert (
        len(limits) == 3 and limits[0].get("x1") == limits[0].get("x2") and limits[2].get("y1") == limits[2].get("y2")
    )
    _coordinates(svg)


def test_shares_that_crowd_at_1_get_room_nine_by_nine() -> None:
    shares = (0.0, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1.0)
    svg = scatter(
        [Series("s", tuple((at, 0.5) for at in shares))], title="t", x_label="x", y_label="y", x_rules=(0.99,)
    )
    places = [float(x) for x in re.findall(r"translate\(([\d.]+),[\d.]+\)scale", svg)]
    wide = (WIDTH - RIGHT - LEFT) / 4
    assert places == pytest.approx([LEFT + wide * nines for nines in (0, 1, 2, 3, 4, 4, 4)], abs=0.1)
    limit = next(one for one in ElementTree.fromstring(svg).iter("line") if one.get("class") == "limit")
    assert float(limit.get("x1", "")) == pytest.approx(LEFT + 2 * wide, abs=0.1)
    assert all(f">{said}</text>" in svg for said in ("0", "0.5", "0.9", "0.99", "0.999", "0.9999"))
    assert "x 0.9999, y 0.5" in svg


def _beside(svg: str) -> list[tuple[float, str]]:
    """What is written left of the axis, and where it ends."""
    texts = [one for one in ElementTree.fromstring(svg).iter("text") if one.get("class") == "end"]
    return [(float(one.get("x", "")), one.text or "") for one in texts]


@pytest.mark.parametrize("shares", [(0.0, 0.0), (0.4, 0.4), (0.404, 0.4041), (0.31, 0.33), (0.0, 1.0)])
def test_values_beside_an_axis_read_differently(shares: tuple[float, float]) -> None:
    svg = lines(
        [Series("line", tuple(enumerate(shares)))], title="t", x_label="x", y_said=lambda share: percent(share, 0)
    )
    said = [text for _, text in _beside(svg)]
    assert len(set(said)) == len(said) >= 1 and not any("-" in text for text in said), said


@pytest.mark.parametrize("highest", [1.0, 0.1, 0.001, 0.00075, 4e-7])
def test_values_beside_an_axis_stay_inside_the_chart(highest: float) -> None:
    svg = lines([Series("rate", ((1.0, 0.0), (2.0, highest)))], title="t", x_label="x")
    assert all(8 * len(text) <= at for at, text in _beside(svg)), _beside(svg)  # of a wide font


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e-300, 1e300, 1.7e308, 5e-324])
def test_a_constant_and_a_single_point_are_drawn(value: float) -> None:
    for points in (((value, value),), ((1.0, value), (2.0, value))):
        svg = lines([Series("line", points)], title="t", x_label="x")
        _coordinates(svg)
        assert svg.count('class="mark"') == len(points)


@given(finite, finite)
def test_limits_hold_the_values_and_ticks_lie_inside(a: float, b: float) -> None:
    low, high = limits([a, b])
    assert low <= min(a, b) <= max(a, b) <= high
    assert low < high
    wide = rounded(low, high)
    slack = 1e-8 * (high / 2 - low / 2)
    assert wide[0] <= low + slack
    assert wide[1] >= high - slack
    marks = ticks(*wide)
    assert len(marks) <= 8
    assert marks == sorted(set(marks))
    scale = Scale(*wide, 0, 100)
    assert all(0 <= scale(mark) <= 100 for mark in marks)
    assert scale(wide[0]) == 0
    assert scale(wide[1]) == 100


def test_ticks_are_round() -> None:
    assert ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1]
    assert ticks(1, 10, whole=True) == [3, 6, 9]
    assert ticks(1, 2, whole=True) == [1, 2]
    assert rounded(0, 0.95) == (0, 1)


def test_points_lie_where_they_should() -> None:
    svg = lines([Series("line", ((0.0, 0.0), (1.0, 0.5), (2.0, 1.0)))], title="t", x_label="x", y_limits=(0.0, 1.0))
    path = next(path for path in ElementTree.fromstring(svg).iter("path") if path.get("class") == "line")
    (x0, y0), (x1, y1), (x2, y2) = re.findall(r"([\d.]+),([\d.]+)", path.get("d", ""))
    assert float(x1) == pytest.approx((float(x0) + float(x2)) / 2)
    assert float(y1) == pytest.approx((float(y0) + float(y2)) / 2)
    assert float(y0) > float(y2)


@given(st.floats(0, 1), st.floats(0, 1))
def test_bars_are_shares_of_the_width(accuracy: float, robust: float) -> None:
    svg = bar(accuracy, robust, (robust / 2, (1 + robust) / 2), '"<title>&')
    widths = {rect.get("class"): rect.get("width", "") for rect in ElementTree.fromstring(svg).iter("rect")}
    assert float(widths["pale"].rstrip("%")) == pytest.approx(100 * accuracy, abs=0.01)
    assert float(widths["strong"].rstrip("%")) == pytest.approx(100 * robust, abs=0.01)
    assert all(0 <= number <= 100 for number in _coordinates(svg))


def _ground(wrong: list[list[int]], *, one_row: bool = False) -> Landscape:
    cells = torch.tensor(wrong, dtype=torch.bool)
    values = tuple(float(at) for at in range(cells.shape[1]))
    down = None if one_row else Axis("rotation", tuple(float(at) for at in range(len(cells))), 0)
    losses = cells.float() * 3
    losses[0, 0] = torch.nan
    return Landscape(down, Axis("translate_x", values, 1), losses, cells)


def test_the_outline_is_the_border_of_the_misclassified_region() -> None:
    svg = heat_map(_ground([[0, 0, 0], [0, 1, 0], [0, 0, 0]]), 4.6, title="t")
    _coordinates(svg)
    path = next(path for path in ElementTree.fromstring(svg).iter("path") if path.get("class") == "outline")
    assert len(re.findall(r"[vh]", path.get("d", ""))) == 4
    assert "outline" not in [
        path.get("class")
        for path in ElementTree.fromstring(heat_map(_ground([[0, 0]] * 2), 4.6, title="t")).iter("path")
    ]


def test_a_landscape_of_one_row_is_drawn() -> None:
    svg = heat_map(_ground([[0, 1, 1]], one_row=True), 4.6, title="t")
    _coordinates(svg)
    assert "<svg" in svg


def test_series_beyond_the_colours_differ() -> None:
    looks = {str(swatch(style)) for style in range(20)}
    assert len(looks) == 20
    for svg in (*looks, ramp()):
        ElementTree.fromstring(svg)


def test_what_skipping_saved_is_said() -> None:
    line = {"epoch": 3, "scoring_forwards": 750, "scoring_forwards_saved": 250, "scoring_seconds_saved": 12.0}
    said = " ".join(progress([line])).replace("\u202f", " ")
    assert "Skipping robust samples saved 25 % of the scoring passes, about 12.0 s." in said
    assert "Skipping" not in " ".join(progress([{"epoch": 3, "scoring_forwards": 750}]))


def test_the_key_of_a_scatter_is_the_mark_that_stands_in_it() -> None:
    for style in range(12):
        svg = scatter([Series("s", ((0.5, 0.5),), style)], title="t", x_label="x", y_label="y")
        marks = [re.findall(r'class="mark" d="([^"]+)"', one) for one in (svg, dot(style), swatch(style))]
        assert marks[0] == marks[1] == marks[2] and len(marks[0]) == 1
        assert f'class="s{style % 6} points"' in svg and f"swatch s{style % 6}" in dot(style)
        assert 'class="line"' in swatch(style) and 'class="line"' not in dot(style)

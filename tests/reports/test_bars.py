"""Bars against values whose places are known."""

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from report_samples import HOSTILE

from ukemi.reports import words
from ukemi.reports.bars import bars

SHARES = st.lists(st.none() | st.floats(0, 1), max_size=4)
THIN = words.THIN


def drawn(*given: object, **told: object) -> list[ElementTree.Element]:
    """The drawings of all rows."""
    found = bars(*given, title="t", **told)  # type: ignore[arg-type]
    assert found is not None
    return list(ElementTree.fromstring(f"<div>{found.svg}</div>").iter("svg"))


def parts(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [one for one in svg.iter() if kind in one.get("class", "").split()]


def test_a_bar_is_as_long_as_its_mean_and_its_whisker_as_the_deviation() -> None:
    (svg,) = drawn({"net": {"a": [0.2, 0.4]}}, at_least=(0.0, 1.0))
    (bar,), (whisker,) = parts(svg, "part"), parts(svg, "whisker")
    assert (bar.get("x"), bar.get("width")) == ("0%", "30%")
    assert bar.get("data-tip") == f"net: 30.0{THIN}% ± 14.1{THIN}%"
    assert (whisker.get("x1"), whisker.get("x2")) == ("15.86%", "44.14%")


def test_whiskers_of_shares_end_where_shares_end() -> None:
    """0.7 % ± 1.2 % is no reason for an axis that begins at -50 %."""
    found = bars({"few": {"a": [0.0, 0.02, 0.0]}, "most": {"a": [1.0, 0.98, 1.0]}}, title="t", at_least=(0.0, 1.0))
    assert found is not None and f"<span>0.0{THIN}%</span><span>100.0{THIN}%</span>" in found.svg
    few, most = drawn({"few": {"a": [0.0, 0.02, 0.0]}, "most": {"a": [1.0, 0.98, 1.0]}}, at_least=(0.0, 1.0))
    assert parts(few, "whisker")[0].get("x1") == "0%" and parts(most, "whisker")[0].get("x2") == "100%"
    (gain,) = drawn({"gain": {"a": [0.0, 0.02, 0.0]}})
    assert parts(gain, "zero")  # a difference may well lie below 0


def test_values_below_zero_lie_left_of_it() -> None:
    down, up = drawn({"x": {"a": [-0.5]}, "y": {"a": [1.5]}})
    assert [parts(down, "part")[0].get(name) for name in ("x", "width")] == ["0%", "25%"]
    assert [parts(up, "part")[0].get(name) for name in ("x", "width")] == ["25%", "75%"]
    assert parts(down, "zero")[0].get("x1") == "25%" and not parts(down, "whisker")


def test_stacked_bars_lie_end_to_end_with_the_deviation_of_their_sum() -> None:
    (svg,) = drawn({"net": {"a": [1.0, 3.0], "b": [5.0, 3.0]}}, said=words.plain, at_least=(0.0, 10.0), stacked=True)
    assert [(one.get("x"), one.get("width")) for one in parts(svg, "part")] == [("0%", "20%"), ("20%", "40%")]
    assert not parts(svg, "whisker")  # both seeds come to 6
    (svg,) = drawn({"net": {"a": [1.0, 3.0], "b": [4.0]}}, said=words.plain, at_least=(0.0, 10.0), stacked=True)
    assert [one.get("width") for one in parts(svg, "part")] == ["20%", "40%"] and not parts(svg, "whisker")


def test_a_limit_crosses_every_row_and_is_named() -> None:
    groups = {"x": {"a": [0.5], "b": [0.9]}, "y": {"b": [0.1]}}
    found = bars(groups, title="t", at_least=(0.0, 1.0), limit=0.8, limit_said="the aim")
    assert found is not None and [name for name, _ in found.legend] == ["a", "b", "the aim"]
    for svg in drawn(groups, at_least=(0.0, 1.0), limit=0.8):
        assert [one.get("x1") for one in parts(svg, "limit")] == ["80%"]


@given(
    st.dictionaries(st.sampled_from("xyz"), st.dictionaries(st.sampled_from("abc"), SHARES), max_size=3), st.booleans()
)
def test_every_known_value_has_one_mark_inside_the_chart(
    groups: dict[str, dict[str, list[float | None]]], stacked: bool
) -> None:
    known = [values for series in groups.values() for values in series.values() if any(v is not None for v in values)]
    found = bars(groups, title="t", stacked=stacked)
    assert (found is None) == (not known)
    if found is not None:
        assert str(found.svg).count("data-tip=") == len(known)
        assert all(0 <= float(at) <= 100.2 for at in re.findall(r'"(-?[\d.]+)%"', str(found.svg)))
        assert not re.search(r"nan|inf", str(found.svg))


def test_names_are_text() -> None:
    found = bars({name: {other: [0.5] for other in HOSTILE} for name in HOSTILE}, title=HOSTILE[0])
    assert found is not None and "<script" not in found.svg and "<b>" not in re.sub(r"<b>[\d.]", "", str(found.svg))
    assert len(list(ElementTree.fromstring(f"<div>{found.svg}</div>").iter("li"))) == 3

"""The table of patterns: every input is in one of its columns."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ukemi.data import labelled
from ukemi.measures.uncertainty import Profile, Profiled
from ukemi.reports import UncertaintyReport, charts, words, write_uncertainty
from ukemi.reports.uncertainty import (
    _diagram,
    _galleries,
    _glance,
    _scatters,
    auroc_table,
    pattern_table,
    uncertainty_summary,
)
from ukemi.uncertainty import PATTERNS, Thresholds, Uncertainty


def profile(thresholds: Thresholds) -> Profile:
    """Four inputs, all right, with PCS 0.1, 0.4, 0.6, 0.9 and a VR of 0, and a source without any."""
    pcs, zero = torch.tensor([0.1, 0.4, 0.6, 0.9]), torch.zeros(4)
    data = labelled(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.long), ("one", "two"))
    metrics = Uncertainty(data.labels, pcs, pcs, zero, zero, zero, 10)
    return Profile(thresholds, (Profiled("benign", data, metrics),), ("fgsm",))


def cells(own: Profile) -> dict[str, list[str]]:
    """What the terminal shows, by column."""
    return {str(column.header): [str(cell) for cell in column.cells] for column in pattern_table(own).columns}


@pytest.mark.parametrize(
    ("limits", "between"),
    [((0.5, 0.5), None), ((0.3, 0.5), "25"), ((0.3, 0.7), "50"), ((0.05, 0.95), "100")],
)
def test_what_lies_between_two_limits_has_a_column_where_there_is_a_gap(
    limits: tuple[float, float], between: str | None
) -> None:
    found = cells(profile(Thresholds(limits, (0.2, 0.2))))
    shares = [found[f"{name} %"][0] for name in PATTERNS]
    if between is None:
        assert "between %" not in found
    else:
        assert float(found["between %"][0]) == float(between)
        assert found["between %"][1] == "–"
        shares.append(found["between %"][0])
    assert sum(map(float, shares)) == 100
    assert all(len(column) == 2 for column in found.values())


@pytest.mark.parametrize(("limits", "shown"), [((0.2, 0.2), False), ((0.2, 0.5), True)])
def test_the_page_shows_it_too(limits: tuple[float, float], shown: bool, tmp_path: Path) -> None:
    own = profile(Thresholds((0.5, 0.5), limits))
    write_uncertainty(tmp_path, UncertaintyReport("a model", own, 10, "dropout", "given", {}, "cpu", 1.0))
    assert (">between<" in (tmp_path / "page.html").read_text()) is shown


def test_every_source_has_a_scatter_of_its_own_with_what_most_of_it_is(tmp_path: Path) -> None:
    own = profile(Thresholds((0.2, 0.2), (0.2, 0.2)))
    wrong = own.benign.metrics
    wrong = replace(wrong, prediction=torch.tensor([1, 1, 0, 1]), vr=torch.tensor([0.5, 0.5, 0.5, 0.0]))
    sources = (own.benign, Profiled("fuzzed", own.benign.data, wrong))
    own = replace(own, sources=sources, empty=())
    write_uncertainty(tmp_path, UncertaintyReport("a model", own, 10, "dropout", "given", {}, "cpu", 1.0))
    text = (tmp_path / "page.html").read_text()
    captions = re.findall(r"<figcaption>(\w+: \w\w) (\d+)", text)
    assert captions == [("benign: HL", "75"), ("fuzzed: HH", "50")]
    charts = text.split('class="chart scatter"')[1:]
    tips = [re.findall(r'data-tip="(\w+), image (\d): one( taken for two)?;', one) for one in charts]
    assert [len(found) for found in tips] == [4, 4]
    assert {image for _, image, taken in tips[1] if taken} == set("013") and not any(tip[2] for tip in tips[0])
    gap = profile(Thresholds((0.05, 0.95), (0.2, 0.2)))
    write_uncertainty(tmp_path, UncertaintyReport("a model", gap, 10, "dropout", "given", {}, "cpu", 1.0))
    assert "<figcaption>benign: between 100" in (tmp_path / "page.html").read_text()


def test_a_limit_close_to_1_is_not_said_as_1(tmp_path: Path) -> None:
    own = profile(Thresholds((0.99993, 0.99993), (0.2, 0.2)))
    assert "PCS at least 0.99993, VR" in str(pattern_table(own).caption)
    write_uncertainty(tmp_path, UncertaintyReport("a model", own, 10, "dropout", "given", {}, "cpu", 1.0))
    assert "PCS 0.99993, VR 0.2" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("source", "settings", "pcs", "vr"),
    [
        ("dropout", {}, "how far the first class is ahead of the second", "stochastic passes that disagree with it"),
        (
            "ensemble",
            {"confidence": "max", "against": "mode"},
            "the probability of the first class",
            "members of the ensemble that disagree with what most of them say",
        ),
    ],
)
def test_the_page_says_what_pcs_and_vr_are_here(
    source: str, settings: dict[str, str], pcs: str, vr: str, tmp_path: Path
) -> None:
    own = profile(Thresholds((0.5, 0.5), (0.2, 0.2)))
    write_uncertainty(tmp_path, UncertaintyReport("a model", own, 10, source, "given", settings, "cpu", 1.0))
    said = f"PCS is {pcs} in one certain pass; VR is the share of {vr}. High is"
    assert said in (tmp_path / "page.html").read_text()


def source(name: str, guesses: list[int], confidence: list[float], **metrics: list[float]) -> Profiled:
    """Inputs of class 0."""
    numbers: dict[str, Tensor] = {each: torch.tensor(row, dtype=torch.float64) for each, row in metrics.items()}
    data = labelled(torch.zeros(len(guesses), 1, 8, 8), torch.zeros(len(guesses)).long(), ("one", "two"))
    sure = torch.tensor(confidence, dtype=torch.float64)
    return Profiled(name, data, Uncertainty(torch.tensor(guesses), sure, passes=10, **numbers))


@pytest.fixture
def report() -> UncertaintyReport:
    """Four benign inputs and two attacked ones, few enough to work out by hand."""
    metrics = {"pcs": [0.8, 0.8, 0.2, 0.9], "vr": [0.0, 0.0, 0.5, 0.0], "pe": [0.1, 0.1, 0.6, 0.2], "mi": [0.0] * 4}
    benign = source("benign", [0, 0, 0, 1], [0.9, 0.9, 0.62, 0.62], **metrics)
    attacked = source("fgsm", [1, 1], [0.6, 0.6], pcs=[0.1, 0.3], vr=[0.5, 0.1], pe=[0.5, 0.7], mi=[0.0, 0.0])
    own = Profile(Thresholds((0.5, 0.5), (0.2, 0.2)), (benign, attacked), ("bim",))
    return UncertaintyReport("a model", own, 10, "dropout", "given", {"seed": 0}, "cpu", 1.0)


def test_the_summary_is_worked_out_by_hand(report: UncertaintyReport) -> None:
    found = uncertainty_summary(report)
    first, second, none = found["sources"]
    assert [one["source"] for one in (first, second, none)] == ["benign", "fgsm", "bim"]
    assert (first["images"], first["accuracy"], first["auroc"]) == (4, 0.75, None)
    assert first["patterns"] == {"LL": 0, "LH": 0.25, "HL": 0.75, "HH": 0}
    assert (first["between"], first["unstable"]) == (0, 0.75)  # 0 is within 1.96 sqrt(0.2 x 0.8 / 10) of 0.2
    assert first["pattern_entropy_bits"] == pytest.approx(0.8113, abs=1e-4)
    assert first["mean"] == pytest.approx({"pcs": 0.675, "vr": 0.125, "pe": 0.25, "mi": 0})
    assert second["patterns"] == {"LL": 0.5, "LH": 0.5, "HL": 0, "HH": 0} and second["accuracy"] == 0
    assert second["auroc"] == {"pcs": 0.875, "vr": 0.8125, "pe": 0.875, "mi": 0.5}
    assert none["images"] == 0 and none["accuracy"] is None and set(none["patterns"].values()) == {None}
    calibration = found["calibration"]
    assert calibration["expected_error"] == pytest.approx(0.11) and calibration["largest_error"] == pytest.approx(0.12)
    assert {at: count for at, count in enumerate(calibration["count"]) if count} == {9: 2, 13: 2}
    assert found["thresholds"] == {"pcs": [0.5, 0.5], "vr": [0.2, 0.2], "found_by": "given"}
    assert found["model_sha256"] is None and found["passes"] == 10 and found["source"] == "dropout"
    assert _glance(report) == [
        f"Of 4 benign images 75.0{words.THIN}% are HL (high PCS, low VR: sure, and steady).",
        "Best told from benign images: fgsm by PCS.",
        "No image came of bim.",
    ]
    cells = [[str(cell) for cell in column.cells] for column in auroc_table(report.profile).columns]
    assert cells == [["fgsm", "bim"], *([shown, "–"] for shown in ("0.875", "0.812", "0.875", "0.500"))]


def test_pictures_show_each_number_in_its_place(report: UncertaintyReport, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[dict[str, Any], list[list[tuple[float, float]]]]] = []

    def noting(series: list[charts.Series], **settings: Any) -> None:
        told.append((settings, [sorted(one.points) for one in series]))

    monkeypatch.setattr(charts, "scatter", noting)
    monkeypatch.setattr(charts, "lines", noting)
    limits = Thresholds((0.4, 0.5), (0.2, 0.2))
    _scatters(replace(report.profile, thresholds=limits))
    _diagram(report.profile)
    (scatter, points), (_, fooling), (_, lines) = told
    assert sorted([*points[0], *points[1]]) == [(0.2, 0.5), (0.8, 0.0), (0.8, 0.0), (0.9, 0.0)]
    assert [len(some) for some in points] == [3, 1] and fooling == [[], [(0.1, 0.5), (0.3, 0.1)]]
    assert (scatter["x_label"], scatter["x_rules"], scatter["y_rules"]) == ("PCS", [0.4, 0.5], [0.2])
    assert lines[1] == [pytest.approx((0.62, 0.5)), pytest.approx((0.9, 1.0))]
    cards = {one["pattern"]: one["cards"] for one in _galleries(report)}
    assert [len(cards[name]) for name in ("LL", "LH", "HL", "HH")] == [1, 2, 3, 0]
    shown = {name: cards["LH"][0][name] for name in ("source", "label", "guess", "right", "pcs", "vr")}
    assert shown == {"source": "benign", "label": "one", "guess": "one", "right": True, "pcs": "0.2", "vr": "0.50"}
    assert cards["LL"][0]["guess"] == "two" and not cards["LL"][0]["right"]


def test_the_page_says_the_expected_calibration_error(report: UncertaintyReport, tmp_path: Path) -> None:
    write_uncertainty(tmp_path, report)
    assert f"The expected calibration error is 11.0{words.THIN}%." in (tmp_path / "page.html").read_text()

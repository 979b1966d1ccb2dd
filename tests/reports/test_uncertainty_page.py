"""The table of patterns: every input is in one of its columns."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ukemi.data import labelled
from ukemi.measures.uncertainty import Profile, Profiled
from ukemi.reports import UncertaintyReport, write_uncertainty
from ukemi.reports.uncertainty import pattern_table
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

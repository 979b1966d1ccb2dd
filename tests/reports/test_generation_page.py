"""The page of a search for inputs: how many it shows, and which."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ukemi.data import labelled
from ukemi.reports import charts, words
from ukemi.reports.adversarial import visible
from ukemi.reports.generation import GenerationReport, _gallery, _glance, _scatter, generation_table, numbers_of
from ukemi.reports.pictures import picture, side_for
from ukemi.uncertainty import Generated, Target, Thresholds, Uncertainty

COUNT = 30


def searched(success: Tensor) -> GenerationReport:
    """One seed after the other came nearer."""
    zeros, labels = torch.zeros(COUNT, dtype=torch.float64), torch.arange(COUNT) % 2
    seeds = labelled(torch.rand(COUNT, 1, 8, 8), labels, ("one", "two"))
    found = Generated(
        images=torch.rand(COUNT, 1, 8, 8),
        labels=labels,
        index=torch.arange(COUNT),
        success=success,
        claimed=torch.arange(COUNT) < 6,
        fitness=torch.linspace(-2, -1, COUNT, dtype=torch.float64),
        generations=torch.ones(COUNT).long(),
        distance=torch.linspace(0, 0.25, COUNT),
        metrics=Uncertainty(1 - labels, zeros, zeros, zeros, zeros, zeros, 10),
        target=Target("HH", "misclassified", Thresholds((0.5, 0.5), (0.2, 0.2))),
        evaluations=900,
    )
    return GenerationReport("net", found, seeds, "given", {}, "cpu", 1.0, gallery=20)


@pytest.mark.parametrize("gallery", [0, 3, 20, 50])
def test_where_nothing_succeeded_as_many_as_are_asked_for_came_nearest(gallery: int) -> None:
    report = searched(torch.zeros(COUNT, dtype=torch.bool))
    report = replace(report, gallery=gallery)
    shown = {card["index"] for card in _gallery(report)}
    assert shown == set(range(COUNT - min(gallery, COUNT), COUNT))


def test_successes_alone_are_shown_where_there_are_any() -> None:
    success = torch.arange(COUNT) < 4
    assert {card["index"] for card in _gallery(searched(success))} == {0, 1, 2, 3}


def test_a_search_is_said_in_numbers_and_in_words() -> None:
    found = searched(torch.arange(COUNT) < 4).found
    row = numbers_of(found)
    wanted = {"pattern": "HH", "goal": "misclassified", "seeds": 30, "success": 4, "claimed": 6, "passes": 10}
    wanted |= {"evaluations": 900, "best_fitness": -1, "mean_generations": 1, "largest_distance": 0.25}
    assert {name: row[name] for name in wanted} == wanted
    assert row["thresholds"] == {"pcs": [0.5, 0.5], "vr": [0.2, 0.2]} and row["success_rate"] == 4 / 30
    assert row["median_fitness"] == float(found.fitness[14])  # of an even number the lower of the two
    assert row["success_rate_interval_95"] == pytest.approx([0.0531, 0.2968], abs=1e-4)
    shown = [str(next(iter(column.cells))) for column in generation_table(found).columns]
    share, minus = f"13.3{words.THIN}%", words.MINUS
    assert shown == ["HH, misclassified", "30", share, "5–30", "6", f"{minus}1", "1.0"]
    said = "From 4 of 30 images the search made an input that is misclassified and HH (high PCS, high VR: sure, but"
    assert _glance(found) == [f"{said} wavering)."]
    none = searched(torch.zeros(COUNT, dtype=torch.bool)).found
    assert _glance(none)[1] == f"None was found within the budget: the best fitness was {minus}1, and it takes 1."


def test_a_card_shows_what_changed_and_what_it_is_taken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    report = searched(torch.arange(COUNT) == 3)
    (card,) = _gallery(report)
    change, _ = visible(report.found.images[3] - report.seeds.images[torch.tensor([3])][0])
    assert card["change"] == picture(change, side_for(3, 1))
    assert (card["label"], card["guess"], card["wrong"], card["index"]) == ("two", "one", True, 3)
    drawn: dict[str, int] = {}
    monkeypatch.setattr(charts, "scatter", lambda series, **_: drawn.update({s.name: len(s.points) for s in series}))
    _scatter(report.found)
    assert drawn == {"reached": 1, "not reached": COUNT - 1}

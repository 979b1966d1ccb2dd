"""The page of a search for inputs: how many it shows, and which."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ukemi.data import labelled
from ukemi.reports.generation import GenerationReport, _gallery
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
        claimed=success,
        fitness=torch.linspace(-2, -1, COUNT, dtype=torch.float64),
        generations=torch.ones(COUNT).long(),
        distance=zeros,
        metrics=Uncertainty(1 - labels, zeros, zeros, zeros, zeros, zeros, 10),
        target=Target("HH", "misclassified", Thresholds((0.5, 0.5), (0.2, 0.2))),
        evaluations=COUNT,
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

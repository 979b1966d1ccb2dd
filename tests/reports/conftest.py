"""A small evaluation that every report is made from."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from report_samples import LOG, sample

from ukemi import T3, Space, robust_accuracy
from ukemi.reports import Evaluation, examine


@pytest.fixture(scope="session")
def make() -> Callable[..., Evaluation]:
    def made(channels: int = 1, size: int = 10, space: Space = T3, mean: bool = False, **given: Any) -> Evaluation:
        model, data = sample(channels, size)
        found = robust_accuracy(model, data.images[torch.arange(len(data))], data.labels, space, 2, mean=mean)
        names: dict[str, Any] = {"title": "plain <model>", "model_name": "linear", "data_name": "noise & dots"}
        return examine(model, data, found, **names | {"gallery": 5, "landscapes": 2, "images": 10} | given)

    return made


@pytest.fixture(scope="session")
def evaluation(make: Callable[..., Evaluation]) -> Evaluation:
    settings = {"augmenter": {"name": "worst-of", "k": 10}, "seed": 0, "flips": False, "weights": None}
    return make(mean=True, log=LOG, settings=settings, seconds=2.5)


@pytest.fixture
def unbroken(evaluation: Evaluation) -> Evaluation:
    """The same where every image holds."""
    found = evaluation.robustness
    all_right = torch.ones_like(found.correct)
    found = replace(found, correct=all_right, robust=all_right, broken_by=torch.full_like(found.broken_by, -1))
    return replace(evaluation, robustness=found, gallery=(), title="unbroken")

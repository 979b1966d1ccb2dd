"""The metrics of whole data sets: those of their batches, in bounded memory, of finite answers only."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.data import Data
from ukemi.uncertainty import (
    DropoutPasses,
    Ensemble,
    Sampled,
    Target,
    Thresholds,
    generate,
    insert_dropout,
    measured,
    uncertainty_of,
)


def test_metrics_of_data_are_those_of_its_batches(dropping: nn.Module, recognised: Data) -> None:
    model = deepcopy(dropping).double()
    data = recognised.take(torch.arange(60))
    heard: list[tuple[int, int]] = []
    source = DropoutPasses(model, 10)

    class Doubled:
        model, passes = source.model, source.passes

        def __call__(self, images: Tensor, index: Tensor, *, turn: int = 0, shared: int = 1):  # type: ignore[no-untyped-def]
            return source(images.double(), index, turn=turn, shared=shared)

    found = uncertainty_of(Doubled(), data, report=lambda done, total: heard.append((done, total)))
    batch = data.batch(torch.tensor([17]), "cpu")
    alone = measured(source(batch.images.double(), batch.index))
    assert float(found.vr[17]) == float(alone.vr[0]) and float(found.pe[17]) == pytest.approx(float(alone.pe[0]))
    assert heard[-1] == (60, 60)
    later = uncertainty_of(Doubled(), data, turn=3)
    assert float(later.pe[17]) == pytest.approx(float(measured(source(batch.images.double(), batch.index, turn=3)).pe))
    assert not torch.equal(later.pe, found.pe)


def test_answers_that_are_not_finite_have_no_uncertainty(dropping: nn.Module, recognised: Data) -> None:
    broken = deepcopy(dropping)
    torch.nn.init.constant_(list(broken.parameters())[-1], torch.inf)
    with pytest.raises(UserError, match="model: its answers to 3 of 3 images are not finite"):
        uncertainty_of(DropoutPasses(broken, 2), recognised.take(torch.arange(3)))


def test_an_answer_that_only_a_mask_lets_overflow_has_no_uncertainty() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 2))
    nn.init.constant_(model[2].weight, 1e38)
    nn.init.zeros_(model[2].bias)
    data = Data(torch.full((2, 1, 2, 2), 0.6), torch.zeros(2, dtype=torch.int64), ("a", "b"), torch.arange(2), 2)
    source = DropoutPasses(model, 20)
    assert source(data.images, data.index).certain.isfinite().all()  # type: ignore[arg-type]
    with pytest.raises(UserError, match="model: its answers to 2 of 2 images are not finite"):
        uncertainty_of(source, data)


@pytest.mark.parametrize(("passes", "classes", "most"), [(50, 10, 512), (1000, 100, 320), (4000, 1000, 32)])
def test_the_more_passes_and_classes_the_fewer_images_are_asked_at_once(passes: int, classes: int, most: int) -> None:
    """All their probabilities are held: a thousand passes over a thousand classes took gigabytes."""
    asked: list[int] = []

    class Flat:
        model = nn.Flatten()

        def __call__(self, images: Tensor, index: Tensor, *, turn: int = 0, shared: int = 1) -> Sampled:
            asked.append(len(images))
            return Sampled(torch.full((len(images), 2), 0.5), torch.full((2, len(images), 2), 0.5))

    source: Any = Flat()
    source.passes = passes
    names, index = tuple(map(str, range(classes))), torch.arange(600)
    uncertainty_of(source, Data(torch.zeros(600, 1, 1, 1), torch.zeros_like(index), names, index, 600))
    assert max(asked) == most and sum(asked) == 600


def test_what_is_no_model_no_source_and_no_threshold_is_named(recognised: Data) -> None:
    net: Any = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(784, 10))
    no_model = "model: a torch.nn.Module is needed, but a str was given"
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: uncertainty_of(net, recognised), "source: a model was given; DropoutPasses"),
        (lambda: generate(net, recognised, Target("HH", "kept", Thresholds(0.5, 0.5))), "source: a model was given"),  # type: ignore[arg-type]
        (lambda: Ensemble(net), "ensemble: at least 2 models are needed"),
        (lambda: Ensemble([net, "net"]), no_model),  # type: ignore[list-item]
        (lambda: DropoutPasses("net"), no_model),  # type: ignore[arg-type]
        (lambda: insert_dropout("net", 0.5), no_model),  # type: ignore[arg-type]
        (lambda: Thresholds("high", 0.5), "pcs-thresholds: one number or two .* but 'high' was given"),  # type: ignore[arg-type]
        (lambda: Thresholds((0.1, 0.5), None), "vr-thresholds: one number or two .* but None was given"),  # type: ignore[arg-type]
    ]
    for call, said in calls:
        with pytest.raises(UserError, match=said):
            call()
    limits = Thresholds(torch.tensor([0.2, 0.4, 0.6]).quantile(0.5), np.float32(0.25))  # type: ignore[arg-type]
    assert limits == Thresholds((float(np.float32(0.4)), float(np.float32(0.4))), (0.25, 0.25))

"""Which state of a grid is kept, and where a rate is left."""

import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from ukemi.repairs import tuning
from ukemi.repairs.mining import Mined, mine
from ukemi.repairs.tuning import (
    Tuned,
    Tuner,
    cross_entropy,
    mean_loss,
    regression,
    target_layer,
    trainable_layers,
    tune,
)

sys.path.insert(0, str(Path(__file__).parent))
from history_net import past_of, residual, some_data


def searched(**more: Any) -> Tuned:
    """A grid of one rate."""
    model, data = residual(5), some_data(60, 5)
    layer = target_layer(model)
    torch.manual_seed(0)
    samples = mine(model, past_of(model), data, layer)
    usual: dict[str, Any] = {"score": lambda one: 0.0, "learning_rates": (1e-3,), "epochs": 3, "batch_size": 16}
    layers = trainable_layers(model)[:-1]
    return tune(model, samples, some_data(40, 6), regression(layer, None), layers, **{**usual, **more})


def test_the_state_is_that_of_the_epoch_that_was_kept() -> None:
    """Later epochs of the same rate go on from it."""
    scores = iter([5.0, 1.0, 2.0])
    found, short = searched(score=lambda one: next(scores)), searched(epochs=1)
    assert found.best is not None and found.best.epoch == 1 and len(found.trials) == 3
    assert all(torch.equal(one, short.state[name]) for name, one in found.state.items())
    scores = iter([1.0, 2.0, 5.0])
    last = searched(score=lambda one: next(scores)).state
    assert any(not torch.equal(one, short.state[name]) for name, one in last.items())


def test_a_fall_by_just_what_is_allowed_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.8, 0.7, 0.6999, 0.8])  # 0.8 - 0.1 is a little above 0.7
    monkeypatch.setattr(tuning, "accuracy", lambda *given: (next(shares), 0.0))
    found = searched(allowed_drop=0.1)
    assert [(one.accuracy, one.allowed) for one in found.trials] == [(0.7, True), (0.6999, False)]


def test_every_image_is_tuned_towards_its_own_target_and_counts_once() -> None:
    seen: list[tuple[int, ...]] = []
    losses: list[float] = []

    class Noting:
        """Knows each image by its first pixel, and its target by the image."""

        def __init__(self, model: torch.nn.Module) -> None:
            self.model = model

        def step(self, images: torch.Tensor, labels: torch.Tensor, targets_NO: torch.Tensor) -> torch.Tensor:
            assert torch.equal(images[:, 0, 0, 0], targets_NO[:, 0])
            seen.append(tuple(targets_NO[:, 0].tolist()))
            losses.append(float(len(labels)))
            return torch.tensor(losses[-1])

    data, model = some_data(40, 1), residual()
    none = torch.zeros(40)
    pixels = data.images[torch.arange(40)][:, 0, 0, :1]
    samples = Mined(data, pixels, none.long(), none.double(), none.double(), 40)
    told: dict[str, Any] = {"score": lambda one: 0.0, "learning_rates": (1.0,), "epochs": 2, "batch_size": 16}
    found = tuning.search_grid(model, samples, data, lambda rate: Noting(model), allowed_drop=1, seed=0, **told)
    first, second = seen[:3], seen[3:]
    assert sorted(sum(first, ())) == sorted(sum(second, ())) == sorted(pixels[:, 0].tolist()) and first != second
    assert [one.loss for one in found.trials] == pytest.approx([(16 * 16 + 16 * 16 + 8 * 8) / 40] * 2)


def test_each_rate_is_tried_by_itself() -> None:
    both, alone = searched(learning_rates=(1e-6, 1e-3), epochs=1), searched(epochs=1)
    assert both.trials[1].learning_rate == 1e-3 and both.trials[1].loss == alone.trials[0].loss
    scores = iter([0.0, 1.0])
    found = searched(learning_rates=(1e-6, 1e-3), epochs=1, score=lambda one: next(scores))
    assert all(torch.equal(one, alone.state[name]) for name, one in found.state.items())


def test_the_mean_loss_is_one_over_all_images() -> None:
    model, data = residual(), some_data(30)
    layer, none = target_layer(model), torch.zeros(30)
    samples = Mined(data, torch.rand(30, layer.outputs), none.long(), none.double(), none.double(), 30)
    loss = regression(layer, None)
    with torch.no_grad():
        losses = loss(model, data.images[torch.arange(30)], data.labels, samples.targets)
    assert mean_loss(model, samples, loss) == pytest.approx(float(losses.mean()))


def test_each_step_has_a_gradient_of_its_own() -> None:
    model, data = residual(), some_data(30)
    layers, images, targets = trainable_layers(model), data.images[torch.arange(30)], torch.zeros(30, 1)
    walking = Tuner(deepcopy(model), layers, cross_entropy, None, 1e-2)
    walking.step(images, data.labels, targets)
    fresh = Tuner(deepcopy(walking.model), layers, cross_entropy, None, 1e-2)
    for tuner in (walking, fresh):
        tuner.step(images, data.labels, targets)
    for name, weight in walking.weights.items():
        assert weight.grad is not None and torch.equal(weight.grad, fresh.weights[name].grad)

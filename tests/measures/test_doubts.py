"""Whether a model notices that it breaks."""

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, robust_accuracy, vary
from ukemi.data import Data, labelled
from ukemi.measures.doubts import PASSES, RATE, Doubted, Doubts, doubts
from ukemi.measures.robustness import Robustness
from ukemi.uncertainty import DropoutPasses, Uncertainty, insert_dropout, measured

COUNT = 40


@pytest.fixture(scope="module")
def case() -> tuple[nn.Module, Data, Robustness]:
    """A linear model that is right about all of its images unchanged, and what the grid did to it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    images = torch.rand(COUNT, 1, 8, 8)
    with torch.no_grad():
        labels = model(images).argmax(1)
    labels[0] = (labels[0] + 1) % 3  # but one
    found = robust_accuracy(model, images, labels, T3, 2)
    return model, labelled(images, labels, ["a", "b", "c"]), found


def test_it_asks_about_the_variants_that_broke_images(case: tuple[nn.Module, Data, Robustness]) -> None:
    model, data, found = case
    asked = doubts(model, data, found, images=COUNT)
    assert asked is not None and asked.inserted
    broken = (found.correct & ~found.robust).nonzero().flatten()
    assert sorted(asked.broken.index.tolist()) == broken.tolist() != []
    assert sorted(asked.recognised.index.tolist()) == list(range(1, COUNT))
    rows = asked.broken.index
    images = data.images[rows]
    assert isinstance(images, Tensor)
    variants = vary(images, found.grid[found.broken_by[rows]], found.space)
    again = measured(DropoutPasses(insert_dropout(model, RATE), PASSES)(variants, rows))
    torch.testing.assert_close(asked.broken.found.pcs, again.pcs)
    torch.testing.assert_close(asked.broken.found.vr, again.vr)
    assert bool((asked.broken.found.prediction != asked.broken.labels).all())
    assert bool((asked.recognised.found.prediction == asked.recognised.labels).all())


def test_no_more_than_asked_for_and_the_same_every_time(case: tuple[nn.Module, Data, Robustness]) -> None:
    first, second = (doubts(*case, images=5, seed=3) for _ in range(2))
    assert first is not None and second is not None
    assert len(first.recognised.index) == 5 >= len(first.broken.index) > 0
    assert torch.equal(first.broken.found.vr, second.broken.found.vr)


def test_a_model_with_dropout_keeps_its_own() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.4), nn.Linear(64, 3)).eval()
    images = torch.rand(COUNT, 1, 8, 8)
    with torch.no_grad():
        labels = model(images).argmax(1)
    asked = doubts(model, labelled(images, labels), robust_accuracy(model, images, labels, T3, 2))
    assert asked is not None and not asked.inserted


class Plain(nn.Module):
    """Without anything that dropout could stand before."""

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        return torch.stack([flat[:, :32].mean(1), flat[:, 32:].mean(1)], 1)


class Uncopied(nn.Module):
    """Holds a tensor of a graph, which can't be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 3)
        self.held = self.head.weight * 2

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1))


class Idle(Uncopied):
    """Its last linear layer takes no part in its answers."""

    def __init__(self) -> None:
        super().__init__()
        del self.held
        self.beside = nn.Linear(3, 3)


class Torn(Uncopied):
    """Gives NaN for what is darker than any image."""

    def __init__(self) -> None:
        super().__init__()
        del self.held

    def forward(self, images: Tensor) -> Tensor:
        dark = images.flatten(1).mean(1, keepdim=True) < 0.4
        return torch.where(dark, torch.nan, super().forward(images))


def _broken_case(kind: type[nn.Module]) -> tuple[nn.Module, Data, Robustness]:
    torch.manual_seed(0)
    model = kind()
    images = torch.rand(COUNT, 1, 8, 8)
    with torch.no_grad():
        labels = model(images).nan_to_num().argmax(1)
    found = robust_accuracy(model, images, labels, T3, 2)
    assert bool((found.broken_by >= 0).any())
    return model, labelled(images, labels, ["a", "b", "c"]), found


@pytest.mark.parametrize("kind", [Plain, Uncopied])
def test_a_model_that_cannot_be_asked_is_let_be(kind: type[nn.Module]) -> None:
    assert doubts(*_broken_case(kind)) is None


def test_a_layer_that_takes_no_part_is_no_classifier() -> None:
    asked = doubts(*_broken_case(Idle))
    assert asked is not None and asked.inserted and float(asked.broken.found.mi.max()) > 0


def test_answers_that_are_not_finite_are_left_out() -> None:
    model, data, found = _broken_case(Torn)
    asked = doubts(model, data, found, images=COUNT)
    assert asked is not None
    assert 0 < len(asked.broken.index) < int((found.correct & (found.broken_by >= 0)).sum())
    assert all(bool(one.found.pcs.isfinite().all()) for one in (asked.recognised, asked.broken))


def test_nothing_broken_nothing_asked(case: tuple[nn.Module, Data, Robustness]) -> None:
    model, data, _ = case
    images = data.images[torch.arange(COUNT)]
    assert isinstance(images, Tensor)
    still = robust_accuracy(model, images, data.labels, T3, T3.identity()[None])
    assert doubts(model, data, still) is None


def _doubted(pcs: list[float], vr: list[float]) -> Doubted:
    zeros = torch.zeros(len(pcs))
    found = Uncertainty(zeros.long(), zeros, torch.tensor(pcs), torch.tensor(vr), zeros, zeros, 20)
    return Doubted(torch.arange(len(pcs)), zeros.long(), found)


def test_unnoticed_are_as_sure_as_three_quarters_of_what_is_recognised() -> None:
    asked = Doubts(_doubted([0.2, 0.5, 0.8, 0.9, 1.0], [0.0] * 5), _doubted([0.1, 0.5, 0.7], [0.2, 0.0, 0.1]), True)
    assert asked.limit == pytest.approx(0.5)
    assert asked.unnoticed == 2
    assert asked.auroc["pcs"] == pytest.approx((5 + 3.5 + 3) / 15)
    assert asked.auroc["vr"] == pytest.approx((5 + 2.5 + 5) / 15)

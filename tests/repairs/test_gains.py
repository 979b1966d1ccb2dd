"""Where a model stands: each measure on the images that it is said to be on."""

from math import isnan

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, vary
from ukemi.attacks.config import AttackConfig
from ukemi.data import Data
from ukemi.repairs.gains import Standing, standing_of


class Brightness(nn.Module):
    """Tells bright images from dark ones by their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = nn.Parameter(torch.tensor(0.1))

    def forward(self, images: Tensor) -> Tensor:
        above = images.mean((1, 2, 3)) - self.limit
        return 20 * torch.stack([-above, above], 1)


@pytest.fixture
def squares() -> Data:
    """100 grey squares at the left on black, brighter and brighter; some near the limit are labelled wrongly."""
    images = torch.zeros(100, 1, 28, 28)
    images[:, :, 8:20, :12] = torch.linspace(0.1, 1, 100)[:, None, None, None]
    labels = (torch.arange(100) > 45).long()
    return Data(images, labels, ("dark", "bright"), torch.arange(100), 100)


def share(right: Tensor) -> float:
    return float(right.double().mean())


def test_every_measure_is_that_of_a_slow_form(squares: Data) -> None:
    model, few = Brightness(), squares.take(torch.arange(2, 80, 3))
    empty = Data(torch.empty(0, 1, 28, 28), torch.empty(0).long(), squares.classes, torch.empty(0).long(), 100)
    frozen = {"first": squares.take(torch.arange(60)), "second": squares.take(torch.arange(60, 100)), "none": empty}
    found = standing_of(model, squares, few, frozen, epsilon=0.03, steps=4, seed=2)

    def right(data: Data) -> Tensor:
        batch = data.batch(torch.arange(len(data)), "cpu")
        return model(batch.images).argmax(1) == batch.labels

    batch, held = few.batch(torch.arange(len(few)), "cpu"), right(few)
    for genes in T3.grid():
        held &= model(vary(batch.images, genes.expand(len(few), -1), T3)).argmax(1) == batch.labels
    attack = AttackConfig(attack="pgd", epsilon=0.03, steps=4).made(2)
    fooled = attack(model, batch.images, batch.labels, index=batch.index).images
    withstood = right(few) & (model(fooled).argmax(1) == batch.labels)
    assert (found.accuracy, found.images) == (share(right(squares)), len(few))
    assert (found.robust_accuracy, found.pgd_accuracy) == (share(held), share(withstood))
    assert len({found.accuracy, share(right(few)), found.robust_accuracy, found.pgd_accuracy}) == 4
    assert found.calibration == {name: share(right(frozen[name])) for name in ("first", "second")}
    assert found.calibration_images == {"first": 60, "second": 40} == found.as_json()["calibration_images"]
    assert found.mean_calibration == pytest.approx(sum(found.calibration.values()) / 2)


def test_without_a_frozen_set_there_is_no_calibration_rate() -> None:
    found = Standing(0.9, 0.2, 0.1, 30)
    assert isnan(found.mean_calibration) and found.as_json()["mean_calibration"] is None

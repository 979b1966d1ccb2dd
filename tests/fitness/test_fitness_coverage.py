"""Coverage as fitness, against a slow account of what was covered."""

from dataclasses import replace

import pytest
import torch
from test_fitness_base import doubled, scored_by, variants_of
from torch import Tensor, nn

from ukemi import UserError
from ukemi.activations import recording, scaled_means, unit_means
from ukemi.data import Data, DataSet
from ukemi.fitness import LikelihoodSurprise, MultisectionCoverage, NeuronCoverage


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(3)
    layers = [nn.Conv2d(1, 6, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(384, 20), nn.Tanh(), nn.Linear(20, 10)]
    return nn.Sequential(*layers).double()


@pytest.fixture
def data(fashion: DataSet) -> Data:
    return doubled(fashion, 60)


def recorded(net: nn.Module, images: Tensor) -> list[Tensor]:
    with torch.no_grad(), recording(net.eval()) as outputs:
        net(images)
    return outputs


def test_neuron_coverage_equals_the_slow_account(net: nn.Module, data: Data) -> None:
    clean = scaled_means(recorded(net, data.batch(torch.arange(60), "cpu").images))
    fitness = NeuronCoverage(0.6)
    fitness.begin_epoch(net, data, 0)
    images, labels = variants_of(data)
    got = fitness(scored_by(net, images, labels))
    covered = {unit for row in clean.tolist() for unit, value in enumerate(row) if value > 0.6}
    for at, row in enumerate(scaled_means(recorded(net, images)).tolist()):
        new = [unit for unit, value in enumerate(row) if value > 0.6 and unit not in covered]
        assert got[at].item() == pytest.approx(len(new) / 26, abs=1e-12)
    assert 0 < len(covered) < 26 and got.max() > 0


def test_multisection_coverage_equals_the_slow_account(net: nn.Module, data: Data) -> None:
    clean = unit_means(recorded(net, data.batch(torch.arange(60), "cpu").images))
    low, high = clean.min(0).values.tolist(), clean.max(0).values.tolist()

    def section(unit: int, value: float) -> int | None:
        if not low[unit] - 1e-12 <= value <= high[unit] + 1e-12:
            return None
        return min(11, int((value - low[unit]) / (high[unit] - low[unit]) * 12))

    hit = {(unit, section(unit, value)) for row in clean.tolist() for unit, value in enumerate(row)}
    fitness = MultisectionCoverage(12)
    fitness.begin_epoch(net, data, 0)
    images, labels = variants_of(data)
    got = fitness(scored_by(net, images, labels))
    for at, row in enumerate(unit_means(recorded(net, images)).tolist()):
        new = [unit for unit, value in enumerate(row) if (unit, section(unit, value)) not in hit]
        assert got[at].item() == pytest.approx(len(new) / 26, abs=1e-12)
    assert got.max() > 0


@pytest.mark.parametrize("fitness", [NeuronCoverage(), NeuronCoverage(0.7), MultisectionCoverage(7)])
def test_the_clean_training_images_are_no_news(
    fitness: NeuronCoverage | MultisectionCoverage, net: nn.Module, data: Data
) -> None:
    fitness.begin_epoch(net, data, 0)
    batch = data.batch(torch.arange(60), "cpu")
    # the same chunk, padded as while learning: the same bits
    images = torch.cat([batch.images, batch.images[:1].expand(196, -1, -1, -1)])
    labels = torch.cat([batch.labels, batch.labels[:1].expand(196)])
    assert fitness(scored_by(net, images, labels)).tolist() == [0] * 256


def test_what_is_outside_the_range_is_new(net: nn.Module, data: Data) -> None:
    fitness = MultisectionCoverage(5)
    fitness.begin_epoch(net, data, 0)
    scored = scored_by(net, *variants_of(data))
    far = tuple(output + 1e3 for output in scored.outputs)
    assert fitness(replace(scored, outputs=far)).tolist() == [1] * 24


def test_one_unit_in_closed_form(data: Data) -> None:
    """A network whose only neuron is the mean brightness: sections are seen or not."""
    images = torch.tensor([0.0, 0.1, 0.9, 1.0], dtype=torch.float64)[:, None, None, None].expand(4, 1, 28, 28)
    few = replace(data.take(torch.arange(4)), images=images)
    relu = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(784, 10).double())
    fitness = MultisectionCoverage(10)
    fitness.begin_epoch(relu, few, 0)
    asked = torch.tensor([0.05, 0.15, 0.25, 0.5, 0.95], dtype=torch.float64)[:, None, None, None].expand(5, 1, 28, 28)
    assert fitness(scored_by(relu, asked, torch.zeros(5).long())).tolist() == [0, 0, 1, 1, 0]


def test_layers_without_a_row_per_image_are_refused_before_training(data: Data) -> None:
    shaped = nn.Sequential(nn.Unflatten(2, (4, 7)), nn.Flatten(0, 2), nn.ReLU(), nn.Unflatten(0, (-1, 4)), nn.Flatten())
    net = nn.Sequential(shaped, nn.Linear(784, 10), nn.Tanh()).double()
    for fitness in (NeuronCoverage(), MultisectionCoverage()):
        with pytest.raises(UserError, match=r"one row per image .*, but 256 images gave 1024, 256 rows"):
            fitness.check(net, data)
    LikelihoodSurprise().check(net, data)  # looks at the last layer only


def test_wrong_settings_are_named() -> None:
    assert NeuronCoverage().threshold == 0.25 and MultisectionCoverage().sections == 100
    with pytest.raises(UserError, match=r"fitness\.threshold: should be at least 0 and less than 1, but 1 was given"):
        NeuronCoverage(1)
    with pytest.raises(UserError, match=r"fitness\.sections: should be a whole number of at least 1, but 0"):
        MultisectionCoverage(0)
    with pytest.raises(UserError, match=r"fitness\.every: should be a whole number of at least 1, but 0\.5"):
        MultisectionCoverage(every=0.5)  # type: ignore[arg-type]

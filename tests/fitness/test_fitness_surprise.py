"""Surprise as fitness: which training images stand for their class, and what a variant is compared with."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import gaussian_kde
from test_fitness_base import doubled, scored_by, variants_of
from torch import nn

from ukemi import UserError
from ukemi.activations import unit_mean
from ukemi.data import Data, DataSet, labelled
from ukemi.fitness import DistanceSurprise, LikelihoodSurprise
from ukemi.fitness.surprise import chosen


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(3)
    layers = [nn.Conv2d(1, 6, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(384, 5), nn.Tanh(), nn.Linear(5, 10)]
    return nn.Sequential(*layers).double()


@pytest.fixture
def data(fashion: DataSet) -> Data:
    return doubled(fashion, 400)


def test_likelihood_surprise_is_scipys_on_the_last_layer(net: nn.Module, data: Data) -> None:
    fitness = LikelihoodSurprise(most=10_000)
    fitness.begin_epoch(net, data, 0)
    images, labels = variants_of(data)
    got = fitness(scored_by(net, images, labels))
    with torch.no_grad():
        clean, asked = net[:5](data.batch(torch.arange(400), "cpu").images), net[:5](images)
    for at in range(len(labels)):
        density = gaussian_kde(clean[data.labels == labels[at]].T.numpy())
        assert got[at].item() == pytest.approx(-density.logpdf(asked[at].numpy())[0], rel=1e-5)


def test_distance_surprise_of_training_images_is_0_and_of_strange_ones_more(net: nn.Module, data: Data) -> None:
    fitness = DistanceSurprise(most=10_000)
    fitness.begin_epoch(net, data, 0)
    batch = data.batch(torch.arange(30), "cpu")
    known = fitness(scored_by(net, batch.images, batch.labels))
    strange = fitness(scored_by(net, batch.images.flip(2), batch.labels))
    assert known.max() < 1e-9 and (strange > 0.01).all()


def test_of_many_units_those_that_vary_most_are_used(net: nn.Module, data: Data) -> None:
    images, labels = variants_of(data)
    few, whole = LikelihoodSurprise(units=2), LikelihoodSurprise()
    for fitness in (few, whole):
        fitness.begin_epoch(net, data, 0)
    scored = scored_by(net, images, labels)
    with torch.no_grad():
        clean = net[:5](data.batch(torch.arange(400), "cpu").images)
    best = clean.var(0).argsort(descending=True)[:2].sort().values
    assert few.known(scored)["units"].tolist() == best.tolist()
    density = gaussian_kde(clean[data.labels == labels[0]][:, best].T.numpy())
    asked = unit_mean(scored.outputs[-1])[0, best]
    assert few(scored)[0].item() == pytest.approx(-density.logpdf(asked.numpy())[0], rel=1e-6)
    assert not torch.allclose(few(scored), whole(scored))


def test_the_subset_is_fixed_and_even_over_classes(fashion: DataSet) -> None:
    data = fashion.train
    found = chosen(data, 100, 0)
    assert torch.bincount(data.labels[found]).tolist() == [10] * 10 and torch.equal(found, found.sort().values)
    mixed = torch.randperm(len(data))
    again = chosen(data.take(mixed), 100, 0)
    assert data.index[mixed][again].sort().values.tolist() == data.index[found].tolist()
    assert chosen(data, 100, 1).tolist() != found.tolist()
    smaller = set(data.index[chosen(data, 50, 0)].tolist())
    assert smaller < set(data.index[found].tolist())


def test_a_rare_class_gives_all_it_has() -> None:
    data = labelled(torch.rand(10, 1, 3, 3), torch.tensor([0] * 9 + [1]), ["many", "one", "none"])
    found = chosen(data, 12, 0)
    assert torch.bincount(data.labels[found], minlength=3).tolist() == [4, 1, 0]


def test_wrong_settings_and_lost_networks_are_named(net: nn.Module, data: Data) -> None:
    with pytest.raises(UserError, match=r"fitness\.most: 19 samples are less than two for each of 10 classes"):
        DistanceSurprise(most=19).begin_epoch(net, data, 0)
    with pytest.raises(UserError, match=r"fitness\.units: should be a whole number of at least 1, but 0"):
        LikelihoodSurprise(units=0)
    with torch.no_grad():
        net[3].bias.fill_(float("nan"))
    fitness = LikelihoodSurprise()
    with pytest.raises(UserError, match="clean training images are not finite"):
        fitness.begin_epoch(net, data, 0)
    assert fitness.state_dict() == {}


def test_a_state_can_be_taken_up_with_other_data_of_the_same_kind(net: nn.Module, data: Data) -> None:
    """Fewer samples change the shapes, and new tensors take the old ones' place."""
    fitness = DistanceSurprise(every=1)
    fitness.begin_epoch(net, data, 0)
    fitness.begin_epoch(net, data.take(torch.arange(100)), 1)
    fresh = DistanceSurprise(every=1)
    fresh.begin_epoch(net, data.take(torch.arange(100)), 1)
    scored = scored_by(net, *variants_of(data))
    assert torch.equal(fitness(scored), fresh(scored))
    assert fitness(replace(scored, labels=(scored.labels + 1) % 10)).sum() > fitness(scored).sum()

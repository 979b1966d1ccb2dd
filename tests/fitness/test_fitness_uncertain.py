"""Uncertainty as fitness, beside its formulas; and a search that finds what the model knows least about."""

from math import log
from pathlib import Path

import pytest
import torch
from test_fitness_base import scored_by
from torch import Tensor, nn

from ukemi import T3, Sensei, UserError, WorstOf
from ukemi.data import DataSet
from ukemi.fitness import PredictiveEntropy, Scored, fitness_of, uncertainty
from ukemi.training import TrainConfig, train
from ukemi.uncertainty import DropoutPasses


def test_uncertainty_is_one_less_the_lead_of_the_first_class() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2], [0.05, 0.05, 0.9]])
    scored = Scored(nn.Identity(), torch.zeros(3, 1, 2, 2), torch.tensor([0, 1, 0]), p.log())
    assert uncertainty(scored).tolist() == pytest.approx([0.5, 1.0, 0.15], abs=1e-6)


def test_predictive_entropy_is_that_of_the_mean_of_the_passes() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(9, 3)).double().eval()
    images = torch.rand(5, 1, 3, 3, dtype=torch.float64)
    scored = Scored(net, images, torch.zeros(5).long(), net(images).detach().float())
    found = PredictiveEntropy(4, seed=2)(scored)
    shared = DropoutPasses(net, 4, seed=2)
    for n in range(5):  # one by one: all variants are asked under the same masks
        mean = shared(images[n : n + 1], torch.zeros(1).long()).drawn.mean(0)[0]
        assert float(found[n]) == pytest.approx(-sum(float(q) * log(float(q)) for q in mean))


def test_another_network_is_asked_itself() -> None:
    first, second = (nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(9, 3)).eval() for _ in range(2))
    images, fitness = torch.rand(4, 1, 3, 3), PredictiveEntropy(4)
    found = [fitness(scored_by(net, images, torch.zeros(4).long())) for net in (first, second)]
    assert torch.equal(found[1], PredictiveEntropy(4)(scored_by(second, images, torch.zeros(4).long())))
    assert not torch.equal(*found)


def test_a_network_without_dropout_is_named(fashion: DataSet) -> None:
    net = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(784, 10))
    batch = fashion.train.batch(torch.arange(3), "cpu")
    with pytest.raises(UserError, match="fitness: predictive-entropy needs a network with dropout, but Sequential"):
        fitness_of("predictive-entropy")(scored_by(net, batch.images, batch.labels))
    with pytest.raises(UserError, match="passes: at least 2"):
        PredictiveEntropy(1)(scored_by(nn.Sequential(nn.Dropout(0.1), net), batch.images, batch.labels))


def test_a_network_without_dropout_is_refused_before_a_run_is_written(tmp_path: Path) -> None:
    for augmenter in ("sensei", "worst-of"):
        chosen = {"name": augmenter, "fitness": "predictive-entropy"}
        told = TrainConfig(model="demo-cnn", epochs=2, device="cpu", augmenter=chosen, out=tmp_path / "run")  # type: ignore[arg-type]
        with pytest.raises(UserError, match="fitness: predictive-entropy needs a network with dropout"):
            train(told, quiet=True)
        assert not (tmp_path / "run").exists()


class Aside(nn.Module):
    """Holds a dropout that its answers do not go through."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.dropout = nn.Linear(784, 10), nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1))


def test_dropout_that_does_nothing_is_refused_before_a_run_is_written(fashion: DataSet) -> None:
    for augmenter in (Sensei(T3, fitness="predictive-entropy"), WorstOf(T3, k=2, fitness="predictive-entropy")):
        with pytest.raises(UserError, match="dropout: no dropout layer of Aside takes part in its answers"):
            augmenter.rehearse(Aside(), fashion.train)


@pytest.mark.parametrize("name", ["uncertainty", "predictive-entropy"])
def test_sensei_searches_by_it(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    data = fashion.train.take(torch.arange(12))
    batch = data.batch(torch.arange(12), "cpu")
    sensei = Sensei(T3, samples=data.identities, fitness=name, warmup=0, population=8)
    sensei.begin_epoch(tiny_net, data, 0)
    made = sensei(tiny_net, batch.images, batch.labels, batch.index, 0)
    fitness = fitness_of(name)
    tiny_net.eval()
    hard, plain = (float(fitness(scored_by(tiny_net, x, batch.labels)).mean()) for x in (made, batch.images))
    assert made.shape == batch.images.shape and hard > plain

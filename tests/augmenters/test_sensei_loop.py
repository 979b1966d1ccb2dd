"""SENSEI in a loop of one's own: models, logits, settings and states that are not what is needed."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, Sensei, UserError, WorstOf
from ukemi.augmenters.presets import PRESETS
from ukemi.data import DataSet

sys.path.insert(0, str(Path(__file__).parent))
from test_sensei import rows


class Several(nn.Module):
    """What `give` makes of ten logits."""

    def __init__(self, give: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.give = give

    def forward(self, x: Tensor) -> Any:
        return self.give(x.flatten(1)[:, :10])


@pytest.mark.parametrize("fitness", ["cross-entropy", "kl"])
@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda z: (z, z), r"model: logits \[N, classes\] are needed, but it gives a tuple"),
        (lambda z: {"logits": z}, "but it gives a dict"),
        (lambda z: z[:, 0], r"but it gives \[\d+\]"),
        (lambda z: z[:1], r"model: logits \[\d+, classes\] are needed, but it gives \[1, 10\]"),
        (lambda z: z[:, :2], "labels: 9 is outside the model's 2 classes"),
    ],
)
def test_outputs_that_are_no_logits_are_named(fitness: str, give: Any, said: str, fashion: DataSet) -> None:
    images, _, index = rows(fashion)
    with pytest.raises(UserError, match=said):
        Sensei(T3, samples=8, fitness=fitness)(Several(give), images, torch.tensor([0] * 7 + [9]), index, 1)


def test_what_is_observed_are_logits(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    sensei = Sensei(T3, samples=8, settings="sensei-sa")
    sensei(tiny_net.double(), images, labels, index, 1)
    for wrong, said in ((torch.zeros(8), r"\[8\]"), (None, "a NoneType"), (torch.zeros(8, 10, 1), r"\[8, 10, 1\]")):
        with pytest.raises(UserError, match=rf"logits: \[N, classes\] are needed, but {said} was given"):
            sensei.observe(index, wrong, labels)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, {"population": 3}, PRESETS["sensei"], WorstOf.Config(), "sensay"])
def test_settings_that_are_none_are_named(wrong: Any) -> None:
    with pytest.raises(UserError, match=r"settings: .* is none of sensei, sensei-sa, .*, nor a Sensei\.Config"):
        Sensei(T3, samples=3, settings=wrong)


def test_an_empty_state_forgets_what_the_fitness_learnt(tiny_net: nn.Module, fashion: DataSet) -> None:
    data = fashion.train.take(torch.arange(8))
    batch = data.batch(torch.arange(8), "cpu")
    sensei = Sensei(T3, samples=8, fitness="neuron-coverage")
    sensei.begin_epoch(tiny_net, data, 1)
    sensei.load_state_dict({})
    with pytest.raises(UserError, match="NeuronCoverage needs begin_epoch"):
        sensei(tiny_net, batch.images, batch.labels, batch.index, 1)


@pytest.mark.parametrize("when", ["search", "observe", "look again"])
def test_an_answer_that_is_not_finite_is_not_robust(when: str, fashion: DataSet) -> None:
    """The highest of NaN would be class 0, which may be the label."""
    images, _, index = rows(fashion, 2)

    class Lost(nn.Module):
        value = 0.0

        def forward(self, x: Tensor) -> Tensor:
            return torch.full((len(x), 3), self.value).double()

    model, labels = Lost(), torch.zeros(2).long()
    sensei = Sensei(T3, samples=2, settings="sensei-sa", skip="classification")
    if when != "search":
        sensei(model, images, labels, index, 1)
        assert not sensei.state_dict()["coming"].any()
    if when == "look again":
        sensei(model, images, labels, index, 2)
    model.value = float("nan")
    sensei(model, images, labels, index, 3)
    if when == "observe":
        sensei.observe(index, model(images), labels)
    assert sensei.state_dict()["coming"].all()

"""Fitness by name, and a user's own."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.fitness import (
    FITNESS,
    DistanceSurprise,
    Fitness,
    NeuronCoverage,
    Scored,
    cross_entropy,
    divergence,
    fitness_of,
    margin,
    misclassified_first,
)

NAMES = """cross-entropy margin kl binary-cross-entropy misclassified neuron-coverage multisection-coverage
    likelihood-surprise distance-surprise uncertainty predictive-entropy"""

OWN = '''
from ukemi.fitness import Fitness

def plain(scored):
    return scored.logits[:, 0]

class Mine(Fitness):
    """With a setting."""

    def __init__(self, power=2):
        self.power = power

    def __call__(self, scored):
        return scored.logits[:, 0] ** self.power

class Unfinished(Fitness):
    pass

class Needs(Fitness):
    def __init__(self, power):
        self.power = power

    def __call__(self, scored):
        return scored.logits[:, 0]

ready = Mine(3)

def factory(power=4):
    return Mine(power)

def any_number(*scored):
    return scored[0].logits[:, 0]

def makes_nothing():
    return None

number = 7
'''


@pytest.fixture
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_fitness.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


def scored() -> Scored:
    return Scored(nn.Identity(), torch.zeros(2, 1, 2, 2), torch.zeros(2).long(), torch.tensor([[2.0, 0.0], [3.0, 0.0]]))


def test_names() -> None:
    assert list(FITNESS) == NAMES.split()
    assert fitness_of("cross-entropy") is cross_entropy and fitness_of("kl") is divergence
    assert fitness_of("margin") is margin and fitness_of("misclassified") is misclassified_first
    first, second = fitness_of("neuron-coverage"), fitness_of("neuron-coverage")
    assert isinstance(first, NeuronCoverage) and first is not second  # state is never shared
    assert isinstance(fitness_of("distance-surprise"), DistanceSurprise)


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("name", "expected"),
    [("plain", [2, 3]), ("Mine", [4, 9]), ("ready", [8, 27]), ("factory", [16, 81]), ("any_number", [2, 3])],
)
def test_your_own_by_its_place(name: str, expected: list[float]) -> None:
    assert fitness_of(f"own_fitness:{name}")(scored()).tolist() == expected


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("losss", r"fitness: 'losss' is not known; known are cross-entropy, .*, and your own as package\.module:name"),
        ("own_fitness:nothing", "fitness: module 'own_fitness' has no name 'nothing'"),
        ("no_such_module:x", r"fitness: 'no_such_module:x' can't be imported"),
        ("own_fitness:number", "should be a function or a Fitness, but it is a int"),
        ("own_fitness:Unfinished", r"fitness: 'own_fitness:Unfinished' made no fitness \(TypeError"),
        ("own_fitness:Needs", r"made no fitness \(TypeError: .*'power'"),
        ("own_fitness:makes_nothing", "should make a function or a Fitness, but it made a NoneType"),
    ],
)
def test_what_is_not_there_is_named(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        fitness_of(name)


class Direct(Fitness):
    def __call__(self, scored: Scored) -> Tensor:
        return scored.logits[:, 1]


def test_a_callable_is_taken_as_it_is() -> None:
    ready = Direct()
    assert fitness_of(ready) is ready and fitness_of(margin) is margin
    assert isinstance(fitness_of(Direct), Direct)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="a name or a function is expected, but 3 was given"):
        fitness_of(3)  # type: ignore[arg-type]

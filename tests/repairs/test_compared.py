"""A repair beside its controls: columns by hand, and the rule by which one beats the others."""

from math import inf, sqrt
from statistics import stdev

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ukemi.attacks.config import AttackConfig
from ukemi.data import Data
from ukemi.measures.attacks import UnderAttack
from ukemi.repairs import Column, columns_of, lead, verdict
from ukemi.repairs.compared import beats, distances


class Threshold(nn.Module):
    """Class 1 where the mean pixel is above `at`: an error lies |mean - at| away in linf."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor(at))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        above = 20 * (images.mean((1, 2, 3)) - self.at)
        return torch.stack([-above, above], 1)


def even(values: list[float], labels: list[int]) -> Data:
    images = torch.tensor(values)[:, None, None, None].expand(-1, 1, 2, 2).clone()
    return Data(images, torch.tensor(labels), ("low", "high"), torch.arange(len(labels)), len(labels))


def test_the_columns_of_a_model() -> None:
    data = even([0.1, 0.45, 0.6, 0.9, 0.4], [0, 0, 1, 1, 1])
    attacks = {"pgd": AttackConfig(attack="pgd", epsilon=0.2), "c&w": AttackConfig(attack="carlini-wagner", steps=300)}
    found = columns_of(Threshold(0.5), data, {"set": even([0.6, 0.4], [0, 0])}, attacks)
    assert list(found) == ["clean", "frozen set", "white-box pgd", "white-box c&w"]
    assert found["clean"].values.tolist() == [1, 1, 1, 1, 0] and found["clean"].mean == 0.8
    assert found["frozen set"].values.tolist() == [0, 1] and found["frozen set"].kind == "frozen"
    assert found["white-box pgd"].values.tolist() == [1, 0, 0, 1, 0]
    # four equal pixels: twice as far in l2 as in linf
    expected = torch.tensor([0.8, 0.1, 0.2, 0.8, 0.0]).double()
    assert torch.allclose(found["white-box c&w"].values, expected, atol=0.02)
    assert found["white-box c&w"].unit == "distance"


def test_where_nothing_is_found_an_error_is_as_far_as_the_farthest() -> None:
    right, fooled = torch.tensor([True, True, False, True]), torch.tensor([True, False, False, True])
    distance = torch.tensor([0.5, torch.nan, torch.nan, 2.0])
    assert distances(UnderAttack(right, fooled, distance, "l2", 0, 0)).tolist() == [0.5, 2.0, 0.0, 2.0]
    none = UnderAttack(right, torch.zeros(4).bool(), torch.full((4,), torch.nan), "l2", 0, 0)
    assert distances(none).tolist() == [0.0] * 4


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=20))
def test_a_lead_against_plain_python(pairs: list[tuple[float, float]]) -> None:
    more = [a - b for a, b in pairs]
    mean, error = lead(*zip(*pairs, strict=True))
    assert mean == pytest.approx(sum(more) / len(more), abs=1e-9)
    assert error == pytest.approx(stdev(more) / sqrt(len(more)), abs=1e-9)
    assert lead([1.0], [0.0]) == (1.0, inf)


def test_the_rule_and_its_words() -> None:
    def column(kind, hits, of=100):  # type: ignore[no-untyped-def]
        return Column(kind, (torch.arange(of) < hits).double())

    assert beats(column("frozen", 60), [column("frozen", 40), column("frozen", 50)])
    assert not beats(column("frozen", 60), [column("frozen", 40), column("frozen", 59)])  # one image is no lead
    assert not beats(column("frozen", 60), [column("frozen", 80)])

    def model(frozen: int, attacked: int):  # type: ignore[no-untyped-def]
        return {
            "clean": column("clean", 90),
            "frozen c&w": column("frozen", frozen),
            "white-box pgd": column("white-box", attacked),
        }

    controls = {"random": model(30, 20), "continued": model(40, 25)}
    ends = {
        (60, 50): "dare does more than its null controls.",
        (60, 25): "dare beats its null controls on frozen images only: attacked itself it is no stronger.",
        (40, 50): "dare beats its null controls only when attacked itself.",
        (41, 26): "dare does not beat its null controls.",
    }
    for both, end in ends.items():
        said = verdict("dare", model(*both), controls)
        assert said[0] == end and len(said) == 3
    said = verdict("dare", model(60, 25), controls)
    assert "in 1 of 1 measures" in said[1] and "c&w +20.0 ± 4.0 points" in said[1]
    assert "in 0 of 1 measures" in said[2] and "pgd +0.0 ± 0.0 points" in said[2]


def test_of_one_image_no_error_is_known() -> None:
    one = {"frozen PGD": Column("frozen", torch.tensor([0.0]))}
    other = {"frozen PGD": Column("frozen", torch.tensor([1.0]))}
    said = " ".join(verdict("dare", one, {"null": other}))
    assert "PGD -100.0 points on one image" in said and "inf" not in said

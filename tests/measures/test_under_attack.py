"""Robustness under attack: closed forms on a linear model, STYX's formula and its grid, CSV."""

import csv
import io
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.attacks import fgsm
from ukemi.attacks.config import AttackConfig
from ukemi.data import labelled
from ukemi.measures.attacks import as_csv, styx_grid, under_attack


class Brightness(nn.Module):
    """Class 1 where the mean pixel is above a half: the exact linf distance to the boundary is |mean - 0.5|."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(7.0))

    def forward(self, x: Tensor) -> Tensor:
        score = self.scale * (x.flatten(1).mean(1) - 0.5)
        return torch.stack([-score, score], 1)


LEVELS = torch.tensor([0.1, 0.3, 0.45, 0.55, 0.62, 0.95])
DATA = labelled(LEVELS[:, None, None, None].expand(-1, 1, 4, 4).contiguous(), torch.tensor([0, 0, 0, 1, 1, 0]))


@pytest.mark.parametrize("epsilon", [0.0, 0.06, 0.15, 0.3, 0.5])
def test_who_falls_is_known_on_a_linear_model(epsilon: float) -> None:
    found = under_attack(Brightness(), DATA, partial(fgsm, epsilon=epsilon))
    assert found.right.tolist() == [True] * 5 + [False]
    falls = ((LEVELS - 0.5).abs() < epsilon) & found.right
    assert torch.equal(found.fooled, falls)
    assert found.accuracy == pytest.approx(5 / 6)
    assert found.attacked_accuracy == pytest.approx((5 - int(falls.sum())) / 6)
    assert found.robustness == pytest.approx(1 - int(falls.sum()) / 5)
    assert torch.equal(found.distance.isnan(), ~falls)
    assert found.backwards <= 5


def test_blocks_and_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ukemi.measures.attacks.BLOCK", 4)
    heard: list[tuple[int, int]] = []
    parts = under_attack(Brightness(), DATA, partial(fgsm, epsilon=0.1), report=lambda *at: heard.append(at))
    monkeypatch.setattr("ukemi.measures.attacks.BLOCK", 100)
    whole = under_attack(Brightness(), DATA, partial(fgsm, epsilon=0.1))
    assert torch.equal(parts.fooled, whole.fooled) and heard == [(4, 6), (6, 6)]


def test_a_model_that_knows_nothing_has_no_robustness() -> None:
    class Wrong(Brightness):
        def forward(self, x: Tensor) -> Tensor:
            return -super().forward(x)

    found = under_attack(Wrong(), DATA.take(torch.arange(5)), partial(fgsm, epsilon=0.1))
    assert found.accuracy == 0 and found.robustness != found.robustness and found.forwards == 0


def test_an_attack_is_told_by_one_schema() -> None:
    told = AttackConfig(attack="pgd", epsilon="8/255", steps=3)
    assert told.title() == "pgd (epsilon 0.0313725, steps 3)"
    found = under_attack(Brightness(), DATA, told.made())
    assert found.fooled.sum() == 0
    for wrong, said in (
        ({"attack": "pgd"}, "epsilon: pgd needs it"),
        ({"attack": "fgsm", "epsilon": 0.1, "steps": 3}, "steps: fgsm .* does not take it; it takes epsilon, norm"),
        ({"attack": "hope"}, "attack: 'hope' is none of fgsm"),
        ({"attack": "pgd,epsilon=0.1"}, "attack: 'pgd,epsilon=0.1' should be a name alone"),
        ({"attack": "pgd", "epsilon": -1}, r"attack\.epsilon: should be greater than or equal to 0"),
    ):
        with pytest.raises(UserError, match=said):
            AttackConfig(**wrong)


def test_styx_grid_has_the_released_configurations() -> None:
    grid = styx_grid()
    told: dict[str, list[dict[str, float | str]]] = {}
    for norm, unit in (("l1", 10), ("l2", 1), ("linf", 0.05)):
        told[f"fgsm-{norm}"] = [{"norm": norm, "epsilon": unit * at} for at in range(1, 11)]
    for norm, epsilon, unit in (("l1", 20, 2), ("l2", 2, 0.2), ("linf", 0.1, 0.002)):
        pairs = [(at, steps) for at in range(1, 6) for steps in (10, 50)]
        told[f"bim-{norm}"] = [
            {"norm": norm, "epsilon": epsilon, "step_size": unit * at, "steps": steps} for at, steps in pairs
        ]
    told["deepfool"] = [{"steps": steps, "overshoot": 0.1} for steps in range(2, 21, 2)]
    assert {name: [each.settings() for each in grid[name]] for name in grid} == told
    assert all(each.attack == name.partition("-")[0] for name in grid for each in grid[name])


def test_spreadsheets_read_the_table() -> None:
    rows = [{"attack": "fgsm, l1", "robustness": 0.5}, {"attack": 'a "b"', "robustness": float("nan")}]
    text = as_csv(rows)
    back = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    assert text.startswith("\ufeff") and [row["attack"] for row in back] == ["fgsm, l1", 'a "b"']

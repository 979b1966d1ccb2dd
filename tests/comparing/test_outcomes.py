"""What a run came to."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ukemi.comparing import outcomes
from ukemi.comparing.plan import Measured
from ukemi.data import labelled
from ukemi.errors import UserError
from ukemi.measures.statistics import paired
from ukemi.training import TrainConfig


def test_where_nothing_is_recognised_nothing_holds_under_attack() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    nn.init.zeros_(net[1].weight)
    net[1].bias = nn.Parameter(torch.tensor([0.0, 5.0]))  # always the second class
    data = labelled(torch.rand(6, 1, 8, 8), torch.zeros(6, dtype=torch.long), ("cat", "dog"))
    attacks = {"weak": [{"attack": "fgsm", "epsilon": 0.01}], "strong": [{"attack": "fgsm", "epsilon": 0.5}]}
    measures: dict[str, float] = {}
    images: dict[str, Tensor] = {}
    index: dict[str, Tensor] = {}
    outcomes._attacked(net, data, Measured(("t2-27",), None, attacks, 4), measures, images, index)
    groups = ("", " weak", " strong")
    assert measures == {f"{name}{group}": 0.0 for group in groups for name in ("attacked", "robustness")}
    assert all(len(images[f"attacked{group}"]) == len(index[f"attacked{group}"]) == 4 for group in groups)


def test_models_that_hold_equally_often_have_equal_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two images under three attacks: one holds once and one twice, or one holds always and one never."""
    data = labelled(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]), ("cat", "dog"))
    group = {"three": [{"attack": "fgsm", "epsilon": epsilon} for epsilon in (0.1, 0.2, 0.3)]}
    found = []
    for held in (((1, 0), (0, 1), (0, 1)), ((1, 0), (1, 0), (1, 0))):
        right = torch.tensor([True, True])
        told = iter(SimpleNamespace(right=right, fooled=torch.tensor(one) == 0, robustness=0.5) for one in held)
        monkeypatch.setattr(outcomes, "under_attack", lambda *_, told=told: next(told))
        measures: dict[str, float] = {}
        outcomes._attacked(nn.Identity(), data, Measured(("t2-27",), None, group, 2), measures, {}, {})
        found.append(measures["attacked"])
    assert paired([found[0]], [found[1]]).ties == 1, found


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"attack": "pgd", "epsilon": 8.0}, "epsilon: it should lie in 0 to 1 for linf, but 8 was given."),
        ({"attack": "fgsm", "epsilon": 0.1}, ""),
    ],
)
def test_an_attack_s_settings_are_looked_at_before_any_training(told: dict[str, Any], said: str) -> None:
    data = labelled(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]), ("cat", "dog"))
    tried = partial(outcomes.try_measures, TrainConfig(), data, Measured(("t2-27",), None, {"one": [told]}, 2))
    if said:
        with pytest.raises(UserError, match=f"^{said}$"):
            tried()
    else:
        tried()

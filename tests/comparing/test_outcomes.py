"""What a run came to."""

import torch
from torch import Tensor, nn

from ukemi.comparing.outcomes import _attacked
from ukemi.comparing.plan import Measured
from ukemi.data import labelled


def test_where_nothing_is_recognised_nothing_holds_under_attack() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    nn.init.zeros_(net[1].weight)
    net[1].bias = nn.Parameter(torch.tensor([0.0, 5.0]))  # always the second class
    data = labelled(torch.rand(6, 1, 8, 8), torch.zeros(6, dtype=torch.long), ("cat", "dog"))
    attacks = {"weak": [{"attack": "fgsm", "epsilon": 0.01}], "strong": [{"attack": "fgsm", "epsilon": 0.5}]}
    measures: dict[str, float] = {}
    images: dict[str, Tensor] = {}
    index: dict[str, Tensor] = {}
    _attacked(net, data, Measured(("t2-27",), None, attacks, 4), measures, images, index)
    groups = ("", " weak", " strong")
    assert measures == {f"{name}{group}": 0.0 for group in groups for name in ("attacked", "robustness")}
    assert all(len(images[f"attacked{group}"]) == len(index[f"attacked{group}"]) == 4 for group in groups)

"""What a training costs, and the same budget for all."""

from math import inf
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from ukemi.comparing import CompareConfig, plan_of, planned
from ukemi.comparing.costs import Cost, _counted, cost_of, equalised
from ukemi.data import DataSet
from ukemi.training.setup import make_model


@pytest.mark.parametrize(
    ("method", "scoring", "forwards", "backwards"),
    [
        ("standard", (0, 0), 1, 1),
        ("random", (0, 0), 1, 1),
        ("worst-of,k=4", (4, 4), 1, 1),
        ("worst-of,k=4,when=epoch", (4, 4), 1, 1),
        ("sensei,population=5", (0, 5, 5), 1, 1),
        ("sensei,population=5,warmup=0", (5, 5), 1, 1),
        ("ukemi,population=5", (0, 5, 5), 2, 2),  # clean images and variants
        ("random,objective=mixup", (0, 0), 1, 1),
    ],
)
def test_passes_per_image(
    method: str, scoring: tuple[int, ...], forwards: int, backwards: int, fashion: DataSet
) -> None:
    one = planned(CompareConfig(methods=(method,), seeds=1)).planned[0]
    assert cost_of(one, fashion.train) == Cost(scoring, forwards, backwards)


def test_what_a_retraining_tries_and_trains_is_counted(fashion: DataSet) -> None:
    config = CompareConfig(methods=[{"name": "again", "then": "retrain"}], seeds=1)
    cost = cost_of(planned(config).planned[0], fashion.train)
    # ten variants per epoch, found behind the training; then five epochs of a forward and a backward, of every image
    # and of at most as many variants that fool
    assert cost == Cost((10, 10), 1, 1, after=20) and cost.until(3) == 3 * (10 + 2) + 20


def test_a_search_that_watches_images_which_are_mixed_looks_at_them_once_more(fashion: DataSet) -> None:
    costs = [
        cost_of(planned(CompareConfig(methods=(f"sensei-sa,population=5{more}",), seeds=1)).planned[0], fashion.train)
        for more in ("", ",objective=mixup")
    ]
    assert [mixed - plain for plain, mixed in zip(*(one.scoring for one in costs), strict=True)] == [1, 1, 1]


def test_an_attack_while_training_is_counted(fashion: DataSet) -> None:
    objective = {"name": "adversarial", "attack": "bim", "steps": 3, "ratio": 0.5}
    config = CompareConfig(methods=[{"name": "a", "objective": objective}], seeds=1)
    cost = cost_of(planned(config).planned[0], fashion.train)
    # three steps of half the batch and the training step itself; the attack may judge its last images once more
    assert cost.scoring == (0, 0) and 2.5 <= cost.forwards <= 3.5 and 2.5 <= cost.backwards <= 3.5


def test_a_teachers_passes_are_counted(fashion: DataSet, tmp_path: Path) -> None:
    plain = planned(CompareConfig(methods=("standard",), seeds=1)).planned[0]
    weights = tmp_path / "teacher.safetensors"
    save_file(make_model(plain.config, fashion.train, fashion.train.classes, None).state_dict(), weights)
    objective = {"name": "distillation", "teacher": str(weights)}
    one = planned(CompareConfig(methods=[{"name": "a", "objective": objective}], seeds=1)).planned[0]
    assert cost_of(one, fashion.train) == Cost((0, 0), 2, 1)


def test_a_pass_without_gradients_is_a_forward_alone() -> None:
    model = nn.Linear(2, 2)
    with _counted(model) as counts:
        model(torch.rand(3, 2))
        with torch.no_grad():
            model(torch.rand(5, 2))
    model(torch.rand(9, 2))
    assert counts == [8, 3]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 3), st.integers(1, 3), st.floats(1, 300))
def test_a_budgets_epochs_are_the_nearest(scoring: list[int], forwards: int, backwards: int, budget: float) -> None:
    cost = Cost(tuple(scoring), forwards, backwards)
    found, best, best_off = cost.epochs_for(budget), 1, inf
    for epochs in range(1, 160):
        spent = sum(scoring[min(at, len(scoring) - 1)] + forwards + backwards for at in range(epochs))
        assert cost.until(epochs) == spent
        if abs(spent - budget) < best_off:
            best, best_off = epochs, abs(spent - budget)
    assert abs(cost.until(found) - budget) == best_off and abs(found - best) <= 1


def test_equal_cost_changes_epochs_and_nothing_else() -> None:
    config = CompareConfig(
        methods=("standard", "worst-of,k=4", "sensei,population=4"),
        train={"epochs": 4, "schedule": "step", "drops": [1, 3]},
        seeds=2,
        equal_cost=True,
    )
    plan, usual = plan_of(config), planned(config)
    epochs = [one.config.epochs for one in plan.planned]
    assert epochs == [12, 4, 5] * 2  # 24 passes per image: 12 x 2, 4 x (4 + 2), 2 + 4 x (4 + 2) = 26
    assert plan.planned[0].config.drops == (3, 9)
    for one, before in zip(plan.planned, usual.planned, strict=True):
        assert one.config.model_copy(update={"epochs": 4, "drops": (1, 3)}) == before.config
    assert [one.config.epochs for one in equalised(usual).planned] == epochs

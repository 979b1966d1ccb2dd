"""Schedules against torch's own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ukemi.training import TrainConfig
from ukemi.training.schedules import constant, cosine, one_cycle, steps


def theirs(make: object, count: int) -> list[float]:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = make(optimiser)  # type: ignore[operator]
    rates = []
    for _ in range(count):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    return rates


def test_cosine_equals_torch() -> None:
    rates = theirs(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 50), 50)
    assert [cosine(i / 50) for i in range(50)] == pytest.approx(rates, abs=1e-6)


def test_one_cycle_equals_torch() -> None:
    # torch's peak lies at step 0.3 * total - 1 and its end at total - 1
    rates = theirs(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=1001, pct_start=0.3), 1001)
    assert [one_cycle(i / 1000) for i in range(1001)] == pytest.approx(rates, abs=5e-3)


def test_steps_equals_torch() -> None:
    rates = theirs(lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [4, 8], 0.1), 10)
    assert [steps(i / 10) for i in range(10)] == pytest.approx(rates)
    schedule = TrainConfig(schedule="step", drops=(4, 8), epochs=10).make_schedule()
    assert [schedule(i / 10) for i in range(10)] == pytest.approx(rates)
    assert constant(0.3) == 1.0


@given(st.floats(0, 1))
def test_shares_stay_in_range(progress: float) -> None:
    for schedule in (constant, cosine, one_cycle, steps):
        assert 0 <= schedule(progress) <= 1

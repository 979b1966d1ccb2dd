"""Update rules against their formulas, written out."""

import torch
from torch import Tensor, nn

from ukemi.training.guard import Guard
from ukemi.training.optimisers import adadelta, rmsprop


def walked(make: object, rate: float) -> tuple[list[float], list[float]]:
    """A weight under the gradients of (w - 3)², ten steps; and the gradients that it met."""
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimiser = make([weight], torch.tensor(rate), 0.01, 0.9)  # type: ignore[operator]
    Guard(optimiser, torch.device("cpu"))
    places, slopes = [], []
    for _ in range(10):
        optimiser.zero_grad()
        (weight - 3).square().sum().backward()
        assert weight.grad is not None
        slopes.append(weight.grad.item() + 0.01 * weight.item())
        optimiser.step()
        places.append(weight.item())
    return places, slopes


def test_rmsprop_is_its_formula() -> None:
    places, slopes = walked(rmsprop, 0.125)
    weight, mean = 1.0, 0.0
    for place, slope in zip(places, slopes, strict=True):
        mean = 0.9 * mean + 0.1 * slope**2
        weight -= 0.125 * slope / (mean**0.5 + 1e-7)
        assert abs(place - weight) < 1e-12


def test_adadelta_is_its_formula() -> None:
    places, slopes = walked(adadelta, 1.0)
    weight, mean, steps = 1.0, 0.0, 0.0
    for place, slope in zip(places, slopes, strict=True):
        mean = 0.95 * mean + 0.05 * slope**2
        step = slope * ((steps + 1e-7) / (mean + 1e-7)) ** 0.5
        steps = 0.95 * steps + 0.05 * step**2
        weight -= step
        assert abs(place - weight) < 1e-12


def test_the_rate_is_read_at_every_step() -> None:
    rate: Tensor = torch.tensor(0.0)
    weight = nn.Parameter(torch.ones(1))
    optimiser = rmsprop([weight], rate, 0.0, 0.0)
    Guard(optimiser, torch.device("cpu"))
    for given, moves in ((0.0, False), (0.5, True)):
        before = weight.item()
        rate.fill_(given)
        weight.grad = torch.ones(1)
        optimiser.step()
        assert (weight.item() != before) == moves

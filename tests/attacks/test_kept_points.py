"""Of all the points that an attack looks at, the best is given back; and where random ones begin."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks import (
    NORMS,
    Norm,
    bim,
    carlini_wagner,
    fgsm,
    length,
    log_odds,
    pgd,
    project,
    random_points,
    steepest,
)

Case = tuple[nn.Module, Tensor, Tensor]


@pytest.fixture
def alone(tiny_net: nn.Module) -> Case:
    """A network in double precision, and one image with the label that it gives."""
    model, images = tiny_net.double().eval(), torch.rand(1, 1, 28, 28, dtype=torch.float64)
    with torch.no_grad():
        return model, images, model(images).argmax(1)


def seen_by(model: nn.Module, attack: Any, *given: Tensor, **options: Any) -> tuple[Any, Tensor, Tensor]:
    """What an attack gives, and all that went through the model and came out of it, in order."""
    passed: list[tuple[Tensor, Tensor]] = []
    handle = model.register_forward_hook(lambda _part, into, out: passed.append((into[0].detach(), out.detach())))
    found = attack(model, *given, **options)
    handle.remove()
    points, outputs = (torch.cat(column) for column in zip(*passed, strict=True))
    return found, points, outputs


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("attack", [bim, pgd])
def test_the_highest_loss_of_all_points_is_kept(attack: Any, early: bool, alone: Case) -> None:
    """With steps that go too far, losses rise and fall, and the last point is not the best one."""
    model, images, labels = alone
    options = {"epsilon": 1e-3, "steps": 7, "step_size": 1.9e-3, "norm": "l2", "early": early}
    found, points, outputs = seen_by(model, attack, images, labels, **options)
    values = log_odds(outputs, labels.expand(len(outputs)))
    assert not bool(found.success) and int(values.argmax()) != len(values) - 1
    assert torch.equal(found.images[0], points[values.argmax()])


class Jumping(nn.Module):
    """Below a grey of 0.7 the label leads by little among many, above it one other leads and the rest is far behind:
    an error at lower log odds."""

    def forward(self, images: Tensor) -> Tensor:
        grey = images.flatten(1).mean(1, keepdim=True)
        dark, bright = torch.tensor([[0.1, *[0.0] * 8]]), torch.tensor([[0.0, 0.1, *[-9.0] * 7]])
        rise = torch.tensor([[0.0, *[1e-3] * 8]])
        return torch.where(grey > 0.7, bright, dark).to(images) + rise.to(images) * grey


@pytest.mark.parametrize("attack", [bim, pgd])
def test_a_point_that_fools_comes_before_one_of_higher_loss(attack: Any) -> None:
    model, images, labels = Jumping().eval(), torch.full((1, 1, 8, 8), 0.5), torch.tensor([0])
    found, points, outputs = seen_by(model, attack, images, labels, epsilon=0.3, steps=2, step_size=0.3)
    values, wrong = log_odds(outputs, labels.expand(len(outputs))), outputs.argmax(1) != 0
    assert bool(wrong.any()) and float(values[wrong].max()) < float(values[~wrong].max())
    assert bool(found.success) and int(model(found.images).argmax()) == 1
    without = attack(model, images, labels, epsilon=0.3, steps=2, step_size=0.3, early=False)
    assert torch.equal(without.images[0], points[values.argmax()]) and not bool(without.success)


class Unsure(nn.Module):
    """A network whose logits are no numbers, of every image or of those that are bright."""

    def __init__(self, net: nn.Module, above: float) -> None:
        super().__init__()
        self.net, self.above = net, above

    def forward(self, images: Tensor) -> Tensor:
        bright = images.flatten(1).amax(1, keepdim=True) > self.above
        return torch.where(bright, torch.nan, self.net(images))


@pytest.mark.parametrize("above", [-1, 0.999])
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("attack", [bim, pgd])
def test_success_is_that_of_the_image_where_logits_are_no_numbers(
    attack: Any, early: bool, above: float, alone: Case
) -> None:
    model, images, labels = alone
    images[0, 0, 0, 0] = 1
    model = Unsure(model, above).eval()
    found = attack(model, images, labels, epsilon=0.01, steps=3, early=early)
    answers = model(found.images)
    assert bool(found.success) == bool(answers.isnan().any() or answers.argmax() != labels)


def test_every_restart_begins_elsewhere(alone: Case) -> None:
    model, images, labels = alone
    options = {"epsilon": 1e-3, "steps": 1, "restarts": 3, "zero_start": False}
    _, points, _ = seen_by(model, pgd, images, labels, **options)
    starts = points[::2]  # each run: its start, and one step
    assert len(starts) == 3 and len(starts.unique(dim=0)) == 3


def test_carlini_wagner_gives_the_nearest_of_all_images_that_fool(alone: Case) -> None:
    model, images, labels = alone
    options = {"searches": 6, "steps": 60, "initial": 1.0, "rate": 0.1, "abort_early": False}
    found, points, outputs = seen_by(model, carlini_wagner, images, labels, **options)
    wrong = points[outputs.argmax(1) != labels]
    far = length(wrong - images, "l2")
    assert bool(found.success) and float(far.min()) < float(far[-1])
    assert float(found.distance) == float(far.min())


@pytest.mark.parametrize("norm", NORMS)
def test_fgsm_from_a_random_start_steps_a_quarter_further(norm: Norm, alone: Case) -> None:
    """Wong et al. 2020; what leaves the ball is brought back."""
    model, images, labels = alone
    epsilon = {"l1": 2.0, "l2": 0.3, "linf": 0.02}[norm]
    radius = torch.tensor([epsilon], dtype=torch.float64)
    start = random_points(images, radius, norm, torch.tensor([5]), seed=3, number=0)
    there = fgsm(model, images, labels, epsilon=epsilon, norm=norm, random_start=True, index=torch.tensor([5]), seed=3)
    leaf = start.clone().requires_grad_()
    (slope,) = torch.autograd.grad(log_odds(model(leaf), labels).sum(), leaf)
    expected = project(steepest(start, slope, 1.25 * radius, norm), images, radius, norm)
    assert torch.allclose(there.images, expected, atol=1e-12)

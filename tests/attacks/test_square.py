"""Square: a closed form, exact budgets, no gradients, who leaves, and independence of batch mates."""

import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks import bim
from ukemi.attacks.norms import Ball
from ukemi.attacks.square import SHRINKS, _squared, square
from ukemi.errors import UserError


class Brightness(nn.Module):
    """Class 1 where the mean pixel is above a half: an image falls where |mean - 0.5| < epsilon, and only there."""

    def __init__(self, rounded: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(20.0, dtype=torch.float64))
        self.rounded = rounded
        self.seen = 0

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        images = (images * 64).round() / 64 if self.rounded else images
        score = self.scale * (images.flatten(1).mean(1) - 0.5)
        return torch.stack([-score, score], 1)


def levels(*values: float, side: int = 6) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None, None, None].expand(-1, 1, side, side).contiguous()


IMAGES = levels(0.2, 0.38, 0.44, 0.56, 0.62, 0.9)
LABELS = torch.tensor([0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("rounded", [False, True])
def test_it_reaches_the_optimum_of_a_linear_model_without_a_gradient(rounded: bool) -> None:
    model = Brightness(rounded)
    found = square(model, IMAGES, LABELS, epsilon=0.13, steps=600)
    assert found.success.tolist() == [False, True, True, True, True, False]
    assert int(found.backwards.sum()) == 0 and model.scale.grad is None
    # of an image that holds, the whole budget is used: the greedy optimum of a linear model
    assert float(found.images[0].mean()) > 0.32 and float(found.images[-1].mean()) < 0.78


def test_limits_hold_to_the_last_bit_and_passes_are_counted() -> None:
    torch.manual_seed(3)
    images = torch.rand(20, 3, 7, 5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(105, 4)).eval()
    found = square(model, images, model(images).argmax(1), epsilon=8 / 255, steps=40)
    assert float(found.images.min()) >= 0 and float(found.images.max()) <= 1
    change = (found.images.double() - images.double()).flatten(1).abs().amax(1)
    assert float(change.max()) <= 8 / 255 and torch.allclose(found.distance.double(), change)
    assert torch.equal(model(found.images).argmax(1) != model(images).argmax(1), found.success)
    assert bool((found.forwards[~found.success] == 41).all()) and 0 < int(found.success.sum()) < 20
    assert bool((found.forwards[found.success] <= 41).all())


def test_solved_samples_leave_and_wrong_ones_stay_as_they_are() -> None:
    model = Brightness()
    found = square(model, IMAGES, torch.tensor([1, 0, 0, 1, 1, 1]), epsilon=0.13, steps=300)
    assert bool(found.success[0]) and found.distance[0] == 0 and found.forwards[0] == 1
    assert model.seen == int(found.forwards.sum())


def test_a_result_depends_on_seed_and_index_alone() -> None:
    model, index = Brightness(), torch.tensor([7, 1, 5, 0, 9, 4])
    whole = square(model, IMAGES, LABELS, epsilon=0.1, steps=60, index=index, seed=2)
    for row in range(len(IMAGES)):
        one = slice(row, row + 1)
        alone = square(model, IMAGES[one], LABELS[one], epsilon=0.1, steps=60, index=index[one], seed=2)
        assert torch.equal(alone.images, whole.images[one]) and torch.equal(alone.forwards, whole.forwards[one])
    other = square(model, IMAGES, LABELS, epsilon=0.1, steps=60, index=index, seed=3)
    assert not torch.equal(other.images, whole.images)


def test_it_never_beats_the_optimum_and_targets_are_reached() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).double().eval()
    images = torch.rand(30, 1, 6, 6, dtype=torch.float64)
    labels = model(images).argmax(1)
    targets = 1 - labels
    black = square(model, images, labels, epsilon=0.15, steps=500, targets=targets)
    white = bim(model, images, labels, epsilon=0.15, steps=40, targets=targets)
    assert torch.equal(model(black.images).argmax(1) == targets, black.success)
    assert not bool((black.success & ~white.success).any())
    assert int(black.success.sum()) >= 0.8 * int(white.success.sum()) > 0


def test_on_a_plateau_every_step_is_kept() -> None:
    """Else a model that rounds would hold it where it began."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).double()
    nn.init.zeros_(model[1].weight)
    found = square(model, levels(0.4, 0.6), model(levels(0.4, 0.6)).argmax(1), epsilon=0.1, steps=1)
    assert torch.allclose((found.images - levels(0.4, 0.6)).abs(), torch.tensor(0.1, dtype=torch.float64))


def test_a_square_that_would_change_nothing_takes_the_other_signs() -> None:
    originals = levels(0.5, side=4).float()
    ball = Ball(originals, torch.tensor([0.25]), "linf")
    for sign, drawn in ((0.25, 0.9), (-0.25, 0.1)):
        raised = _squared(ball, originals + sign, torch.tensor([[0.0, 0.0, drawn]]), side=2) - originals
        wanted = torch.full((4, 4), sign)
        wanted[:2, :2] = -sign
        assert torch.equal(raised[0, 0], wanted)


def test_no_steps_and_no_budget_give_the_clean_image() -> None:
    for options in ({"epsilon": 0.1, "steps": 0}, {"epsilon": 0.0, "steps": 5}):
        found = square(Brightness(), IMAGES, LABELS, **options)  # type: ignore[arg-type]
        assert torch.equal(found.images, IMAGES) and not bool(found.success.any())


def test_the_schedule_shrinks() -> None:
    assert list(SHRINKS) == sorted(SHRINKS) and SHRINKS[0] > 0 and SHRINKS[-1] < 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": -0.1}, "epsilon: it should lie in 0 to 1"),
        ({"epsilon": 0.1, "steps": -1}, "steps: it should be 0 or more"),
        ({"epsilon": 0.1, "area": 0.0}, "area: it should lie above 0"),
    ],
)
def test_a_mistake_is_named(options: dict[str, float], said: str) -> None:
    model = Brightness().train()
    with pytest.raises(UserError, match=said):
        square(model, IMAGES, LABELS, **options)  # type: ignore[arg-type]
    assert model.training

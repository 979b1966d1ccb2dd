"""Mixup and manifold mixup against their formulas."""

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi import UserError
from ukemi.data import Data
from ukemi.models import create
from ukemi.objectives import OBJECTIVES, ManifoldMixup, Mixup
from ukemi.objectives.mixup import drawn, inner_points, mixed

LABELS, INDEX = torch.tensor([0, 1, 2, 1, 0, 2]), torch.arange(6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_both_labels_in_proportion(smoothing: float, tiny_net: nn.Module) -> None:
    images = torch.rand(6, 1, 28, 28)
    model = tiny_net.eval()
    torch.manual_seed(3)
    share, other = drawn(1.0, images)
    torch.manual_seed(3)
    outcome = Mixup(smoothing)(model, images, LABELS, INDEX, 0)
    for at in range(6):
        partner = int(other[at])
        mixture = float(share) * images[at] + (1 - float(share)) * images[partner]
        logits = model(mixture[None])
        parts = [F.cross_entropy(logits, LABELS[row][None], label_smoothing=smoothing) for row in (at, partner)]
        expected = float(share) * parts[0] + (1 - float(share)) * parts[1]
        assert outcome.losses[at].item() == pytest.approx(expected.item(), rel=1e-4)
        assert torch.allclose(outcome.logits[at], logits[0], atol=1e-5)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0])
def test_shares_come_from_beta_and_partners_are_a_permutation(alpha: float) -> None:
    shares = []
    for _ in range(1500):
        share, other = drawn(alpha, torch.zeros(5, 1))
        shares.append(float(share))
    assert sorted(other.tolist()) == list(range(5))
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > 1e-3


def test_shares_are_even_unless_asked_and_nearer_to_a_half_inside() -> None:
    assert Mixup().alpha == Mixup.Config().alpha == 1
    assert ManifoldMixup().alpha == ManifoldMixup.Config().alpha == 2


def test_inner_features_are_mixed_behind_the_planned_layer() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 3))
    objective = ManifoldMixup(layers=("1", "3"))
    objective.attach(model)
    images = torch.rand(6, 1, 3, 3)
    for kind in range(3):
        objective.kind = kind
        torch.manual_seed(5)
        found = objective(model, images, LABELS, INDEX, 0).logits
        torch.manual_seed(5)
        share, other = drawn(2.0, images)
        cut = (0, 2, 4)[kind]
        features: Tensor = model[:cut](images) if cut else images
        assert torch.allclose(found, model[cut:](mixed(features, share, other)), atol=1e-6)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_compiled_network_is_mixed_behind_the_planned_layer_too() -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 3))
    objective = ManifoldMixup(layers=("1",))
    objective.attach(plain)
    compiled: nn.Module = torch.compile(plain, backend="eager")  # type: ignore[assignment]
    images = torch.rand(6, 1, 3, 3)
    for kind in (0, 1, 1, 0):
        objective.kind = kind
        expected, found = (_logits(objective, model, images) for model in (plain, compiled))
        assert torch.allclose(found, expected, atol=1e-6)


def test_a_layer_that_is_passed_twice_is_mixed_behind_once() -> None:
    shared = nn.ReLU()
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), shared, nn.Linear(8, 7), shared, nn.Linear(7, 3))
    objective = ManifoldMixup(layers=("2",))
    objective.attach(model)
    objective.kind, images = 1, torch.rand(6, 1, 3, 3)
    torch.manual_seed(5)
    share, other = drawn(2.0, images)
    expected = model[3:](mixed(model[:3](images), share, other))
    assert torch.allclose(_logits(objective, model, images), expected, atol=1e-6)


def _logits(objective: Mixup, model: nn.Module, images: Tensor) -> Tensor:
    torch.manual_seed(5)
    return objective(model, images, LABELS, INDEX, 0).logits


class _Aside(nn.Module):
    """Has a layer that it does not use, and one whose output is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.recurrent, self.head = nn.Linear(9, 3), nn.GRU(9, 4), nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(self.recurrent(images.flatten(1))[0])
        return out


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("unused", r"objective\.layers: Linear\(in_features=9.*\) takes no part in a forward pass"),
        ("recurrent", r"objective\.layers: GRU\(9, 4\) gives a tuple, which can't be mixed"),
    ],
)
def test_a_layer_that_nothing_can_be_mixed_behind_is_named(layer: str, said: str) -> None:
    objective, model = ManifoldMixup(layers=(layer,)), _Aside()
    objective.attach(model)
    objective.kind = 1
    images = torch.rand(6, 1, 3, 3)
    with pytest.raises(UserError, match=said):
        objective(model, images, LABELS, INDEX, 0)
    with pytest.raises(UserError, match=said):  # before a run writes anything
        objective.rehearse(model, Data(images, LABELS, ("a", "b", "c"), INDEX, 6))
    assert not any(module._forward_hooks for module in model.modules())


def test_the_layer_is_drawn_per_step_by_key() -> None:
    objective = ManifoldMixup(layers=("0", "1"))
    objective.attach(nn.Sequential(nn.Flatten(), nn.Linear(9, 3)))
    plan = objective.plan(seed=1, epoch=4, steps=3000)
    assert plan == objective.plan(seed=1, epoch=4, steps=3000) != objective.plan(seed=1, epoch=5, steps=3000)
    assert plan[:10] == objective.plan(seed=1, epoch=4, steps=10)
    counts = torch.bincount(torch.tensor(plan), minlength=3)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("name", ["resnet20", "resnet18", "demo-cnn", "lenet5", "fm-1", "wrn-28-10"])
def test_the_papers_networks_show_inner_points(name: str) -> None:
    size = 28 if name.startswith(("fm", "demo", "lenet")) else 32
    with torch.device("meta"):
        model = create(name, classes=10, channels=3, size=(size, size))
    points = inner_points(model)
    assert len(points) == 2 and points[0] is not points[1]


def test_what_can_not_be_mixed_is_named() -> None:
    with pytest.raises(UserError, match=r"objective\.layers: the model has no module 'nowhere'"):
        ManifoldMixup(layers=("nowhere",)).attach(nn.Sequential(nn.Flatten()))
    with pytest.raises(UserError, match=r"objective\.layers: this model shows no inner parts"):
        ManifoldMixup().attach(nn.Linear(3, 2))
    with pytest.raises(UserError, match=r"objective\.alpha: should be greater than 0"):
        OBJECTIVES["mixup"](alpha=0)

"""FGSM: the optimum on linear models, exact budgets, no traces, samples that don't see their batch mates."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import Tensor, nn

from ukemi.attacks import NORMS, Norm, fgsm, length, log_odds
from ukemi.errors import UserError

LIMITS = {"l1": 3.0, "l2": 0.2, "linf": 0.05}


class Linear(nn.Module):
    """Logits that are linear in the pixels."""

    def __init__(self, classes: int = 2, features: int = 48, scale: float = 1.0) -> None:
        super().__init__()
        self.head = nn.Linear(features, classes).double()
        with torch.no_grad():
            self.head.weight.mul_(scale)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


def grey(rows: int = 8) -> Tensor:
    """Far from black and white, so that small budgets don't meet the box."""
    return 0.4 + 0.2 * torch.rand(rows, 3, 4, 4, dtype=torch.float64)


def gains(model: Linear, images: Tensor, found: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        return log_odds(model(found), labels) - log_odds(model(images), labels)


@pytest.mark.parametrize("norm", NORMS)
def test_fgsm_is_the_optimum_on_a_linear_model(norm: Norm) -> None:
    model, images, labels = Linear(), grey(), torch.arange(8) % 2
    epsilon = 0.3 if norm == "l1" else LIMITS[norm]
    found = fgsm(model, images, labels, epsilon=epsilon, norm=norm)
    slope = (model.head.weight[1] - model.head.weight[0]).detach()
    # the largest g.d over a ball is epsilon times the dual norm of g
    dual = {"l1": slope.abs().max(), "l2": slope.norm(), "linf": slope.abs().sum()}[norm]
    assert torch.allclose(gains(model, images, found.images, labels), epsilon * dual.expand(8), rtol=1e-9)
    assert torch.allclose(found.distance, torch.full((8,), epsilon, dtype=torch.float64), rtol=1e-9)


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_fgsm_is_the_optimum_where_the_box_binds(norm: Norm) -> None:
    model, labels = Linear(), torch.arange(6) % 2
    images = (torch.rand(6, 3, 4, 4, dtype=torch.float64) * 2 - 0.5).clamp(0, 1)
    epsilon = {"l1": 3.0, "linf": 0.3}[norm]
    found = fgsm(model, images, labels, epsilon=epsilon, norm=norm)
    slope = (model.head.weight[1] - model.head.weight[0]).detach()
    for row in range(6):
        g = (slope if labels[row] == 0 else -slope).numpy()
        x = images[row].flatten().numpy()
        cap = 1.0 if norm == "l1" else epsilon
        limits = [(0, min(cap, 1 - v)) for v in x] + [(0, min(cap, v)) for v in x]
        budget = [epsilon] if norm == "l1" else [epsilon * len(g)]
        best = optimize.linprog(np.concatenate([-g, g]), A_ub=np.ones((1, 2 * len(g))), b_ub=budget, bounds=limits)
        own = float(gains(model, images, found.images, labels)[row])
        assert own == pytest.approx(-best.fun, rel=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_targets_go_up(norm: Norm) -> None:
    model, images = Linear(classes=5), grey()
    labels, targets = torch.zeros(8, dtype=torch.int64), torch.arange(8) % 4 + 1
    found = fgsm(model, images, labels, epsilon=LIMITS[norm], norm=norm, targets=targets)
    assert bool((gains(model, images, found.images, targets) < 0).all())
    with torch.no_grad():
        assert torch.equal(found.success, model(found.images).argmax(1) == targets)


def test_a_confident_model_hides_nothing() -> None:
    """Logits so far apart that cross-entropy and its gradient are exactly 0 in float32."""
    model, images = Linear(scale=5000.0).float(), grey(64).float()
    with torch.no_grad():
        labels = model(images).argmax(1)
        assert float(nn.functional.cross_entropy(model(images), labels)) == 0
    found = fgsm(model, images, labels, epsilon=0.3)
    assert bool(found.success.all())


@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_samples_do_not_see_their_batch_mates(tiny_net: nn.Module, norm: Norm, random_start: bool) -> None:
    model = tiny_net.double()
    images, labels = torch.rand(7, 1, 28, 28, dtype=torch.float64), torch.arange(7)
    index = torch.tensor([4, 0, 11, 7, 3, 30, 2])

    def attacked(rows: Tensor) -> Tensor:
        options = {"epsilon": LIMITS[norm], "norm": norm, "random_start": random_start, "index": index[rows], "seed": 5}
        return fgsm(model, images[rows], labels[rows], **options).images  # type: ignore[arg-type]

    together = attacked(torch.arange(7))
    alone = torch.cat([attacked(torch.tensor([row])) for row in range(7)])
    order = torch.tensor([3, 6, 0, 5, 1, 4, 2])
    assert torch.allclose(alone, together, atol=1e-12)
    assert torch.allclose(attacked(order), together[order], atol=1e-12)
    assert bool((length(together - images, norm) <= LIMITS[norm]).all())


def test_counts_modes_and_gradients(tiny_net: nn.Module) -> None:
    tiny_net.train()
    tiny_net[1].eval()
    images = torch.rand(5, 1, 28, 28, requires_grad=True)
    statistics = tiny_net[1].running_mean.clone()
    found = fgsm(tiny_net, images, torch.arange(5, dtype=torch.int32), epsilon=0.1)
    assert found.forwards.tolist() == [2] * 5 and found.backwards.tolist() == [1] * 5
    assert tiny_net.training and not tiny_net[1].training
    assert all(parameter.grad is None for parameter in tiny_net.parameters()) and images.grad is None
    assert torch.equal(tiny_net[1].running_mean, statistics)
    assert not found.images.requires_grad


def test_zero_budget_and_empty_batch(tiny_net: nn.Module) -> None:
    images, labels = torch.rand(4, 1, 28, 28), torch.arange(4)
    found = fgsm(tiny_net, images, labels, epsilon=0.0, random_start=True)
    assert torch.equal(found.images, images) and not bool(found.distance.any())
    tiny_net.eval()
    with torch.no_grad():
        assert torch.equal(found.success, tiny_net(images).argmax(1) != labels)
    nothing = fgsm(tiny_net, images[:0], labels[:0], epsilon=0.1, norm="l2")
    assert nothing.images.shape == (0, 1, 28, 28) and nothing.success.shape == (0,)


class Reusing(nn.Module):
    """Probabilities whose memory the next pass uses, as that of a network in CUDA graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(784, 10), torch.zeros(0)

    def forward(self, images: Tensor) -> Tensor:
        answers = self.layer(images.flatten(1)).softmax(1)
        self.last.fill_(7.0)
        self.last = answers.detach()
        return answers


def test_probabilities_are_refused_though_their_memory_is_used_again() -> None:
    with pytest.raises(UserError, match="look like probabilities"):
        fgsm(Reusing(), torch.rand(2, 1, 28, 28), torch.arange(2), epsilon=0.1)


def test_bad_input_is_named(tiny_net: nn.Module) -> None:
    images, labels = torch.rand(2, 1, 28, 28), torch.tensor([0, 1])
    for epsilon, norm in ((-0.1, "linf"), (1.1, "linf"), (28.1, "l2"), (785.0, "l1"), (math.nan, "linf")):
        with pytest.raises(UserError, match=r"^epsilon: .* was given\.$"):
            fgsm(tiny_net, images, labels, epsilon=epsilon, norm=norm)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="norm: 'l0' is not known"):
        fgsm(tiny_net, images, labels, epsilon=0.1, norm="l0")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="float32 or float64"):
        fgsm(tiny_net, images.half(), labels, epsilon=0.1)
    with pytest.raises(UserError, match=r"should lie in \[0, 1\]"):
        fgsm(tiny_net, images * 2, labels, epsilon=0.1)
    with pytest.raises(UserError, match="labels"):
        fgsm(tiny_net, images, labels + 9, epsilon=0.1)
    assert tiny_net.training

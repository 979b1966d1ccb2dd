"""C&W's search: equal to a slow one with an optimiser of torch, whoever stays in the batch, and past slopes that are no
numbers."""

from math import inf

import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks.carlini_wagner import _LEAVING, carlini_wagner

RATE = 0.05


def network() -> nn.Module:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4)).double().requires_grad_(False)
    model[1].weight *= 3
    return model


def batch(model: nn.Module, count: int = 5) -> tuple[Tensor, Tensor]:
    images = torch.rand(count, 1, 3, 4, dtype=torch.float64)
    images[0] = images[0].round()
    return images, model(images).argmax(1)


def slow(
    model: nn.Module, image: Tensor, aim: Tensor, targeted: bool, confidence: float, searches: int, steps: int
) -> tuple[Tensor, float]:
    """One sample after the other, one run after the other, every step taken; the nearest image and its distance."""
    centre = torch.atanh((image * 2 - 1) * 0.9999)
    start = (centre.tanh() + 1) / 2
    weight, low, high = 0.01, 0.0, inf
    best, nearest = image, inf
    for _ in range(searches):
        place, erred = centre.clone().requires_grad_(), False
        adam = torch.optim.Adam([place], lr=RATE)
        for _ in range(steps):
            moved = (place.tanh() + 1) / 2
            logits = model(moved[None])[0]
            others = torch.cat([logits[:aim], logits[aim + 1 :]]).max()
            lead = others - logits[aim] if targeted else logits[aim] - others
            if lead < -confidence:
                erred = True
                distance = float((moved.detach() - image).norm())
                best, nearest = (moved.detach(), distance) if distance < nearest else (best, nearest)
            adam.zero_grad()
            ((moved - start).square().sum() + weight * (lead + confidence).clamp(min=0)).backward()
            adam.step()
        low, high = (low, weight) if erred else (weight, high)
        weight = 10 * weight if high == inf else (low + high) / 2
    return best, nearest


@pytest.mark.parametrize(("targeted", "confidence"), [(False, 0), (False, 0.3), (True, 0), (True, 0.3)])
def test_the_search_equals_the_slow_one(targeted: bool, confidence: float) -> None:
    model = network()
    images, labels = batch(model)
    aims = (labels + 1) % 4 if targeted else labels
    found = carlini_wagner(
        model,
        images,
        labels,
        targets=aims if targeted else None,
        confidence=confidence,
        searches=9,
        steps=50,
        rate=RATE,
        initial=0.01,
        abort_early=False,
    )
    assert found.success.any() and found.forwards.tolist() == [451] * 5
    for at in range(5):
        best, nearest = slow(model, images[at], aims[at], targeted, confidence, 9, 50)
        assert bool(found.success[at]) == (nearest < inf)
        assert torch.allclose(found.images[at], best, rtol=0, atol=1e-9)


def test_samples_that_are_done_change_nothing_while_they_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a recorded step is bound to the size of its batch."""
    model = network()
    images, labels = batch(model, 12)
    options = {"searches": 5, "steps": 200, "rate": RATE}
    usual = carlini_wagner(model, images, labels, **options)  # type: ignore[arg-type]
    monkeypatch.setitem(_LEAVING, "cpu", 0.95)
    stayed = carlini_wagner(model, images, labels, **options)  # type: ignore[arg-type]
    assert usual.forwards.unique().numel() > 1  # some are done before others
    assert torch.allclose(usual.images, stayed.images, rtol=0, atol=1e-9)
    for part in ("success", "forwards", "backwards"):
        assert torch.equal(getattr(usual, part), getattr(stayed, part)), part


class Kinked(nn.Module):
    """A linear model whose slope at dark pixels is no number, as of a root that is not used there."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(12, 2)

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        return self.last(flat) + 0 * torch.where(flat < 0.5, 0, (flat - 0.5).sqrt()).sum(1, keepdim=True)


def test_pixels_without_a_slope_rest_and_the_others_reach_the_boundary() -> None:
    torch.manual_seed(0)
    model = Kinked().double()
    images = torch.rand(6, 1, 3, 4, dtype=torch.float64) * 0.5 + 0.45
    with torch.no_grad():
        labels = model(images).argmax(1)
    found = carlini_wagner(model, images, labels, steps=300)
    moved = ((found.images - images).abs() > 1e-3).flatten(1)
    dark = (images < 0.5).flatten(1)
    assert found.success.all() and dark.any() and not bool((moved & dark).any())

"""Climbers: gradients that agree with the passes, steps that stay in the ball, finds that draws of pixels miss."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ukemi import UserError
from ukemi.attacks.norms import radius_of
from ukemi.data import Data
from ukemi.uncertainty import DropoutPasses, Ensemble, Sampled, SearchSettings, Target, Thresholds, generate
from ukemi.uncertainty.generation import PixelMaker
from ukemi.uncertainty.passes import Source


class Gap(nn.Module):
    """Two dropouts and a constant that tracing makes: cut before the first of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 12), nn.Linear(12, 3)
        self.early, self.late = nn.Dropout(0.3), nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        seen = (images - 0.5).flatten(1) * torch.linspace(1, 2, 16).to(self.first.weight.dtype)
        return self.second(self.late(torch.relu(self.first(self.early(seen)))))


@pytest.fixture(params=["cut", "whole", "ensemble"])
def source(request: pytest.FixtureRequest) -> Source:
    torch.manual_seed(4)
    nets = [Gap().double().eval() for _ in range(3)]
    return Ensemble(nets) if request.param == "ensemble" else DropoutPasses(nets[0], 6, split=request.param == "cut")


def test_linked_passes_are_the_passes(source: Source) -> None:
    images, index = torch.rand(5, 1, 4, 4, dtype=torch.float64), torch.tensor([7, 1, 30, 2, 5])
    plain = source(images.clone(), index, turn=2)
    linked = source.linked(images.requires_grad_(), index, turn=2)
    for first, second in ((plain.certain, linked.certain), (plain.drawn, linked.drawn)):
        assert first.shape == second.shape and torch.allclose(first.double(), second, atol=1e-12)
        assert second.requires_grad and not first.requires_grad
    assert not torch.allclose(linked.drawn, source.linked(images, index, turn=3).drawn) or isinstance(source, Ensemble)
    assert source.linked_rows(images) >= 1


def test_the_more_passes_the_fewer_images_are_climbed_at_once() -> None:
    """All that they pass through is held: 3 x 2^17 numbers of 16 pixels each."""
    images = torch.rand(2, 1, 4, 4)
    assert [DropoutPasses(Gap(), passes).linked_rows(images) for passes in (50, 3000, 30_000)] == [32, 8, 1]


@pytest.mark.parametrize("pattern", ["LL", "LH", "HL", "HH"])
@pytest.mark.parametrize("goal", ["kept", "misclassified"])
def test_a_slope_is_that_of_finite_differences(source: Source, pattern: str, goal: str) -> None:
    generator = torch.Generator().manual_seed(1)
    images, index = torch.rand(6, 1, 4, 4, generator=generator, dtype=torch.float64), torch.arange(6)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    target = Target(pattern, goal, Thresholds((0.4, 0.4), (0.3, 0.3)))  # type: ignore[arg-type]

    def fitness(given: Tensor) -> Tensor:
        return target.scored(source.linked(given, index), labels).fitness

    leaf = images.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(fitness(leaf).sum(), leaf)
    tiny, seen = 1e-6, 0
    for at in range(0, 16, 5):
        step = torch.zeros_like(images).flatten(1)
        step[:, at] = tiny
        with torch.no_grad():
            up, down = (fitness(images + sign * step.view_as(images)) for sign in (1, -1))
        smooth = (up - down).abs() < 1e-3  # the count of passes, and the pieces, jump
        assert torch.allclose(((up - down) / (2 * tiny))[smooth], slopes.flatten(1)[smooth, at], atol=1e-5)
        seen += int((smooth & (slopes.flatten(1)[:, at] != 0)).sum())
    assert seen > 6


@given(st.integers(0, 10**6), st.floats(0.001, 1), st.sampled_from([0.0, 1e30, 1e-38, float("nan"), float("inf")]))
def test_climbers_stay_in_ball_and_box_and_climb(seed: int, epsilon: float, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    images, index = torch.rand(2, 2, 3, 4, generator=generator), torch.tensor([seed, seed + 7])
    images[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    settings = SearchSettings(population=8, generations=5, epsilon=epsilon, climbers=3)
    maker = PixelMaker(images, index, settings, seed)
    codes, radius = maker.first(8), radius_of(epsilon, images, "linf")
    assert torch.equal(codes[:, -3], images)  # one begins at the image itself
    way = torch.randn(2, 3, 2, 3, 4, generator=generator)
    for generation in range(1, 5):
        before = codes[:, -3:]
        codes = maker.children(
            codes, torch.zeros(2, 8).double(), generation, lambda at, by=1.0 if generation == 1 else scale: way * by
        )
        far = (codes - images[:, None]).abs().flatten(1).amax(1)
        assert (far <= radius).all() and float(codes.min()) >= 0 and float(codes.max()) <= 1
        moved = codes[:, -3:] - before
        assert (moved * way >= 0).all() and bool(moved.any()) == bool((moved != 0).any())
        assert generation > 1 or moved.any()


def test_steps_keep_their_direction_and_grow_shorter() -> None:
    images, index = torch.full((1, 1, 2, 2), 0.5), torch.tensor([3])
    maker = PixelMaker(images, index, SearchSettings(population=2, generations=4, epsilon=0.4, climbers=1), 0)
    codes, fitness = maker.first(2), torch.zeros(1, 2).double()
    steps = []
    slopes = [torch.tensor([4.0, -2, 1, 1]), torch.tensor([1.0, 1.95, -8, 1.05]), torch.tensor([0.0, 0, 0, 0])]
    for generation, slope in enumerate(slopes, 1):
        before = codes[:, -1].clone()
        codes = maker.children(codes, fitness, generation, lambda at, slope=slope: slope.view(1, 1, 1, 2, 2))  # type: ignore[misc]
        steps.append((codes[:, -1] - before).flatten().tolist())
    # a tenth of 0.4; then 0.8 x (2, -1, 0.5, 0.5) + (1, 1.95, -8, 1.05) / 3; then what is left of both
    assert steps[0] == pytest.approx([0.04, -0.04, 0.04, 0.04], abs=1e-6)
    assert steps[1] == pytest.approx([0.03, -0.03, -0.03, 0.03], abs=1e-6)
    assert steps[2] == pytest.approx([0.02, -0.02, -0.02, 0.02], abs=1e-6)


def test_seeds_that_leave_take_their_speed_along() -> None:
    images, index = torch.full((3, 1, 2, 2), 0.5), torch.arange(3)
    settings = SearchSettings(population=2, generations=4, epsilon=0.4, climbers=1)
    way = torch.tensor([1.0, -1, 1]).view(3, 1, 1, 1, 1).expand(3, 1, 1, 2, 2)
    maker = PixelMaker(images, index, settings, 0)
    codes = maker.children(maker.first(2), torch.zeros(3, 2).double(), 1, lambda at: way)
    rows = torch.tensor([1, 2])
    some = maker.kept(rows).children(codes[rows], torch.zeros(2, 2).double(), 2, torch.zeros_like)
    whole = maker.children(codes, torch.zeros(3, 2).double(), 2, torch.zeros_like)
    assert torch.equal(some[:, -1], whole[rows, -1]) and not torch.equal(some[:, -1], codes[rows, -1])


def test_slopes_are_taken_under_the_masks_that_the_generation_was_scored_under(
    dropping: nn.Module, recognised: Data
) -> None:
    asked: list[tuple[str, int]] = []

    class Noting(DropoutPasses):
        def __call__(self, images: Tensor, index: Tensor, *, turn: int = 0, shared: int = 1) -> Sampled:
            asked.append(("scored", turn))
            return super().__call__(images, index, turn=turn, shared=shared)

        def linked(self, images: Tensor, index: Tensor, *, turn: int = 0) -> Sampled:
            asked.append(("climbed", turn))
            return super().linked(images, index, turn=turn)

    target = Target("HH", "misclassified", Thresholds((0.999, 0.999), (0.95, 0.95)))  # out of reach
    settings = SearchSettings(population=4, generations=3, epsilon=0.01, climbers=1)
    generate(Noting(dropping, 4), recognised.take(torch.arange(2)), target, settings)
    pairs = [(kind, turn) for turn in (1, 2, 3) for kind in ("scored", "climbed")]
    assert asked[:-1] == pairs[:-1]  # none climb after the last; what counts is judged anew


def test_climbing_reaches_what_breeding_does_not(dropping: nn.Module, recognised: Data) -> None:
    """Sure by itself and unsure by chance: few draws of pixels get there, a slope leads there."""
    source, few = DropoutPasses(dropping, 10), recognised.take(torch.arange(12))
    target = Target("HH", "kept", Thresholds((0.6, 0.6), (0.2, 0.2)))
    settings = SearchSettings(population=12, generations=15, epsilon=0.3, climbers=3)
    bred, climbed = (
        generate(source, few, target, told) for told in (settings.model_copy(update={"climbers": 0}), settings)
    )
    assert climbed.success_rate >= bred.success_rate + 0.25
    assert float(climbed.distance.max()) <= 0.3
    assert (climbed.metrics.prediction == climbed.labels)[climbed.success].all()


def test_the_model_is_left_as_it_was(dropping: nn.Module, recognised: Data) -> None:
    model = deepcopy(dropping).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    few, state = recognised.take(torch.arange(3)), torch.get_rng_state()
    with torch.inference_mode():  # a caller's
        generate(
            DropoutPasses(model, 4),
            few,
            Target("HH", "kept", Thresholds((0.9, 0.9), (0.5, 0.5))),
            SearchSettings(population=6, generations=3),
        )
    assert all(module.training for module in model.modules()) and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


class Closed(nn.Module):
    """A network that lets no gradient through."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images.detach())


def test_a_model_without_a_gradient_is_named(dropping: nn.Module, recognised: Data) -> None:
    source, few = DropoutPasses(Closed(dropping), 4), recognised.take(torch.arange(2))
    target = Target("HH", "kept", Thresholds((0.99, 0.99), (0.9, 0.9)))
    for parameter in dropping.parameters():
        parameter.requires_grad_(False)
    try:
        with pytest.raises(UserError, match=r"climbers: no gradient leads .* 0 climbers need none"):
            generate(source, few, target, SearchSettings(population=6, generations=3))
    finally:
        for parameter in dropping.parameters():
            parameter.requires_grad_(True)
    with pytest.raises(UserError, match="climbers: no gradient"):
        generate(source, few, target, SearchSettings(population=6, generations=3))
    assert not generate(source, few, target, SearchSettings(population=6, generations=3, climbers=0)).success.any()

"""Balls and steps: limits that hold to the last bit, nearest points, steepest steps, uniform starts."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from torch import Tensor

from ukemi.attacks import NORMS, Ball, Norm, length, project, radius_of, random_points, steepest
from ukemi.attacks.norms import widest
from ukemi.errors import UserError

DTYPES = (torch.float32, torch.float64)
SHAPE = (3, 5, 7)


def numpy_lengths(changes: Tensor, norm: Norm) -> list[np.ndarray]:
    """The same length, summed in other orders: by NumPy, backwards, channels last, one by one."""
    flat = changes.flatten(1).numpy()
    last = np.ascontiguousarray(changes.permute(0, 2, 3, 1).flatten(1).numpy())
    order: Any = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    found = [np.linalg.norm(each, ord=order, axis=1) for each in (flat, flat[:, ::-1], last)]
    running = np.zeros(len(flat), dtype=flat.dtype)
    for column in flat.T:
        running = {"l1": running + abs(column), "l2": running + column**2, "linf": np.maximum(running, abs(column))}[
            norm
        ]
    return [*found, np.sqrt(running) if norm == "l2" else running]


def assert_within(points: Tensor, originals: Tensor, epsilon: Tensor, norm: Norm) -> None:
    """In the box, and in the ball against the true double radius, however the length is computed."""
    assert bool((points >= 0).all()) and bool((points <= 1).all())
    changes = points - originals
    assert bool((length(changes, norm).double() <= epsilon).all())
    for lengths in numpy_lengths(changes, norm):
        assert (lengths.astype(np.float64) <= epsilon.numpy()).all()


def drawn(seed: int, dtype: torch.dtype, rows: int = 6) -> tuple[Tensor, torch.Generator]:
    """Images with whole areas of black and white, as real ones have."""
    source = torch.Generator().manual_seed(seed)
    return (torch.rand(rows, *SHAPE, generator=source, dtype=dtype) * 2 - 0.5).clamp(0, 1), source


@given(
    seed=st.integers(0, 10**6),
    norm=st.sampled_from(NORMS),
    dtype=st.sampled_from(DTYPES),
    share=st.one_of(st.floats(0, 1), st.floats(1e-9, 1e-4)),
    far=st.sampled_from((1e-6, 0.1, 1.0, 30.0)),
)
def test_ball_and_box_hold_to_the_last_bit(seed: int, norm: Norm, dtype: torch.dtype, share: float, far: float) -> None:
    originals, source = drawn(seed, dtype)
    epsilon = torch.full((6,), share * widest(norm, 105), dtype=torch.float64)
    radius = radius_of(epsilon, originals, norm)
    points = originals + torch.randn(originals.shape, generator=source, dtype=dtype) * far * (share + 1e-6)
    found = project(points, originals, radius, norm)
    assert_within(found, originals, epsilon, norm)
    gradient = torch.randn(originals.shape, generator=source, dtype=dtype)
    assert_within(Ball(originals, radius, norm).stepped(found, gradient, radius * far), originals, epsilon, norm)
    start = random_points(originals, radius, norm, torch.arange(6), seed=seed, number=1)
    assert_within(start, originals, epsilon, norm)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_bounds_hold_on_large_images(norm: Norm, dtype: torch.dtype) -> None:
    originals = torch.rand(4, 3, 64, 64, dtype=dtype)
    for share in (1e-6, 0.01, 0.3):
        epsilon = torch.full((4,), share * widest(norm, 3 * 64 * 64), dtype=torch.float64)
        found = project(originals + torch.randn_like(originals), originals, radius_of(epsilon, originals, norm), norm)
        assert_within(found, originals, epsilon, norm)
        if norm != "l2":  # l2 is cut by the box afterwards
            assert float(length(found - originals, norm).min()) > float(epsilon[0]) * 0.999


@pytest.mark.parametrize("norm", NORMS)
def test_what_is_inside_stays_as_it_is(norm: Norm) -> None:
    originals, source = drawn(1, torch.float32)
    radius = radius_of(0.5, originals, norm)
    points = (originals + torch.randn(originals.shape, generator=source) * 1e-3).clamp(0, 1)
    assert torch.equal(project(points, originals, radius, norm), points)


@pytest.mark.parametrize("norm", NORMS)
def test_a_radius_of_zero_gives_the_originals(norm: Norm) -> None:
    originals, source = drawn(2, torch.float32)
    radius = radius_of(0.0, originals, norm)
    points = originals + torch.randn(originals.shape, generator=source)
    assert torch.equal(project(points, originals, radius, norm), originals)
    assert torch.equal(random_points(originals, radius, norm, torch.arange(6), seed=0, number=0), originals)


@given(seed=st.integers(0, 10**6), norm=st.sampled_from(NORMS), dtype=st.sampled_from(DTYPES), share=st.floats(0, 1))
def test_a_step_to_the_edge_is_a_step_of_the_radius(seed: int, norm: Norm, dtype: torch.dtype, share: float) -> None:
    originals, source = drawn(seed, dtype)
    gradient = torch.randn(originals.shape, generator=source, dtype=dtype).masked_fill(originals > 0.8, 0)
    ball = Ball(originals, radius_of(share * widest(norm, 105), originals, norm), norm)
    assert torch.equal(ball.edge(gradient), ball.stepped(originals, gradient, ball.radius))


@given(epsilon=st.floats(0, 1), dtype=st.sampled_from(DTYPES))
def test_one_radius_for_all_is_that_of_each(epsilon: float, dtype: torch.dtype) -> None:
    images = torch.zeros(3, *SHAPE, dtype=dtype)
    each = torch.full((3,), epsilon, dtype=torch.float64)
    assert torch.equal(radius_of(epsilon, images, "linf"), radius_of(each, images, "linf"))


@given(seed=st.integers(0, 10**6), share=st.floats(0.01, 0.9))
def test_l1_projection_is_the_nearest_point_of_ball_and_box(seed: int, share: float) -> None:
    source = torch.Generator().manual_seed(seed)
    originals = (torch.rand(1, 1, 2, 4, generator=source, dtype=torch.float64) * 2 - 0.5).clamp(0, 1)
    points = (originals + torch.randn(originals.shape, generator=source, dtype=torch.float64)).clamp(0, 1)
    full = float(length(points - originals, "l1"))
    found = project(points, originals, radius_of(share * full, originals, "l1"), "l1")
    x, p = originals.flatten().numpy(), points.flatten().numpy()

    def size(t: float) -> float:  # the optimality conditions, solved by another way
        return float(np.abs(np.clip(x + np.sign(p - x) * np.maximum(abs(p - x) - t, 0), 0, 1) - x).sum())

    t = optimize.brentq(lambda t: size(t) - share * full, 0, float(abs(p - x).max()), xtol=1e-13)
    best = np.clip(x + np.sign(p - x) * np.maximum(abs(p - x) - t, 0), 0, 1)
    assert np.allclose(found.flatten().numpy(), best, atol=1e-9)


def test_l1_step_is_the_optimum_of_the_linear_programme() -> None:
    originals, source = drawn(3, torch.float64, rows=3)
    gradient = torch.randn(originals.shape, generator=source, dtype=torch.float64)
    for size in (0.3, 4.0, 20.0):
        step = steepest(originals, gradient, torch.full((3,), size, dtype=torch.float64), "l1") - originals
        assert bool((length(step, "l1") <= size + 1e-9).all())
        for x, g, own in zip(originals.flatten(1), gradient.flatten(1), step.flatten(1), strict=True):
            # d = up - down, both at least 0: maximise g.d with |d|_1 <= size in the box
            limits = [(0, float(1 - each)) for each in x] + [(0, float(each)) for each in x]
            cost = torch.cat([-g, g]).numpy()
            best = optimize.linprog(cost, A_ub=np.ones((1, len(cost))), b_ub=[size], bounds=limits)
            assert float((g * own).sum()) == pytest.approx(-best.fun, rel=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_steps_survive_gradients_that_are_zero_tiny_or_broken(norm: Norm) -> None:
    points = torch.full((4, 1, 3, 3), 0.5)
    gradient = torch.ones(4, 1, 3, 3)
    gradient[0] = 0
    gradient[1] *= 1e-37
    gradient[2, 0, 0, 0] = torch.nan
    gradient[3, 0, 0, 0] = torch.inf
    moved = steepest(points, gradient, torch.full((4,), 0.1), norm) - points
    assert bool(moved.isfinite().all())
    assert torch.allclose(length(moved, norm), torch.tensor([0.0, 0.1, 0.1, 0.1]), atol=1e-6)


def test_l2_and_linf_steps() -> None:
    points, gradient = torch.rand(5, *SHAPE), torch.randn(5, *SHAPE)
    size = torch.linspace(0.1, 0.5, 5)
    assert torch.allclose(length(steepest(points, gradient, size, "l2") - points, "l2"), size)
    cosine = torch.cosine_similarity((steepest(points, gradient, size, "l2") - points).flatten(1), gradient.flatten(1))
    assert torch.allclose(cosine, torch.ones(5), atol=1e-5)
    assert torch.allclose(
        steepest(points, gradient, size, "linf") - points, gradient.sign() * size[:, None, None, None]
    )


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_are_uniform_in_the_ball(norm: Norm) -> None:
    """In a small grey box nothing is cut: the length's law is radius * u^(1/F), and the marginals are known."""
    originals = torch.full((4000, 1, 2, 2), 0.5, dtype=torch.float64)
    radius = radius_of(0.3, originals, norm)
    changes = random_points(originals, radius, norm, torch.arange(4000), seed=3, number=0) - originals
    shares = (length(changes, norm) / 0.3) ** 4
    assert stats.kstest(shares.numpy(), "uniform").pvalue > 0.01
    flat = changes.flatten(1)
    assert float(flat.mean(0).abs().max()) < 0.01
    if norm == "l2":  # projected onto an axis, a uniform 4-ball is a Beta
        assert stats.kstest(((flat[:, 0] / 0.3 + 1) / 2).numpy(), stats.beta(2.5, 2.5).cdf).pvalue > 0.01
    if norm == "l1":  # P(|x| > t) = (1 - t)^4
        assert stats.kstest(((1 - flat[:, 0].abs() / 0.3) ** 4).numpy(), "uniform").pvalue > 0.01
    assert abs(float(torch.corrcoef(flat.T).fill_diagonal_(0).abs().max())) < 0.06


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_hang_on_the_index_alone(norm: Norm) -> None:
    originals, _ = drawn(4, torch.float32)
    radius, index = radius_of(0.4, originals, norm), torch.tensor([5, 3, 9, 2**40, 0, 7])
    together = random_points(originals, radius, norm, index, seed=1, number=2)
    for row in range(6):
        one = slice(row, row + 1)
        alone = random_points(originals[one], radius[one], norm, index[one], seed=1, number=2)
        assert torch.equal(alone, together[one])
    assert not torch.equal(together, random_points(originals, radius, norm, index, seed=1, number=3))
    assert not torch.equal(together, random_points(originals, radius, norm, index, seed=2, number=2))


def test_a_radius_is_checked_and_rounded_down() -> None:
    images = torch.rand(3, 1, 4, 4)
    assert float(radius_of(0.1, images, "linf")[0]) <= 0.1
    assert radius_of(torch.tensor([0.1, 0.2, 0.3]), images, "l2").shape == (3,)
    for epsilon, norm in ((-0.1, "linf"), (1.01, "linf"), (4.01, "l2"), (16.5, "l1"), (float("nan"), "l2")):
        with pytest.raises(UserError, match="epsilon: it should lie in 0 to"):
            radius_of(epsilon, images, norm)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="one per image"):
        radius_of(torch.tensor([0.1, 0.2]), images, "l2")
    with pytest.raises(UserError, match="norm: 'l3' is not known; known are l1, l2, linf"):
        radius_of(0.1, images, "l3")  # type: ignore[arg-type]

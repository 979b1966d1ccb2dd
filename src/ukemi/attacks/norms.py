"""Balls and steps in the norms l1, l2 and linf: how far, back into the ball and the box, which way, where to begin.

Images are `[N, C, H, W]` in [0, 1]; a radius is one number per sample, `[N]`. What `project` gives keeps both limits to
the last bit: `0 <= point <= 1`, and `length(point - original) <= radius` in the images' own dtype, recomputed in any
usual order of summation.
"""

from copy import copy
from functools import cached_property
from math import inf, prod, sqrt
from numbers import Real
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from ukemi.attacks.base import Norm
from ukemi.errors import UserError
from ukemi.models.inference import recording
from ukemi.randomness import Stream, uniform

NORMS: tuple[Norm, ...] = get_args(Norm)
ORDER = {"l2": 2, "linf": inf}
Epsilon = float | Tensor
"""A radius: one number, or one per sample `[N]`."""


def checked_norm(norm: str) -> None:
    if norm not in NORMS:
        raise UserError(f"norm: {norm!r} is not known; known are {', '.join(NORMS)}.")


def widest(norm: Norm, features: int) -> float:
    """The length of the box's diagonal: no larger radius means anything."""
    return {"l1": float(features), "l2": sqrt(features), "linf": 1.0}[norm]


def radius_of(epsilon: Epsilon, images: Tensor, norm: Norm, name: str = "epsilon") -> Tensor:
    """Checks a radius and gives it per sample, `[N]` in the images' dtype, rounded down.

    Rounded down, because the float32 nearest to 0.1 lies above 0.1.
    """
    checked_norm(norm)
    if not isinstance(epsilon, Tensor | Real):
        kind = type(epsilon).__name__
        raise UserError(f"{name}: a number, or a tensor of one per image, is needed, but a {kind} was given.")
    limit = widest(norm, prod(images.shape[1:]))
    if not isinstance(epsilon, Tensor):
        if not 0 <= epsilon <= limit:
            raise _outside(epsilon, name, norm, limit)
        return images.new_full((len(images),), _rounded_down(epsilon, images.dtype))
    given = epsilon.detach().double()
    if given.shape not in ((), (len(images),)):
        raise UserError(f"{name}: one number, or one per image [{len(images)}], is needed, not {list(given.shape)}.")
    # while a CUDA graph is captured no value can be read: it was checked before
    if not recording(given.device) and not bool(((given >= 0) & (given <= limit)).all()):
        raise _outside(_extreme(given, limit), name, norm, limit)
    near = given.to(images.device, images.dtype)
    radius = torch.where(near.double() > given.to(near.device), torch.nextafter(near, torch.zeros_like(near)), near)
    return radius.expand(len(images)).clone()


def check_radius(radius: float, norm: Norm, image_shape: tuple[int, ...], name: str = "epsilon") -> None:
    """What `radius_of` refuses, before there are images."""
    limit = widest(norm, prod(image_shape))
    if not 0 <= radius <= limit:
        raise _outside(radius, name, norm, limit)


def _rounded_down(value: float, dtype: torch.dtype) -> float:
    """The same on the host, where a number costs no launch."""
    if dtype == torch.float64:
        return float(value)
    near = np.float32(value)
    return float(np.nextafter(near, np.float32(0)) if float(near) > value else near)


def _outside(value: float, name: str, norm: Norm, limit: float) -> UserError:
    return UserError(f"{name}: it should lie in 0 to {limit:g} for {norm}, but {value:.9g} was given.")


def _extreme(given: Tensor, limit: float) -> float:
    """The first value that is not in 0 to `limit`."""
    flat = given.reshape(-1)
    return float(flat[~((flat >= 0) & (flat <= limit))][0])


def length(changes: Tensor, norm: Norm) -> Tensor:
    """The length of each sample's change, `[N]`."""
    flat = changes.flatten(1)
    return flat.abs().sum(1) if norm == "l1" else torch.linalg.vector_norm(flat, ORDER[norm], dim=1)


def project(points: Tensor, originals: Tensor, radius: Tensor, norm: Norm) -> Tensor:
    """The points, brought back into the box [0, 1] and into the ball of `radius [N]` around the originals.

    linf: the nearest point of both. l1: the box first, then the nearest of the ball; of both for points in the box, as
    l1 steps are. l2: the nearest of the ball, then of the box, as is usual.
    """
    if norm == "linf":
        return points.clamp(*cube(originals, radius))
    if norm == "l1":
        points = points.clamp(0, 1)
    changes = points - originals
    reach_N = _safe(radius, prod(points.shape[1:]))
    inside_N = length(changes, norm) <= reach_N
    shorter = _thresholded(changes, reach_N) if norm == "l1" else changes
    length_N = length(shorter, norm)
    scale_N = torch.where(length_N > reach_N, reach_N / length_N, 1)
    moved = _added(originals, shorter * _wide(scale_N))
    return torch.where(_wide(inside_N), points, moved).clamp(0, 1)


def cube(originals: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and the highest pixels within `radius [N]` and the box: the linf ball, exact after rounding."""
    change = _wide(radius)
    low, high = _added(originals, torch.stack([-change, change])).clamp(0, 1)
    return low, high


class Ball:
    """The ball of one batch, intersected with the box; `ball[rows]` is that of some of its samples."""

    def __init__(self, originals: Tensor, radius: Tensor, norm: Norm) -> None:
        self.originals, self.radius, self.norm = originals, radius, norm

    @cached_property
    def _cube(self) -> tuple[Tensor, Tensor] | None:
        """The same for every step, so taken once."""
        return cube(self.originals, self.radius) if self.norm == "linf" else None

    def __getitem__(self, rows: Tensor) -> "Ball":
        part, limits = copy(self), self._cube
        part.originals, part.radius = self.originals[rows], self.radius[rows]
        part._cube = None if limits is None else (limits[0][rows], limits[1][rows])
        return part

    def project(self, points: Tensor) -> Tensor:
        limits = self._cube
        if limits is not None:
            return points.clamp(*limits)
        return project(points, self.originals, self.radius, self.norm)

    def edge(self, gradient: Tensor) -> Tensor:
        """After the steepest step of the whole radius from the originals."""
        if self.norm != "linf":
            return self.stepped(self.originals, gradient, self.radius)
        reach = _wide(self.radius)
        found = self.originals.addcmul(reach, gradient.sign())  # of what is not a number: 0
        return _nearer(found, self.originals, reach).clamp(0, 1)

    def stepped(self, points: Tensor, gradient: Tensor, size: Tensor) -> Tensor:
        """After the steepest step of length `size [N]`, back in ball and box."""
        return self.project(steepest(points, gradient, size, self.norm))

    def random(self, index: Tensor, *, seed: int, number: int = 0) -> Tensor:
        return random_points(self.originals, self.radius, self.norm, index, seed=seed, number=number)


def _added(originals: Tensor, changes: Tensor) -> Tensor:
    """originals + changes, rounded towards the originals: no coordinate moves further than its change says."""
    return _nearer(originals + changes, originals, changes.abs())


def _nearer(points: Tensor, originals: Tensor, reach: Tensor) -> Tensor:
    """The points, those that rounding put beyond their reach by one number nearer to the originals."""
    return torch.where((points - originals).abs() > reach, torch.nextafter(points, originals), points)


def _safe(radius: Tensor, features: int) -> Tensor:
    """A radius that leaves room for the rounding of a sum over the features, in whatever order it is taken."""
    return radius * (1 - 4 * sqrt(features) * torch.finfo(radius.dtype).eps)


def _thresholded(changes: Tensor, radius: Tensor) -> Tensor:
    """The nearest changes whose l1 length is `radius`, for rows that are longer: sign * max(|change| - t, 0).

    t is such that what is left of the coordinates above it adds up to the radius: of the k largest, for the largest k
    of which each is above its t (Duchi et al. 2008). Nothing here waits for a device, so that a step can be recorded.
    """
    size_NF = changes.flatten(1).abs()
    ranked_NF = size_NF.sort(1, descending=True).values.double()
    over_NF = ranked_NF.cumsum(1) - radius.double()[:, None]
    count_F = torch.arange(1, size_NF.shape[1] + 1, device=size_NF.device)
    above_N1 = (ranked_NF * count_F > over_NF).sum(1, keepdim=True).clamp(min=1)
    t_N1 = over_NF.gather(1, above_N1 - 1) / above_N1
    return (size_NF.double() - t_N1).clamp(min=0).to(changes.dtype).view_as(changes).copysign(changes)


def steepest(points: Tensor, gradient: Tensor, size: Tensor, norm: Norm) -> Tensor:
    """The points after the step of length `size [N]` that raises a linear function most; no limit is kept but l1's.

    linf: the sign of the gradient. l2: its direction. l1: the coordinates of largest slope are moved first, each as far
    as the box lets it, until the length is used up; ties go to the first coordinate.
    """
    if norm == "linf":
        return points.addcmul(_wide(size), gradient.sign())  # the sign of what is not a number is 0
    gradient = torch.nan_to_num(gradient)
    if norm == "l1":
        return (points + _filled(points, gradient, size)).clamp(0, 1)
    # by the largest slope first: squares of small slopes would round to zero
    largest = gradient.flatten(1).abs().amax(1)
    unit = gradient / _wide(torch.where(largest > 0, largest, 1))
    slope = length(unit, "l2")
    return points + unit * _wide(size / torch.where(slope > 0, slope, 1))


def _filled(points: Tensor, gradient: Tensor, size: Tensor) -> Tensor:
    slopes_NF, order = gradient.flatten(1).abs().sort(stable=True, dim=1, descending=True)
    room = torch.where(gradient > 0, 1 - points, points).flatten(1).gather(1, order).double()
    room = torch.where(slopes_NF > 0, room, 0.0)
    before = room.cumsum(1) - room
    amounts = torch.minimum((size.double()[:, None] - before).clamp(min=0), room).to(points.dtype)
    return torch.zeros_like(amounts).scatter(1, order, amounts).view_as(points) * gradient.sign()


def random_points(originals: Tensor, radius: Tensor, norm: Norm, index: Tensor, *, seed: int, number: int) -> Tensor:
    """Points drawn uniformly from the ball, then brought into the box; a function of seed, number and `index [N]`.

    l2: a normal vector, l1: a vector of double exponentials; either scaled to the length radius * u^(1 / features).
    """
    features = prod(originals.shape[1:])
    pairs = features + features % 2
    drawn = uniform(index, 1, pairs + 1, seed=seed, stream=Stream.START, epoch=number)[:, 0].double() + 2.0**-25
    spread_NF, u_N = drawn[:, :features] * 2 - 1, drawn[:, -1]
    if norm == "linf":
        changes = spread_NF * radius.double()[:, None]
    else:
        vectors = _normal(drawn[:, :pairs])[:, :features] if norm == "l2" else _exponential(spread_NF)
        lengths_N = radius.double() * u_N ** (1 / features)
        changes = vectors * (lengths_N / length(vectors, norm))[:, None]
    return project(originals + changes.to(originals.dtype).view_as(originals), originals, radius, norm)


def _normal(drawn: Tensor) -> Tensor:
    """Normal numbers from pairs of uniform ones (Box and Muller)."""
    first, second = drawn.chunk(2, 1)
    far, angle = (-2 * first.log()).sqrt(), 2 * torch.pi * second
    return torch.cat([far * angle.cos(), far * angle.sin()], 1)


def _exponential(spread: Tensor) -> Tensor:
    """Double exponential numbers from uniform ones in (-1, 1)."""
    return -torch.log1p(-spread.abs()) * spread.sign()


def _wide(values: Tensor) -> Tensor:
    """`[N]` as `[N, 1, 1, 1]`."""
    return values.reshape(-1, 1, 1, 1)  # one view instead of four: small networks pay for each

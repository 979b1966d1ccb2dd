"""BIM (Kurakin et al. 2017) and PGD (Madry et al. 2018): many small steps inside the budget.

Both have a fixed budget: of all the points they pass, the start included, the best is given back, so more steps never
lose. What is raised is `log_odds`: cross-entropy's direction, without its vanishing gradient.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import isfinite

import torch
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Norm, Victim, attacking, numbered, rising_odds, rising_odds_for
from ukemi.attacks.norms import Ball, Epsilon, length, radius_of
from ukemi.attacks.settings import check_count, check_numbers
from ukemi.errors import UserError
from ukemi.models.repeated import Repeated

PATIENCE = {"cuda": 5}
"""after how many steps a device is asked which samples are solved: asking makes it wait, so solved ones stay a little,
without changing any result or count"""
LEAVING = {"cuda": 0.1}
"""from which share of a batch on its solved samples leave: a recorded step is bound to the size of its batch"""


def bim(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: Epsilon,
    steps: int = 10,
    step_size: float | None = None,
    norm: Norm = "linf",
    targets: Tensor | None = None,
    early: bool = True,
    index: Tensor | None = None,
) -> Attacked:
    """`steps` steepest steps from the image itself; PGD's parameters, without its random starts.

    Nothing is random here: `index` is taken so that every attack can be called alike.
    """
    return pgd(
        model,
        images,
        labels,
        epsilon=epsilon,
        steps=steps,
        step_size=step_size,
        norm=norm,
        random_start=False,
        targets=targets,
        early=early,
        index=index,
    )


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: Epsilon,
    steps: int = 40,
    step_size: float | None = None,
    norm: Norm = "linf",
    restarts: int = 1,
    random_start: bool = True,
    zero_start: bool = True,
    targets: Tensor | None = None,
    early: bool = True,
    index: Tensor | None = None,
    seed: int = 0,
) -> Attacked:
    """`steps` steepest steps, first from the image itself, then from each of `restarts` random points of the ball.

    The first run is that of BIM, so PGD is never weaker than BIM with the same steps; only samples that it left open
    are tried again. `zero_start=False` leaves it out (Madry's own PGD, at half the cost); `random_start=False` leaves
    the random ones out, which is BIM. A run takes steps + 1 forwards and `steps` backwards at most. No steps: the clean
    image.

    `step_size` is 2.5 epsilon / steps by default. With `early`, a sample leaves the batch once it is fooled, and a
    point that fools comes before one that doesn't, then the higher loss. Without, every step is taken and the highest
    loss alone decides, as adversarial training wants it. Random points are keyed by `seed`, restart and `index [N]`.
    """
    _check(steps, step_size, restarts, random_start, zero_start)
    with attacking(model):
        victim = Victim(model, images, labels, targets, index)
        index, images = numbered(images, index), victim.originals
        radius_N = radius_of(epsilon, images, norm)
        ball = Ball(images, radius_N, norm)
        size_N = radius_N * (2.5 / max(1, steps)) if step_size is None else torch.full_like(radius_N, step_size)
        climb = _Climb(victim, ball, size_N, steps, early)
        if zero_start or not random_start or not steps:
            climb.run(images, climb.open())
        for number in range(restarts if random_start and steps else 0):
            rows = climb.open()
            climb.run(ball[rows].random(index[rows], seed=seed, number=number), rows)
    distance_N = length(climb.best - images, norm)
    return Attacked(climb.best, climb.fooled, distance_N, norm, victim.forwards, victim.backwards)


class _Climb:
    """Runs from one start after another, and the best point of all of them for each sample."""

    def __init__(self, victim: Victim, ball: Ball, size_N: Tensor, steps: int, early: bool) -> None:
        self.victim, self.ball, self.size_N = victim, ball, size_N
        self.steps, self.early = steps, early
        self.rise = rising_odds if victim.targets is None else rising_odds_for
        self.best = ball.originals.clone()
        self.value = torch.full((len(size_N),), -torch.inf, dtype=torch.float64, device=size_N.device)
        self.fooled = torch.zeros_like(size_N, dtype=torch.bool)

    def open(self) -> Tensor:
        """The samples that the next run is for: with `early`, those that nothing fooled yet."""
        if self.early:
            return (~self.fooled).nonzero()[:, 0]
        return torch.arange(len(self.fooled), device=self.fooled.device)

    def run(self, points: Tensor, rows: Tensor) -> None:
        """From `points`, which belong to the samples `rows`."""
        if not len(rows):
            return
        front, repeated, device = self._front(points, rows), Repeated(self._step), points.device.type
        for steps in _looks(self.steps, PATIENCE.get(device, 1)):
            repeated(front, steps)
            solved = int(front.fooled.sum()) if self.early else 0
            if solved > LEAVING.get(device, 0) * len(front.rows):
                self._settle(front)
                if solved == len(front.rows):
                    return
                front = front.take((~front.fooled).nonzero()[:, 0])
        logits = self.victim.answers(front.points)
        self._keep(front, self.rise(logits, front.aims)[0], logits)
        self._settle(front)

    def _step(self, front: "_Front") -> None:
        values, slopes, logits = self.victim.ascent(front.points, front.aims, self.rise)
        front.backwards = front.backwards + self._keep(front, values, logits)
        front.points = front.ball.stepped(front.points, slopes, front.size)

    def _keep(self, front: "_Front", values: Tensor, logits: Tensor) -> Tensor | int:
        """Takes over the points that are better than what is known; says for which samples the pass was needed."""
        fooled, better = self.victim.reached(logits, front.aims), values > front.value
        needed: Tensor | int = 1  # for all of them
        if self.early:
            needed = ~front.fooled
            better, front.fooled = needed & (fooled | better), front.fooled | fooled
        else:
            better = better | ~(front.value > -torch.inf)  # nothing is known yet, or only what is no number
            front.fooled = torch.where(better, fooled, front.fooled)
        front.best = torch.where(better[:, None, None, None], front.points, front.best)
        front.value = torch.where(better, values, front.value)
        front.forwards = front.forwards + needed
        return needed

    def _front(self, points: Tensor, rows: Tensor) -> "_Front":
        victim, ball = self.victim, self.ball[rows]
        known = (self.best, self.value, self.fooled, victim.forwards, victim.backwards)
        return _Front(rows, points, victim.aims[rows], self.size_N[rows], ball, *(one[rows] for one in known))

    def _settle(self, front: "_Front") -> None:
        self.best[front.rows], self.value[front.rows] = front.best, front.value.double()
        self.fooled[front.rows] = front.fooled
        self.victim.forwards[front.rows], self.victim.backwards[front.rows] = front.forwards, front.backwards


@dataclass
class _Front:
    """The samples of a run that are still in its batch, and what is known of them."""

    rows: Tensor
    points: Tensor
    aims: Tensor
    size: Tensor
    ball: Ball
    best: Tensor
    value: Tensor
    fooled: Tensor
    forwards: Tensor
    backwards: Tensor

    def take(self, at: Tensor) -> "_Front":
        return _Front(**{one.name: getattr(self, one.name)[at] for one in fields(self)})


def _looks(steps: int, patience: int) -> Iterator[int]:
    """How many steps lie before each look at who is solved: one at first, for samples that err as they are."""
    taken = 0
    while taken < steps:
        until = min(steps, taken + patience - taken % patience if taken else 1)
        yield until - taken
        taken = until


def _check(steps: int, step_size: float | None, restarts: int, random_start: bool, zero_start: bool) -> None:
    check_count("steps", steps)
    check_count("restarts", restarts, 1)
    if step_size is not None:
        check_numbers(step_size=step_size)
    if step_size is not None and not (isfinite(step_size) and step_size >= 0):
        raise UserError(f"step_size: it should be 0 or more, but {step_size} was given.")
    if not random_start and restarts > 1:
        raise UserError(f"restarts: without random starts each would be the same, but {restarts} were asked for.")
    if not random_start and not zero_start:
        raise UserError("zero_start: without random starts it is the only one, but it was turned off.")

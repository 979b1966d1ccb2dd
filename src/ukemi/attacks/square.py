"""Square (Andriushchenko et al. 2020): a random search that asks the model for outputs only, never for gradients."""

from math import sqrt

import torch
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Victim, attacking, log_odds, log_odds_for, numbered
from ukemi.attacks.norms import Ball, Epsilon, length, radius_of
from ukemi.attacks.settings import check_count, check_numbers
from ukemi.errors import UserError
from ukemi.randomness import Stream, uniform

SHRINKS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""After these shares of the steps the squares' area is halved (the paper's schedule)."""
_DRAWS = 2**32
"""where this attack's numbers begin in the stream of random starts: PGD's restarts stay below"""


def square(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: Epsilon,
    steps: int = 1000,
    area: float = 0.8,
    targets: Tensor | None = None,
    index: Tensor | None = None,
    seed: int = 0,
) -> Attacked:
    """A black-box search in the linf ball: stripes first, then one square of pixels per step, kept where it helps.

    Fixed budget, `steps` + 1 forwards at most and no backward; a sample leaves the batch once it is fooled. A square
    sets each channel of its pixels to the original plus or minus epsilon; `area` is the first squares' share of the
    image. A step that changes nothing in the outcome is kept too, so that the search walks over the plateaus of a model
    that rounds. Everything random is keyed by `seed`, step and `index [N]`. No steps: the clean image.
    """
    check_count("steps", steps)
    check_numbers(area=area)
    if not 0 < area <= 1:
        raise UserError(f"area: it should lie above 0 and at most at 1, but {area} was given.")
    with attacking(model):
        victim = Victim(model, images, labels, targets, index)
        index, images = numbered(images, index), victim.originals
        ball = Ball(images, radius_of(epsilon, images, "linf"), "linf")
        best, success_N = _searched(victim, ball, index, steps, area, seed)
    return Attacked(best, success_N, length(best - images, "linf"), "linf", victim.forwards, victim.backwards)


def _searched(victim: Victim, ball: Ball, index: Tensor, steps: int, area: float, seed: int) -> tuple[Tensor, Tensor]:
    """The best point of every sample, and which of them fool."""
    objective = log_odds if victim.targets is None else log_odds_for
    best, points = ball.originals.clone(), ball.originals
    success_N = torch.zeros(len(best), dtype=torch.bool, device=best.device)
    rows = torch.arange(len(best), device=best.device)
    value_n = torch.full((len(rows),), -torch.inf, device=best.device)
    for step in range(steps + 1):
        if not len(rows):
            break
        if step == 0:
            tried = points
        elif step == 1:
            tried = _striped(ball, _drawn(index[rows], points.shape[1] * points.shape[3], seed, step))
        else:
            side = _side(area, step / steps, points)
            tried = _squared(ball, points, _drawn(index[rows], 2 + points.shape[1], seed, step), side)
        logits = victim.logits(tried, rows)
        fooled = victim.fooled(logits, rows)
        values = objective(logits, victim.aims[rows]).to(value_n.dtype)
        kept = fooled | (values >= value_n)
        points, value_n = torch.where(kept[:, None, None, None], tried, points), torch.where(kept, values, value_n)
        best[rows], success_N[rows] = points, fooled
        if bool(fooled.any()):
            still = (~fooled).nonzero()[:, 0]
            rows, points, value_n, ball = rows[still], points[still], value_n[still], ball[still]
    return best, success_N


def _drawn(index: Tensor, numbers: int, seed: int, step: int) -> Tensor:
    return uniform(index, 1, numbers, seed=seed, stream=Stream.START, epoch=_DRAWS + step)[:, 0]


def _side(area: float, done: float, points: Tensor) -> int:
    """The side of the squares after the share `done` of the steps; it fits into the image."""
    height, width = points.shape[2:]
    share = area / 2 ** sum(done > shrink for shrink in SHRINKS)
    return max(1, min(height, width, round(sqrt(share * height * width))))


def _striped(ball: Ball, drawn: Tensor) -> Tensor:
    """Columns that are, channel by channel, wholly raised or wholly lowered by epsilon."""
    count, channels, _, width = ball.originals.shape
    return _moved(ball, _signs(drawn).view(count, channels, 1, width))


def _squared(ball: Ball, points: Tensor, drawn: Tensor, side: int) -> Tensor:
    """The points with one square set anew; one that would change nothing takes the other signs."""
    height, width = points.shape[2:]
    top, left = ((drawn[:, at] * (size - side + 1)).long() for at, size in ((0, height), (1, width)))
    down, across = torch.arange(height, device=points.device), torch.arange(width, device=points.device)
    inside = _between(down, top, side)[:, None, :, None] & _between(across, left, side)[:, None, None, :]
    signs = _signs(drawn[:, 2:])[:, :, None, None]
    tried = torch.where(inside, _moved(ball, signs), points)
    same = (tried == points).flatten(1).all(1)[:, None, None, None]
    return torch.where(same & inside, _moved(ball, -signs), tried)


def _moved(ball: Ball, signs: Tensor) -> Tensor:
    return ball.project(ball.originals + ball.radius[:, None, None, None] * signs.to(ball.originals.dtype))


def _signs(drawn: Tensor) -> Tensor:
    return torch.where(drawn < 0.5, -1.0, 1.0)


def _between(places: Tensor, start: Tensor, side: int) -> Tensor:
    return (places[None] >= start[:, None]) & (places[None] < start[:, None] + side)

"""FGSM (Goodfellow et al. 2015): one step of the whole budget up the gradient."""

import torch
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Norm, Victim, attacking, numbered, up_the_odds, up_the_odds_for
from ukemi.attacks.norms import Ball, Epsilon, length, radius_of


def fgsm(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: Epsilon,
    norm: Norm = "linf",
    targets: Tensor | None = None,
    random_start: bool = False,
    index: Tensor | None = None,
    seed: int = 0,
) -> Attacked:
    """The steepest step of length `epsilon` in `norm`, kept in [0, 1]; two forwards and one backward per sample.

    Fixed budget: the step is taken for every sample, also for one that is misclassified as it is. On a linear model of
    two classes the result is the optimum: in linf and l1 always, in l2 where no pixel meets the box.
    `random_start` begins at a random point of the ball, keyed by `index [N]`, and steps 1.25 epsilon (the fast variant
    of adversarial training: Wong et al. 2020).
    """
    with attacking(model):
        victim = Victim(model, images, labels, targets, index)
        images = victim.originals
        radius_N = radius_of(epsilon, images, norm)
        ball = Ball(images, radius_N, norm)
        start = ball.random(numbered(images, index), seed=seed) if random_start else images
        slopes = victim.climb(start, up_the_odds if targets is None else up_the_odds_for)
        found = ball.stepped(start, slopes, radius_N * 1.25) if random_start else ball.edge(slopes)
        success_N = victim.reached(victim.answers(found, settle=False), victim.aims)
        passes_N = torch.ones_like(victim.aims)
        attacked = Attacked(found, success_N, length(found - images, norm), norm, passes_N + 1, passes_N)
        victim.settle()  # waits for the device, which now has all its work
    return attacked

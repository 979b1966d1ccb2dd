"""DeepFool: the nearest boundary of the linearised model, step by step (Moosavi-Dezfooli et al. 2016)."""

from dataclasses import dataclass, fields
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Victim, attacking
from ukemi.attacks.settings import check_count, check_numbers
from ukemi.attacks.slopes import slopes
from ukemi.errors import UserError
from ukemi.models.inference import rows_per_pass

_SHORTEST = 1e-5
"""No step is shorter: a point on the boundary itself, where the linear model says 0, should still cross it."""
_SLACK = 4.0
"""A boundary that seemed this many times farther than the nearest, by its slope's last known size, is not looked at."""


def deepfool(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    norm: Literal["l2", "linf"] = "l2",
    steps: int = 50,
    overshoot: float = 0.02,
    candidates: int = 10,
    index: Tensor | None = None,
) -> Attacked:
    """A small change `[N, C, H, W]` that makes the model err: untargeted, minimal distance.

    Each step goes to the nearest boundary between the label and one of the `candidates - 1` other classes that are the
    most likely at the clean image, as if the model were linear; the sum of all steps is lengthened by `overshoot`. On
    a linear model one step is the exact projection, times `1 + overshoot`. A sample leaves as soon as it errs; one that
    errs already is returned as it is, at distance 0. The gradient of one class counts as one backward pass.
    Nothing is random here: `index` is taken so that every attack can be called alike.
    """
    _check(norm, steps, overshoot, candidates)
    with attacking(model):
        victim = Victim(model, images, labels, index=index)
        return _attack(victim, norm, steps, overshoot, candidates)


def _check(norm: str, steps: int, overshoot: float, candidates: int) -> None:
    if norm not in ("l2", "linf"):
        raise UserError(f"norm: l2 or linf is needed, but {norm!r} was given.")
    check_count("steps", steps)
    check_count("candidates", candidates, 2)
    check_numbers(overshoot=overshoot)
    if not 0 <= overshoot < float("inf"):
        raise UserError(f"overshoot: a number of at least 0 is needed, but {overshoot} was given.")


@dataclass
class _Open:
    """The samples that still resist, n of them."""

    rows: Tensor
    images: Tensor
    logits: Tensor
    mixtures: Tensor
    """`[n, M, K]`: each rival's logit minus the label's"""
    sizes: Tensor
    """`[n, M]`: how long each mixture's slope was when it was last looked at"""
    moved: Tensor
    """`[n, C, H, W]`: the sum of all steps, without overshoot"""

    def take(self, which: Tensor) -> "_Open":
        """Those at the places `which`."""
        return _Open(*(getattr(self, field.name)[which] for field in fields(self)))


def _attack(victim: Victim, norm: Literal["l2", "linf"], steps: int, overshoot: float, candidates: int) -> Attacked:
    originals = victim.originals
    rows = torch.arange(len(originals), device=originals.device)
    logits = victim.logits(originals, rows)
    found, success = originals.clone(), victim.fooled(logits, rows)
    mixtures = _rivals(logits, victim.labels, candidates)
    sizes = mixtures.new_zeros(mixtures.shape[:2])
    still = _Open(rows, originals, logits, mixtures, sizes, torch.zeros_like(originals)).take(_places(~success))
    for step in range(steps):
        if not len(still.rows):
            break
        taken, still.sizes = _steps(victim, still, norm, first=step == 0)
        still.moved = still.moved + taken
        still.images = (originals[still.rows] + (1 + overshoot) * still.moved).clamp(0, 1)
        still.logits = victim.logits(still.images, still.rows)
        fooled = victim.fooled(still.logits, still.rows)
        solved = still.take(_places(fooled))
        if len(solved.rows):
            found[solved.rows], success[solved.rows] = solved.images, True
            still = still.take(_places(~fooled))
    change = (found - originals).flatten(1)
    distance = change.norm(dim=1) if norm == "l2" else change.abs().amax(1)
    return Attacked(found, success, distance, norm, victim.forwards, victim.backwards)


def _places(which: Tensor) -> Tensor:
    """As numbers: a device waits once, not for every tensor that is indexed."""
    return which.nonzero()[:, 0]


def _steps(victim: Victim, still: _Open, norm: str, *, first: bool) -> tuple[Tensor, Tensor]:
    """`_step`, in parts whose slopes of all classes fit into one pass."""
    at_once = rows_per_pass((still.mixtures.shape[1], *still.images.shape[1:]), still.rows.device)
    if len(still.rows) <= at_once:
        return _step(victim, still, norm, first=first)
    parts = torch.arange(len(still.rows), device=still.rows.device).split(at_once)
    taken, sizes = zip(*(_step(victim, still.take(part), norm, first=first) for part in parts), strict=True)
    return torch.cat(taken), torch.cat(sizes)


def _rivals(logits_nK: Tensor, labels_n: Tensor, candidates: int) -> Tensor:
    """Mixtures of logits `[n, M, K]`: each likely other class minus the label, the likeliest first."""
    classes = logits_nK.shape[1]
    own_nK = F.one_hot(labels_n, classes)
    others_nK = logits_nK.masked_fill(own_nK.bool(), -torch.inf)
    order_nM = others_nK.argsort(dim=1, descending=True, stable=True)[:, : min(candidates, classes) - 1]
    return (F.one_hot(order_nM, classes) - own_nK[:, None]).to(logits_nK.dtype)


def _step(victim: Victim, some: _Open, norm: str, *, first: bool) -> tuple[Tensor, Tensor]:
    """The step to the nearest boundary of the model's linearisation, and the slopes' sizes `[n, M]` as known now.

    Where all slopes are 0 or not finite, the step is 0.
    """
    gaps_nM = (some.mixtures @ some.logits[:, :, None])[:, :, 0].abs()
    guessed_nM = gaps_nM / some.sizes
    looked_nM = torch.ones_like(gaps_nM, dtype=torch.bool)
    if not first:
        looked_nM = ~(guessed_nM > _SLACK * guessed_nM.amin(1, keepdim=True))
    slopes_pD = _slopes(victim, some, looked_nM, first)
    place_nM = (looked_nM.flatten().cumsum(0).reshape(looked_nM.shape) - 1).where(looked_nM, 0)
    sizes_p = slopes_pD.norm(dim=1) if norm == "l2" else slopes_pD.abs().sum(1)
    sizes_nM = sizes_p[place_nM].where(looked_nM, some.sizes)
    usable_nM = looked_nM & sizes_nM.isfinite() & (sizes_nM > 0) & gaps_nM.isfinite()
    distance_n, nearest_n = (gaps_nM / sizes_nM).where(usable_nM, torch.inf).min(1)
    place_n = place_nM.gather(1, nearest_n[:, None])[:, 0]
    direction_nD = slopes_pD[place_n] / sizes_p[place_n, None] if norm == "l2" else slopes_pD[place_n].sign()
    step_nD = distance_n.clamp(min=_SHORTEST)[:, None] * direction_nD
    return step_nD.where(distance_n.isfinite()[:, None], 0).reshape(some.images.shape), sizes_nM


def _slopes(victim: Victim, some: _Open, looked_nM: Tensor, first: bool) -> Tensor:
    """The slopes `[p, D]` of the boundaries looked at: at first all of a sample, later one by one, as they are few."""
    if first:
        return slopes(victim, some.images, some.rows, some.mixtures)[1].flatten(0, 1).flatten(1)
    of_p, which_p = looked_nM.nonzero(as_tuple=True)
    return slopes(victim, some.images[of_p], some.rows[of_p], some.mixtures[of_p, which_p][:, None])[1].flatten(1)

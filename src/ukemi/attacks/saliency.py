"""JSMA: raises (or lowers) the two most telling features at a time (Papernot et al. 2016, algorithms 2 and 3)."""

from dataclasses import dataclass, fields
from math import floor, prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Victim, admitted, attacking
from ukemi.attacks.slopes import slopes
from ukemi.errors import UserError

_PAIRS = 2**22
"""How many pairs are weighed at once: 32 MB a tensor."""
_LEAST = 0.001
"""The smallest step: one that rounding swallows would be taken for ever."""


def jsma(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    theta: float = 1.0,
    gamma: float = 0.1,
    targets: Tensor | None = None,
    others: Literal["all", "likely"] = "likely",
    index: Tensor | None = None,
) -> Attacked:
    """Few changed features (single channel values) that make the model err, or take an image for its target.

    Each step moves two features by `theta` (below 0: it darkens) inside [0, 1]: of all pairs the one that raises the
    target's logit and lowers the others' with the largest product of the two gains, ties to the lowest pair. The
    others' logits are added up as they are (`all`, the paper), or each by how likely it is among the others at that
    point (`likely`, the default): classes that are out of the race hardly count, which reaches more targets. As the
    paper has it the attack is up to 15 points weaker than ART's on networks of ours (see `docs/attack.md`). Where no
    pair does both, which the paper leaves open, the pair that raises the target's logit the most is taken.

    Features at their bound leave. At most a share `gamma` of the features changes; once that is used up, only features
    that have changed already move on. Untargeted, each step aims at the class that is then the most likely but the
    label, and any error counts. `distance` is in L2; `changed_features` counts the features. A step takes two forward
    and two backward passes. Nothing is random here: `index` is taken so that every attack can be called alike.
    """
    with attacking(model):
        admitted(images, labels, targets, index)
        features = prod(images.shape[1:])
        _check(theta, gamma, others, features)
        most = floor(gamma * features + 1e-9)
        return _attack(Victim(model, images.detach(), labels, targets), theta, most, weighted=others == "likely")


def changed_features(images: Tensor, attacked: Attacked) -> Tensor:
    """How many features of each image an attack changed, int64 `[N]`."""
    return (attacked.images != images).flatten(1).sum(1)


def _check(theta: float, gamma: float, others: str, features: int) -> None:
    if not _LEAST <= abs(theta) <= 1:
        raise UserError(f"theta: a number from -1 to 1, at least {_LEAST} from 0, is needed, but {theta} was given.")
    if not 0 < gamma <= 1:
        raise UserError(f"gamma: a share above 0 and at most 1 is needed, but {gamma} was given.")
    if others not in ("all", "likely"):
        raise UserError(f"others: all or likely is needed, but {others!r} was given.")
    if gamma * features + 1e-9 < 2:
        raise UserError(f"gamma: {gamma} of {features} features leaves no pair to change.")


@dataclass
class _Open:
    """The samples that still resist, n of them; images are flat, `[n, D]`."""

    rows: Tensor
    images: Tensor
    logits: Tensor
    changed: Tensor
    """bool `[n, D]`"""

    def take(self, which: Tensor) -> "_Open":
        """Those for which it is true; all of them as they are, where it is for all."""
        places = which.nonzero()[:, 0]  # as numbers: a device waits once, not for every tensor that is indexed
        if len(places) == len(self.rows):
            return self
        return _Open(*(getattr(self, field.name)[places] for field in fields(self)))


def _attack(victim: Victim, theta: float, most: int, *, weighted: bool) -> Attacked:
    originals = victim.originals.flatten(1)
    shape = victim.originals.shape[1:]
    rows = torch.arange(len(originals), device=originals.device)
    logits = victim.logits(victim.originals, rows)
    found, success = originals.clone(), victim.fooled(logits, rows)
    still = _Open(rows, originals.clone(), logits, torch.zeros_like(originals, dtype=torch.bool)).take(~success)
    while len(still.rows):
        pairs_n2 = _step(victim, still, theta, most, weighted)
        going = pairs_n2[:, 0] >= 0
        if not bool(going.all()):
            still, pairs_n2 = still.take(going), pairs_n2[going]
        if not len(still.rows):
            break
        moved_n2 = (still.images.gather(1, pairs_n2) + theta).clamp(0, 1)
        still.images.scatter_(1, pairs_n2, moved_n2)
        still.changed.scatter_(1, pairs_n2, True)
        still.logits = victim.logits(still.images.unflatten(1, shape), still.rows)
        fooled = victim.fooled(still.logits, still.rows)
        solved = still.take(fooled)
        if len(solved.rows):
            found[solved.rows], success[solved.rows] = solved.images, True
            still = still.take(~fooled)
    distance = (found - originals).norm(dim=1)
    return Attacked(found.unflatten(1, shape), success, distance, "l2", victim.forwards, victim.backwards)


def _step(victim: Victim, still: _Open, theta: float, most: int, weighted: bool) -> Tensor:
    """The pair `[n, 2]` that each sample changes next; -1 where there is none."""
    classes = still.logits.shape[1]
    if victim.targets is None:
        own = F.one_hot(victim.labels[still.rows], classes).bool()
        aims_n = still.logits.masked_fill(own, -torch.inf).argmax(1)
    else:
        aims_n = victim.targets[still.rows]
    aim_nK = F.one_hot(aims_n, classes).to(still.images.dtype)
    rest_nK = still.logits.masked_fill(aim_nK.bool(), -torch.inf).softmax(1) if weighted else 1 - aim_nK
    images = still.images.unflatten(1, victim.originals.shape[1:])
    _, slopes_n2CHW = slopes(victim, images, still.rows, torch.stack([aim_nK, rest_nK], 1))
    gains_n2D = slopes_n2CHW.flatten(2) * (1 if theta > 0 else -1)
    room_nD = still.images < 1 if theta > 0 else still.images > 0
    spent_n1 = still.changed.sum(1, keepdim=True) > most - 2
    allowed_nD = room_nD & (still.changed | ~spent_n1)
    pairs_n2 = best_pairs(gains_n2D[:, 0], -gains_n2D[:, 1], allowed_nD)
    return pairs_n2.where(pairs_n2 >= 0, _raising(gains_n2D[:, 0], allowed_nD))


def _raising(aims_nD: Tensor, allowed_nD: Tensor) -> Tensor:
    """The pair `[n, 2]` that raises the aim the most, ties to the lowest; -1 where none raises it."""
    left_nD = aims_nD.masked_fill(~(allowed_nD & aims_nD.isfinite()), -torch.inf)
    first_n, p_n = _first_highest(left_nD)
    second_n, q_n = _first_highest(left_nD.scatter(1, p_n[:, None], -torch.inf))
    return torch.stack([p_n, q_n], 1).sort(1).values.where(((first_n + second_n) > 0)[:, None], -1)


def best_pairs(aims_nD: Tensor, others_nD: Tensor, allowed_nD: Tensor) -> Tensor:
    """Per row the pair p < q of allowed features, int64 `[n, 2]`, with the largest product of summed gains.

    Both sums, `aims[p] + aims[q]` and `others[p] + others[q]`, must be above 0; -1 where no pair has that. Ties go to
    the lowest p, then the lowest q. A feature that two others match or beat in both gains is in no best pair: what
    remains are the first two Pareto layers, some dozens of thousands of features. All their pairs are weighed, in
    blocks.
    """
    allowed_nD = allowed_nD & aims_nD.isfinite() & others_nD.isfinite()
    places_nm, real_nm = _two_layers(aims_nD, others_nD, allowed_nD)
    count = places_nm.shape[1]
    if count < 2:
        return places_nm.new_full((len(aims_nD), 2), -1)
    # in double precision the sums and products of float32 gains are (nearly always) exact, and ties are true ties
    aims_nm, others_nm = (gains.gather(1, places_nm).double() for gains in (aims_nD, others_nD))
    best_n = aims_nm.new_zeros(len(aims_nm))
    chosen_n2 = places_nm.new_full((len(aims_nm), 2), -1)
    block = max(1, _PAIRS // (len(aims_nm) * count))
    later = torch.arange(count, device=places_nm.device)
    for start in range(0, count, block):
        some = slice(start, start + block)
        aim = aims_nm[:, some, None] + aims_nm[:, None]
        other = others_nm[:, some, None] + others_nm[:, None]
        pair = real_nm[:, some, None] & real_nm[:, None] & (later[some, None] < later)
        score = (aim * other).where(pair & (aim > 0) & (other > 0), 0).flatten(1)
        value_n, place_n = _first_highest(score)
        first, second = place_n // count + start, place_n % count
        found = places_nm.gather(1, torch.stack([first, second], 1))
        better = value_n > best_n
        best_n, chosen_n2 = value_n.where(better, best_n), found.where(better[:, None], chosen_n2)
    return chosen_n2


def _first_highest(score_nP: Tensor) -> tuple[Tensor, Tensor]:
    """The highest of each row and the first place that has it, on every device."""
    value_n = score_nP.amax(1)
    return value_n, (score_nP == value_n[:, None]).to(torch.uint8).argmax(1)


def _two_layers(aims_nD: Tensor, others_nD: Tensor, allowed_nD: Tensor) -> tuple[Tensor, Tensor]:
    """The features that fewer than two others match or beat: places `[n, m]` in rising order, and which are real.

    Seen from the highest gain for the aim downwards, a feature is beaten twice if two before it have at least its
    other gain: if that is not above the second highest so far.
    """
    ranked_nD, order_nD = aims_nD.masked_fill(~allowed_nD, -torch.inf).sort(dim=1, descending=True, stable=True)
    other_nD = others_nD.masked_fill(~allowed_nD, -torch.inf).gather(1, order_nD)
    nothing_n1 = torch.full_like(other_nD[:, :1], -torch.inf)
    highest_nD = torch.cat([nothing_n1, other_nD[:, :-1].cummax(1).values], 1)
    second_nD = torch.minimum(other_nD, highest_nD).cummax(1).values
    second_nD = torch.cat([nothing_n1, second_nD[:, :-1]], 1)
    kept_nD = (other_nD > second_nD) & ranked_nD.isfinite()
    kept_nD = torch.zeros_like(kept_nD).scatter_(1, order_nD, kept_nD)
    row, column = kept_nD.nonzero(as_tuple=True)
    rank = kept_nD.cumsum(1)[row, column] - 1
    count = kept_nD.sum(1)
    widest = int(count.max()) if len(count) else 0
    places_nm = order_nD.new_zeros((len(kept_nD), widest))
    places_nm[row, rank] = column
    return places_nm, torch.arange(widest, device=count.device) < count[:, None]

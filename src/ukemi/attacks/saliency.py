"""JSMA: raises (or lowers) the two most telling features at a time (Papernot et al. 2016, algorithms 2 and 3)."""

from dataclasses import dataclass, fields
from functools import partial
from math import floor, prod
from typing import Literal

import torch
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Victim, attacking
from ukemi.attacks.settings import check_numbers
from ukemi.attacks.slopes import uncounted_slopes
from ukemi.errors import UserError
from ukemi.models.repeated import Repeated

_PAIRS = 2**22
"""How many pairs are weighed at once: 32 MB a tensor."""
WIDTH = {"cuda": 64}
"""How many features are weighed per sample where a step is recorded, which needs a fixed number; a sample that has
more takes that step by itself. Elsewhere: as many as there are."""
PATIENCE = {"cuda": 8}
"""after how many steps a device is asked who is solved: asking makes it wait"""
LEAVING = {"cuda": 0.5}
"""from which share of a batch on its solved samples leave: a recorded step is bound to the size of its batch"""
_SMALL = {"cuda": 2**20}
"""features of a batch up to which nobody leaves: with fewer a step takes as long, and recording it anew takes longer"""
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
    label, and any error counts. `distance` is in L2; `changed_features` counts the features. A step takes one forward
    and two backward passes, and one more sees that the last one solved it. Nothing is random here: `index` is taken so
    that every attack can be called alike.
    """
    with attacking(model):
        victim = Victim(model, images, labels, targets, index)
        features = prod(images.shape[1:])
        _check(theta, gamma, others, features)
        most = floor(gamma * features + 1e-9)
        return _attack(victim, theta, most, weighted=others == "likely")


def changed_features(images: Tensor, attacked: Attacked) -> Tensor:
    """How many features of each image an attack changed, int64 `[N]`."""
    return (attacked.images != images).flatten(1).sum(1)


def _check(theta: float, gamma: float, others: str, features: int) -> None:
    check_numbers(theta=theta, gamma=gamma)
    if not _LEAST <= abs(theta) <= 1:
        raise UserError(f"theta: a number from -1 to 1, at least {_LEAST} from 0, is needed, but {theta} was given.")
    if not 0 < gamma <= 1:
        raise UserError(f"gamma: a share above 0 and at most 1 is needed, but {gamma} was given.")
    if others not in ("all", "likely"):
        raise UserError(f"others: all or likely is needed, but {others!r} was given.")
    if gamma * features + 1e-9 < 2:
        raise UserError(f"gamma: {gamma} of {features} features leaves no pair to change.")


@dataclass
class _Front:
    """The samples that are still in the batch, n of them; images are flat, `[n, D]`."""

    rows: Tensor
    images: Tensor
    aims: Tensor
    """labels, or targets"""
    changed: Tensor
    """bool `[n, D]`"""
    solved: Tensor
    ended: Tensor
    """no pair is left"""
    wide: Tensor
    """more features are to be weighed than a recorded step can: it waits"""
    forwards: Tensor
    backwards: Tensor

    def take(self, at: Tensor) -> "_Front":
        return _Front(**{one.name: getattr(self, one.name)[at] for one in fields(self)})

    def put(self, at: Tensor, other: "_Front") -> None:
        for one in fields(self):
            getattr(self, one.name)[at] = getattr(other, one.name)


def _attack(victim: Victim, theta: float, most: int, *, weighted: bool) -> Attacked:
    originals, device = victim.originals.flatten(1), victim.originals.device.type
    found, success = originals.clone(), torch.zeros_like(victim.labels, dtype=torch.bool)
    front = _front(victim, originals)
    step = partial(_step, victim, theta, most, weighted)
    repeated = Repeated(partial(step, WIDTH.get(device)))
    while len(front.rows):
        closed = front.solved | front.ended
        waiting, done = torch.stack([front.wide.sum(), closed.sum()]).tolist()  # a device waits once for both
        if waiting:
            at = front.wide.nonzero()[:, 0]
            some = front.take(at)
            some.wide = torch.zeros_like(some.wide)
            step(None, some)
            front.put(at, some)
        leaving = done > LEAVING.get(device, 0) * len(front.rows) and front.images.numel() > _SMALL.get(device, 0)
        if leaving or done == len(front.rows):
            _settle(victim, front, found, success)
            front = front.take((~closed).nonzero()[:, 0])
        repeated(front, PATIENCE.get(device, 1) if len(front.rows) else 0)
    images, distance = found.unflatten(1, victim.originals.shape[1:]), (found - originals).norm(dim=1)
    return Attacked(images, success, distance, "l2", victim.forwards, victim.backwards)


def _front(victim: Victim, originals: Tensor) -> _Front:
    rows = torch.arange(len(originals), device=originals.device)
    changed, no = torch.zeros_like(originals, dtype=torch.bool), torch.zeros_like(rows, dtype=torch.bool)
    counts = (victim.forwards.clone(), victim.backwards.clone())
    # copies of what is the caller's: a step writes into what it finds
    return _Front(rows, originals.clone(), victim.aims.clone(), changed, no, no.clone(), no.clone(), *counts)


def _settle(victim: Victim, front: _Front, found: Tensor, success: Tensor) -> None:
    success[front.rows] = front.solved
    found[front.rows] = front.images.where(front.solved[:, None], found[front.rows])
    victim.forwards[front.rows], victim.backwards[front.rows] = front.forwards, front.backwards


def _step(victim: Victim, theta: float, most: int, weighted: bool, width: int | None, front: _Front) -> None:
    """Who is solved by now, and two features more of every other sample; with a `width` nothing in here waits for the
    device."""
    logits, gains_n2D = _gains(victim, front, weighted)
    gains_n2D = gains_n2D * (1 if theta > 0 else -1)
    room_nD = front.images < 1 if theta > 0 else front.images > 0
    spent_n1 = front.changed.sum(1, keepdim=True) > most - 2
    allowed_nD = room_nD & (front.changed | ~spent_n1)
    pairs_n2, wide_n = _weighed(gains_n2D[:, 0], -gains_n2D[:, 1], allowed_nD, width)
    pairs_n2 = pairs_n2.where(pairs_n2 >= 0, _raising(gains_n2D[:, 0], allowed_nD))
    open_n, reached_n = ~(front.solved | front.ended | front.wide), victim.reached(logits, front.aims)
    front.wide = front.wide | (open_n & wide_n & ~reached_n)
    open_n = open_n & ~front.wide
    front.solved = front.solved | (open_n & reached_n)
    left_n = open_n & ~reached_n
    going_n = left_n & (pairs_n2[:, 0] >= 0)
    front.ended = front.ended | (left_n & ~going_n)
    places_n2 = pairs_n2.clamp(min=0)
    at_n2 = front.images.gather(1, places_n2)
    moved_n2 = torch.where(going_n[:, None], (at_n2 + theta).clamp(0, 1), at_n2)
    front.images = front.images.scatter(1, places_n2, moved_n2)
    front.changed = front.changed.scatter(1, places_n2, front.changed.gather(1, places_n2) | going_n[:, None])
    front.forwards = front.forwards + open_n
    front.backwards = front.backwards + 2 * open_n


def _gains(victim: Victim, front: _Front, weighted: bool) -> tuple[Tensor, Tensor]:
    """The logits, and the gradients `[n, 2, D]` of the one that is aimed at and of the others'."""

    def mixed(logits: Tensor, at: slice) -> Tensor:
        own_n1 = front.aims[at, None]
        if victim.targets is None:
            own_n1 = logits.scatter(1, own_n1, -torch.inf).argmax(1, keepdim=True)
        aim_nK = torch.zeros_like(logits, dtype=front.images.dtype).scatter(1, own_n1, 1)
        rest_nK = logits.scatter(1, own_n1, -torch.inf).softmax(1) if weighted else 1 - aim_nK
        return torch.stack([aim_nK, rest_nK], 1)

    logits, slopes = uncounted_slopes(victim, front.images.unflatten(1, victim.originals.shape[1:]), 2, mixed)
    return logits, slopes.flatten(2)


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
    return _weighed(aims_nD, others_nD, allowed_nD, None)[0]


def _weighed(aims_nD: Tensor, others_nD: Tensor, allowed_nD: Tensor, width: int | None) -> tuple[Tensor, Tensor]:
    """The best pairs, and which rows have more than `width` features to weigh: their pair may be another."""
    allowed_nD = allowed_nD & aims_nD.isfinite() & others_nD.isfinite()
    places_nm, count_n = _two_layers(aims_nD, others_nD, allowed_nD, width)
    count = places_nm.shape[1]
    if count < 2:
        return places_nm.new_full((len(aims_nD), 2), -1), count_n > count
    later = torch.arange(count, device=places_nm.device)
    real_nm = later < count_n[:, None]
    # in double precision the sums and products of float32 gains are (nearly always) exact, and ties are true ties
    aims_nm, others_nm = (gains.gather(1, places_nm).double() for gains in (aims_nD, others_nD))
    best_n = aims_nm.new_zeros(len(aims_nm))
    chosen_n2 = places_nm.new_full((len(aims_nm), 2), -1)
    block = max(1, _PAIRS // (len(aims_nm) * count))
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
    return chosen_n2, count_n > count


def _first_highest(score_nP: Tensor) -> tuple[Tensor, Tensor]:
    """The highest of each row and the first place that has it, on every device."""
    value_n = score_nP.amax(1)
    return value_n, (score_nP == value_n[:, None]).to(torch.uint8).argmax(1)


def _two_layers(aims_nD: Tensor, others_nD: Tensor, allowed_nD: Tensor, width: int | None) -> tuple[Tensor, Tensor]:
    """The features that fewer than two others match or beat: places `[n, m]` in rising order, and how many they are;
    the first `width` of them, where one is given.

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
    rank_nD = kept_nD.cumsum(1)
    count_n = rank_nD[:, -1]
    if width is None:
        width = int(count_n.max()) if len(count_n) else 0
    place_nD = torch.where(kept_nD, rank_nD - 1, width).clamp(max=width)  # the last place is thrown away
    features_nD = torch.arange(kept_nD.shape[1], device=kept_nD.device).expand_as(kept_nD)
    places_nm = order_nD.new_zeros((len(kept_nD), width + 1)).scatter_(1, place_nD, features_nD)
    return places_nm[:, :width], count_n

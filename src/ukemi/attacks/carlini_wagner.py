"""Carlini and Wagner's L2 attack: Adam in tanh space, with a search over the weight of misclassification per sample."""

from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Objective, Victim, attacking
from ukemi.attacks.settings import check_count, check_numbers
from ukemi.errors import UserError
from ukemi.models.repeated import Repeated

# These constants were compared on validation images (benchmarks/early_stop.py, results/early-stop-cpu.md).
_INSIDE = 0.9999
"""Pixels of 0 and 1 lie at infinity in tanh space: they start this little inside. Nearer to the bounds (0.999999 in
the authors' code) the first 200 steps only bring them to where they can move; farther in, near images get farther."""
_FARTHER, _FEW = 0.999, 0.25
"""An image of hardly any other pixels moves so little at first that each of its runs may end without success: below
this share of others it is then searched again, from here."""
_PROGRESS = 0.99
"""A run ends where its lowest loss has not fallen to this share since the last look."""
_GAIN = 0.999
"""A sample is done where a run after its first success has not brought its distance down to this share."""
_FIRST, _SECOND = 0.9, 0.999
_LEAVING = {"cuda": 0.1}
"""From which share of a batch on its finished samples leave: a recorded step is bound to the size of its batch."""


def carlini_wagner(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    confidence: float = 0,
    searches: int = 9,
    steps: int = 1000,
    rate: float = 0.01,
    initial: float = 1e-3,
    abort_early: bool = True,
    targets: Tensor | None = None,
    index: Tensor | None = None,
) -> Attacked:
    """The nearest image in L2 that the model errs on by at least `confidence`, or that it takes for its target.

    Minimises `distance² + c · max(0, margin + confidence)` by Adam at `rate` (Carlini and Wagner 2017, section V).
    Each sample has its own c: from `initial` ten times more until it errs, then halving the interval, in `searches`
    runs of at most `steps`. With `abort_early` a run ends where a twentieth of its steps (at least 50) lowered the
    sample's loss by less than 1 %, and the sample is done after a run that shortened its known distance by less than
    0.1 %; an image of nearly only 0 and 1 whose runs find nothing is searched once more, from a little farther inside.
    Samples don't wait for each other: one whose run ends begins its next one, one whose runs are done leaves.
    The nearest image of all runs is kept; a sample that errs already is returned as it is, at distance 0.
    Nothing is random here: `index` is taken so that every attack can be called alike.
    """
    _check(confidence, searches, steps, rate, initial)
    with attacking(model):
        victim = Victim(model, images, labels, targets, index)
        return _Search(victim, confidence, searches, steps, rate, abort_early).run(initial)


def _check(confidence: float, searches: int, steps: int, rate: float, initial: float) -> None:
    check_count("searches", searches, 1)
    check_count("steps", steps)
    check_numbers(confidence=confidence, rate=rate, initial=initial)
    if not 0 <= confidence < float("inf"):
        raise UserError(f"confidence: a number of at least 0 is needed, but {confidence} was given.")
    for name, given in (("rate", rate), ("initial", initial)):
        if not 0 < given < float("inf"):
            raise UserError(f"{name}: a number above 0 is needed, but {given} was given.")


@dataclass
class _Open:
    """The samples whose search goes on, n of them; images are flat, `[n, D]`."""

    rows: Tensor
    aims: Tensor
    """labels or targets, `[n]`"""
    original: Tensor
    centre: Tensor
    """the original in tanh space"""
    start: Tensor
    """and as it comes back from there"""
    best: Tensor
    distance: Tensor
    """the nearest image that errs, and how far it is, `[n]`; infinity before one is found"""
    place: Tensor
    first: Tensor
    second: Tensor
    """Adam's two moments"""
    taken: Tensor
    """steps in this run, `[n]`"""
    weight: Tensor
    """c, `[n]`"""
    low: Tensor
    high: Tensor
    run: Tensor
    """runs that are over, `[n]`; from `searches` on nothing is found any more"""
    erred: Tensor
    """whether this run has made the model err, `[n]`"""
    loss: Tensor
    """the lowest of this run, `[n]`"""
    checked: Tensor
    """what it was at the last look"""
    before: Tensor
    """the sample's smallest distance when this run began, `[n]`"""

    def take(self, which: Tensor) -> "_Open":
        rows = which.nonzero()[:, 0]
        return _Open(*(getattr(self, field.name)[rows] for field in fields(self)))


class _Search:
    def __init__(
        self, victim: Victim, confidence: float, searches: int, steps: int, rate: float, abort_early: bool
    ) -> None:
        self.victim, self.confidence, self.searches, self.steps = victim, confidence, searches, steps
        self.rate, self.abort_early = rate, abort_early
        self.shape = victim.originals.shape[1:]
        self.originals = victim.originals.flatten(1)
        self.objective: Objective = self._hinge

    def run(self, initial: float) -> Attacked:
        victim = self.victim
        rows = torch.arange(len(self.originals), device=self.originals.device)
        success = self._fooled(victim.logits(victim.originals, rows), victim.aims)
        best = self.originals.clone()
        self._all_runs(self._opened(rows[~success], initial, _INSIDE), best, success)
        if self.abort_early:
            others = ((self.originals > 0) & (self.originals < 1)).double().mean(1)
            stuck = rows[~success & (others < _FEW)]
            self._all_runs(self._opened(stuck, initial, _FARTHER), best, success)
        distance = (best - self.originals).norm(dim=1)
        images = best.unflatten(1, self.shape)
        return Attacked(images, success, distance, "l2", victim.forwards, victim.backwards)

    def _all_runs(self, still: _Open, best: Tensor, success: Tensor) -> None:
        """All runs of these samples; writes what they found."""
        victim, stride, repeated = self.victim, _stride(self.steps), Repeated(self._step)
        left = len(still.rows) if self.steps else 0
        while left:
            repeated(still, stride)
            taken = stride * (still.run < self.searches)
            victim.forwards[still.rows] += taken
            victim.backwards[still.rows] += taken
            self._look(still)
            going, count = still.run < self.searches, len(still.rows)
            left = int(going.sum())
            if not left or count - left > _LEAVING.get(best.device.type, 0) * count:
                best[still.rows], success[still.rows] = still.best, still.distance.isfinite()
                still = still.take(going)

    def _opened(self, rows: Tensor, initial: float, inside: float) -> _Open:
        original = self.originals[rows]
        centre = torch.atanh((original * 2 - 1) * inside)
        zeros, none = torch.zeros_like(centre), torch.zeros_like(centre[:, 0])
        endless = torch.full_like(none, torch.inf)
        return _Open(
            rows=rows,
            aims=self.victim.aims[rows],
            original=original,
            centre=centre,
            start=(centre.tanh() + 1) / 2,
            best=original.clone(),
            distance=endless.clone(),
            place=centre.clone(),
            first=zeros,
            second=zeros.clone(),
            taken=none.clone(),
            weight=torch.full_like(none, initial),
            low=none.clone(),
            high=endless,
            run=none.clone(),
            erred=none.bool(),
            loss=endless.clone(),
            checked=endless.clone(),
            before=endless.clone(),
        )

    def _step(self, still: _Open) -> None:
        """One step of Adam for every open sample; keeps the nearest image that errs. No wait for the device."""
        squashed = still.place.tanh()
        images = (squashed + 1) / 2
        lacking, slope, logits = self.victim.slope(images.unflatten(1, self.shape), still.aims, self.objective)
        change = images - still.start
        loss = change.square().sum(1) + still.weight * lacking
        still.loss = torch.minimum(still.loss, loss)
        self._keep(still, images, logits)
        slope = slope.flatten(1).nan_to_num(0, 0, 0)
        slope = (slope * still.weight[:, None] + 2 * change) * (1 - squashed.square()) / 2
        still.taken += 1
        still.first.lerp_(slope, 1 - _FIRST)
        still.second.lerp_(slope.square(), 1 - _SECOND)
        lengths = self.rate / (1 - _FIRST**still.taken)
        spread = (still.second / (1 - _SECOND**still.taken)[:, None]).sqrt_().add_(1e-8)
        still.place -= lengths[:, None] * still.first / spread

    def _keep(self, still: _Open, images: Tensor, logits: Tensor) -> None:
        fooled = self._fooled(logits, still.aims)
        still.erred |= fooled
        distance = (images - still.original).norm(dim=1)
        nearer = fooled & (distance < still.distance) & (still.run < self.searches)
        still.distance = distance.where(nearer, still.distance)
        torch.where(nearer[:, None], images, still.best, out=still.best)

    def _look(self, still: _Open) -> None:
        """Begins the next run of the samples whose run is over."""
        over = still.taken >= self.steps
        if self.abort_early:
            over |= ~(still.loss <= _PROGRESS * still.checked)
        still.checked = still.loss.clone()
        still.run += over
        if self.abort_early:
            settled = over & still.before.isfinite() & (still.distance > _GAIN * still.before)
            still.run += settled * self.searches
            still.before = still.distance.where(over, still.before)
        still.high = still.weight.where(over & still.erred, still.high)
        still.low = still.weight.where(over & ~still.erred, still.low)
        middle = ((still.low + still.high) / 2).where(still.high.isfinite(), still.weight * 10)
        still.weight = middle.where(over, still.weight)
        fresh = over[:, None]
        still.place = still.centre.where(fresh, still.place)
        still.first, still.second = still.first.masked_fill(fresh, 0), still.second.masked_fill(fresh, 0)
        still.taken, still.erred = still.taken.masked_fill(over, 0), still.erred & ~over
        still.loss, still.checked = (kept.masked_fill(over, torch.inf) for kept in (still.loss, still.checked))

    def _hinge(self, logits_nK: Tensor, aims_n: Tensor) -> Tensor:
        """What lacks to a wrong answer (or to the target) by the margin `confidence`, at least 0, `[n]`."""
        own_n1 = aims_n[:, None]
        aim_n = logits_nK.gather(1, own_n1)[:, 0]
        other_n = logits_nK.scatter(1, own_n1, -torch.inf).amax(1)
        lead_n = aim_n - other_n if self.victim.targets is None else other_n - aim_n
        return (lead_n + self.confidence).clamp(min=0)

    def _fooled(self, logits: Tensor, aims: Tensor) -> Tensor:
        """Whether the answer would stand if the wrong class's lead were smaller by `confidence`."""
        if self.confidence:
            sign = 1 if self.victim.targets is None else -1
            logits = logits + F.one_hot(aims, logits.shape[1]) * (sign * self.confidence)
        return self.victim.reached(logits, aims)


def _stride(steps: int) -> int:
    """Steps between two looks at who is done: at least 50 and a twentieth, a divisor so that runs end on one."""
    return next((size for size in range(max(50, -(-steps // 20)), steps) if steps % size == 0), steps)

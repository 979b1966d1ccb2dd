"""Whether a robust accuracy can be trusted: the usual ways in which an attack fails without saying so, as flags.

After AutoAttack's warnings (Croce and Hein 2020) and the checklist of Carlini et al. (2019).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi.attacks.base import Victim, attacking, log_odds
from ukemi.attacks.config import Attack
from ukemi.attacks.fgsm import fgsm
from ukemi.attacks.iterative import pgd
from ukemi.attacks.settings import check_count, check_numbers
from ukemi.attacks.square import square
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures.attacks import BLOCK, Report, under_attack
from ukemi.measures.outputs import RANDOM, Flag, Outputs
from ukemi.models.inference import home_of
from ukemi.schema import reason

FLAGS = (
    *("random-output", "batch-mates", "probabilities", "chance-accuracy", "zero-gradients"),
    *("steps-hurt", "steps-missing", "black-box-wins", "unbounded-holds", "not-monotone"),
)
SMALLER, LARGER = 0.5, (2.0, 4.0)
"""the budgets beside epsilon, as multiples of it; those above 1 are left out"""
LONGER = 4
"""a longer run has this many times the steps; a shorter one has its part of them"""
_MIXED = "An output depends on the images beside it, and attacks change these."
_NOBODY = "There is no image that is recognised and has a gradient."


@dataclass(frozen=True)
class Run:
    """One attack that was run for the check: on how many images, and how many of them it fooled."""

    name: str
    epsilon: float
    attacked: int
    fooled: int
    forwards: int
    backwards: int


@dataclass(frozen=True)
class Selfcheck:
    """The flags, in the order of `FLAGS`, and the numbers that they speak about."""

    flags: tuple[Flag, ...]
    runs: tuple[Run, ...]
    images: int
    recognised: int
    held: int | None
    """recognised, and so under PGD at epsilon too: what is in question; None where no attack was run"""
    held_by_all: int | None
    """and under every other run within epsilon"""
    epsilon: float
    forwards: int
    """all passes, in images"""
    backwards: int

    @property
    def raised(self) -> tuple[Flag, ...]:
        return tuple(flag for flag in self.flags if flag.raised)

    def __getitem__(self, name: str) -> Flag:
        return next(flag for flag in self.flags if flag.name == name)


def selfcheck(
    model: nn.Module,
    data: Data,
    *,
    epsilon: float = 8 / 255,
    steps: int = 40,
    queries: int = 500,
    tolerance: float = 0.02,
    seed: int = 0,
    report: Report | None = None,
) -> Selfcheck:
    """Looks at the outputs and gradients of `model` on all of `data`, then attacks it in linf in several ways.

    A flag that counts images is raised above the share `tolerance` of those it is judged by, and never by one image
    alone. It is judged by images that no earlier flag explains: one without a gradient counts under `zero-gradients`
    only, and where outputs are random or depend on batch mates no attack is run. A model that gives probabilities is
    flagged, and attacked by their logarithm. Modes, buffers and torch's random state are left as they were;
    `report(done, total)` hears how far it is.
    """
    _check(epsilon, steps, queries, tolerance)
    total = 2 + 2 * steps * (3 + len(LARGER) + LONGER) + 2 * max(1, steps // LONGER) + queries
    with _unchanged(model):
        look = Outputs(model, data, seed)
        flags = [look.random(), look.mates(), look.probabilities(), look.chance(len(data.classes))]
        linked = _Linked(model, flags[2].raised)
        slopes = _Slopes(linked, data, look.right)
        trial = _Trial(linked, data, look.right, slopes.blind, epsilon, seed, tolerance)
        moot = RANDOM if flags[0].raised else _MIXED if flags[1].raised else "" if look.right.any() else _NOBODY
        if not moot:
            trial.run_all(steps, queries, lambda done: report(min(done, total), total) if report else None)
        flags += [slopes.flag(trial), *trial.flags(moot or ("" if trial.judged.any() else _NOBODY), steps)]
    if report:
        report(total, total)
    return Selfcheck(
        tuple(flags),
        tuple(trial.runs),
        len(data),
        int(look.right.sum()),
        None if moot else trial.left("pgd"),
        None if moot else trial.left(*trial.white, "square"),
        epsilon,
        look.forwards + slopes.passes + sum(run.forwards for run in trial.runs),
        slopes.passes + sum(run.backwards for run in trial.runs),
    )


class _Linked(nn.Module):
    """The model as attacks need it: logits that hang on the input, be it by a gradient of zero."""

    def __init__(self, model: nn.Module, logarithm: bool) -> None:
        super().__init__()
        self.model, self.logarithm, self.cut = model, logarithm, False
        self.training = model.training

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.model(images.detach() if self.cut else images)
        if self.logarithm:
            outputs = outputs.clamp(min=torch.finfo(outputs.dtype).tiny).log()
        return outputs + 0 * images.flatten(1).sum(1, keepdim=True)


class _Slopes:
    """Which recognised images have a gradient that is zero everywhere or not finite, bool `[N]`.

    A model that can't be differentiated at all is cut off from its input, so that attacks run and find zeros.
    """

    def __init__(self, linked: _Linked, data: Data, right_N: Tensor) -> None:
        self.refused, self.passes = "", 2 * int(right_N.sum())
        self.blind, self.blind_by_cross_entropy = torch.zeros_like(right_N), torch.zeros_like(right_N)
        device = home_of(linked)
        for positions in right_N.nonzero().flatten().split(BLOCK):
            batch = data.batch(positions, device)
            victim, rows = Victim(linked, batch.images, batch.labels), torch.arange(len(positions), device=device)
            with attacking(linked):
                try:
                    victim.gradient(batch.images[:1], rows[:1], log_odds)
                except torch.OutOfMemoryError:
                    raise
                except RuntimeError as error:
                    self.refused, linked.cut = reason(error), True
                _, slopes, _ = victim.gradient(batch.images, rows, log_odds)
                _, others, _ = victim.gradient(batch.images, rows, partial(F.cross_entropy, reduction="none"))
            self.blind[positions] = _useless(slopes)
            self.blind_by_cross_entropy[positions] = _useless(others)

    def flag(self, trial: "_Trial") -> Flag:
        count, blind, found = (int(each.sum()) for each in (trial.right, self.blind, self.blind & trial.any("square")))
        raised = blind > max(1, trial.tolerance * count)
        said = f"{blind} of {count} recognised images have a gradient that is zero everywhere or not finite."
        if self.refused:
            said += f" The model can't be differentiated ({self.refused})."
        if raised and trial.runs:
            said += f" Square, which needs none, fools {found} of them."
        seen = {"images": count, "zero": blind, "zero_by_cross_entropy": int(self.blind_by_cross_entropy.sum())}
        seen["fooled_by_square"] = found
        return Flag("zero-gradients", raised, said if count else _NOBODY, seen, count > 0)


class _Trial:
    """The attacks: which images each of them fooled, bool `[N]` over all of the data."""

    white = ("pgd", "fgsm", "shorter", "smaller", "longer")
    """the runs with gradients that stay within epsilon"""

    def __init__(
        self, model: nn.Module, data: Data, right: Tensor, blind: Tensor, epsilon: float, seed: int, tolerance: float
    ) -> None:
        self.model, self.data, self.right, self.judged = model, data, right, right & ~blind
        self.epsilon, self.seed, self.tolerance = epsilon, seed, tolerance
        wider = {f"times {times:g}": times * epsilon for times in LARGER if times * epsilon < 1}
        self.budgets = {"smaller": SMALLER * epsilon, "pgd": epsilon, **wider}
        self.fooled: dict[str, Tensor] = {}
        self.runs: list[Run] = []

    def run_all(self, steps: int, queries: int, told: Callable[[int], None]) -> None:
        few, many = max(1, steps // LONGER), LONGER * steps
        title = {count: f"PGD, {count} step{'s' * (count > 1)}" for count in (few, steps, many)}
        by_pgd = {count: partial(pgd, steps=count, seed=self.seed) for count in (few, steps, many)}
        done = 2

        def run(name: str, title: str, attack: Attack, among: Tensor, epsilon: float, cost: int) -> None:
            nonlocal done
            self._run(name, title, attack, among, epsilon)
            done += cost
            told(done)

        run("pgd", title[steps], by_pgd[steps], self.right, self.epsilon, 2 * steps)
        run("fgsm", "FGSM", fgsm, self.judged, self.epsilon, 2)
        for name, budget in {**self.budgets, "unbounded": 1.0}.items():
            if name != "pgd":
                run(name, title[steps], by_pgd[steps], self.judged, budget, 2 * steps)
        # what follows asks about images that hold so far: only these are tried
        for name, count in (("shorter", few), ("longer", many)):
            if count == steps:  # of one step there is no fourth
                continue
            run(name, title[count], by_pgd[count], self.judged & ~self.any("pgd"), self.epsilon, 2 * count)
        search = partial(square, steps=queries, seed=self.seed)
        run("square", f"Square, {queries} queries", search, self.right & ~self.any(*self.white), self.epsilon, queries)

    def _run(self, name: str, title: str, attack: Attack, among: Tensor, epsilon: float) -> None:
        rows, fooled = among.nonzero().flatten(), torch.zeros_like(self.right)
        if not len(rows):
            return
        part = self.data.take(rows.to(self.data.labels.device))
        found = under_attack(self.model, part, partial(attack, epsilon=epsilon))
        self.fooled[name] = fooled.index_copy_(0, rows, found.fooled)
        forwards = found.forwards + len(rows)  # the first pass, who is recognised, is not among the attack's
        self.runs.append(Run(title, epsilon, len(rows), int(fooled.sum()), forwards, found.backwards))

    def any(self, *names: str) -> Tensor:
        """Fooled by one of these runs, bool `[N]`."""
        return torch.stack([self.fooled.get(name, torch.zeros_like(self.right)) for name in names]).any(0)

    def left(self, *names: str) -> int:
        return int((self.right & ~self.any(*names)).sum())

    def flags(self, moot: str, steps: int) -> list[Flag]:
        """What the runs say about each other; `moot` says why nothing can be said."""
        if moot:
            return [Flag(name, False, moot, {}, judged=False) for name in FLAGS[5:]]
        open_N, few = self.judged & ~self.any("pgd"), max(1, steps // LONGER)
        one, some = (int((open_N & self.any(name)).sum()) for name in ("fgsm", "shorter"))
        shorter = f", {some} to {few}" if few < steps else ""
        found = {
            "steps-hurt": (
                open_N & self.any("fgsm", "shorter"),
                f"{{}} fall to fewer steps but not to {steps}: {one} to one step (FGSM){shorter}.",
            ),
            "steps-missing": (
                open_N & self.any("longer"),
                f"{{}} fall to {LONGER * steps} steps but not to {steps}.",
            ),
            "black-box-wins": (
                self.judged & self.any("square"),
                "{} fall to Square, a random search without gradients, and to no attack with gradients.",
            ),
            "unbounded-holds": (
                self.judged & ~self.any("unbounded"),
                "{} hold under PGD even where every pixel may become anything (epsilon 1).",
            ),
            "not-monotone": (self._lost(), "{} fall at one budget and hold at a larger one."),
        }
        return [self._counted(name, *found[name]) for name in FLAGS[5:]]

    def _counted(self, name: str, images_N: Tensor, sentence: str) -> Flag:
        count, found = int(self.judged.sum()), int(images_N.sum())
        raised = found > max(1, self.tolerance * count)
        return Flag(name, raised, sentence.format(f"{found} of {count} images"), {"images": count, "found": found})

    def _lost(self) -> Tensor:
        """Fooled at a budget and not at some larger one."""
        before = lost = torch.zeros_like(self.right)
        for name in self.budgets:
            fooled = self.any(name) & self.judged
            before, lost = before | fooled, lost | (before & ~fooled)
        return lost


def _useless(slopes: Tensor) -> Tensor:
    flat = slopes.flatten(1)
    return ((flat == 0).all(1) | ~flat.isfinite().all(1)).cpu()


def _check(epsilon: float, steps: int, queries: int, tolerance: float) -> None:
    check_numbers(epsilon=epsilon, tolerance=tolerance)
    if not 0 < epsilon < 1:
        raise UserError(f"epsilon: it should lie between 0 and 1, but {epsilon:g} was given.")
    if not 0 <= tolerance < 1:
        raise UserError(f"tolerance: it should lie in 0 to 1, 1 excluded, but {tolerance:g} was given.")
    check_count("steps", steps, 1)
    check_count("queries", queries, 1)


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """A model that changes itself in a pass (statistics that run on) gets its buffers back, torch its random state."""
    kept, device = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}, home_of(model)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in kept and not torch.equal(buffer, kept[name]):
                    buffer.copy_(kept[name])

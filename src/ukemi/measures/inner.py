"""How well a search finds the worst variant of an image while the weights rest (SENSEI's Exp-1 and Figure 4).

The paper reads it off the training loss, where a better search also trains another network. Here every method searches
the same images of the same network, is charged for its forward passes, and is held against the exhaustive grid.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi.augmenters import AUGMENTERS, Augmenter, AugmenterConfig, Sensei, Standard
from ukemi.data import Batch, Data
from ukemi.errors import UserError, check_known
from ukemi.measures.robustness import Report
from ukemi.models import check_head
from ukemi.models.inference import default_chunk, home_of, logits
from ukemi.spaces import Space, grid_of
from ukemi.variations import vary

SEARCHES = ("random", "worst-of", "sensei", "sensei-rw", "sensei-t", "sensei-released", "augmentation", "ukemi")
"""What is compared by default; SENSEI-SA is not, for it is SENSEI that searches less, which pays while weights move."""
FORWARDS = 10
"""forward passes per image that one generation stands for: the papers' population"""
BATCH = 128
"""images in a batch, as in training: SENSEI's released code throws one coin for each"""
SAME = 1e-6
"""a loss that is lower by no more than this counts as equal"""

Method = AugmenterConfig | Callable[[Space, int], Augmenter]
"""The settings of an augmenter, or a function of space and seed that makes one."""


@dataclass(frozen=True)
class MethodQuality:
    """What one method found in T generations on N images, once per seed (S). Tensors on the CPU."""

    name: str
    forwards: Tensor
    """float64 `[T]`: forward passes per image up to the end of each generation"""
    current: Tensor
    """float32 `[S, T, N]`: the loss of the variant that a generation gives to training"""
    grid: Tensor
    """float32 `[N]`: the highest loss on the grid"""

    @cached_property
    def best(self) -> Tensor:
        """float32 `[S, T, N]`: the highest loss of the variants given so far; it never falls."""
        return self.current.cummax(1).values

    def share(self, within: float | None = None) -> Tensor:
        """Mean loss found as a share of the grid's, per seed: float64 `[S]`; above 1 it beats the grid.

        `within` counts only what was found in so many forward passes per image (the grid's own number is a fair one);
        NaN where no generation fits.
        """
        return self._found(within).double().mean(1) / self.grid.double().mean()

    def reached(self, within: float | None = None) -> Tensor:
        """Share of the images with a loss at least as high as the grid's, up to rounding, per seed: float64 `[S]`."""
        found_SN = self._found(within)
        reached_S = (found_SN >= self.grid - SAME).double().mean(1)
        return torch.where(found_SN[:, 0].isnan(), torch.nan, reached_S)

    def _found(self, within: float | None) -> Tensor:
        """The highest losses `[S, N]` at the end, or after the last generation that fits."""
        fitting = len(self.forwards) if within is None else int((self.forwards <= within + SAME).sum())
        return self.best[:, fitting - 1] if fitting else torch.full_like(self.best[:, 0], torch.nan)


@dataclass(frozen=True)
class SearchQuality:
    """How near each method comes to the worst variants of a grid. Tensors are per image, on the CPU."""

    space: Space
    rows: Tensor
    """the grid's chromosomes `[rows, G]`"""
    clean: Tensor
    """float32 `[N]`: the loss of the unchanged image"""
    grid: Tensor
    """float32 `[N]`: the highest loss on the grid"""
    methods: Mapping[str, MethodQuality]
    seeds: tuple[int, ...]
    generations: int

    @property
    def budget(self) -> int:
        """Forward passes per image that every method may spend."""
        return FORWARDS * self.generations


def search_quality(
    model: nn.Module,
    data: Data,
    space: Space,
    methods: Sequence[str] | Mapping[str, Method] = SEARCHES,
    *,
    generations: int = 20,
    grid: int | str | Tensor = 3,
    seed: int | Sequence[int] = 0,
    report: Report | None = None,
) -> SearchQuality:
    """Lets every method search the worst variants of `data` for `model`, whose weights rest, at equal forward passes.

    `methods` are augmenters by name, or any names with settings. Each may spend 10 x `generations` passes per image: as
    many generations where it scores ten variants in each, ten times as many for `random`, which makes one. Losses are
    plain cross-entropy of the variants that a method gives to training, whatever its own fitness; these passes, and
    those for the `grid` (as in `robust_accuracy`), are not charged. The images are held in memory.
    """
    makers = _makers(methods)
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    if generations < 1 or not seeds or len(set(seeds)) < len(seeds):
        raise UserError(
            f"generations and seeds: at least one generation and different seeds are needed, but {generations} and"
            f" {list(seeds)} were given."
        )
    space, rows = grid_of(space, grid, data.size)
    if not len(rows):
        raise UserError("grid: at least one chromosome is needed.")
    bench = _Bench.of(model, data)
    budget = FORWARDS * generations
    progress = _Progress(report, len(data) * (len(rows) + len(makers) * len(seeds) * budget))
    clean_N, grid_N = bench.grid(space.identity()[None], space), bench.grid(rows, space, progress)
    found: dict[str, MethodQuality] = {}
    for name, make in makers.items():
        runs = []
        for number in seeds:
            runs.append(bench.searched(_made(name, make, space, number), budget, progress))
            progress.to(len(data) * (len(rows) + budget * (len(found) * len(seeds) + len(runs))))
        found[name] = MethodQuality(name, runs[0][0], _aligned(runs), grid_N)
    return SearchQuality(space, rows, clean_N, grid_N, found, seeds, generations)


@dataclass(frozen=True)
class _Bench:
    """The network and the images, as they lie for all methods alike."""

    model: nn.Module
    data: Data
    device: torch.device
    chunk: int

    @staticmethod
    def of(model: nn.Module, data: Data) -> "_Bench":
        device = home_of(model)
        if not isinstance(data.images, Tensor):  # decoded once, not once per generation
            data = replace(data, images=data.images[torch.arange(len(data))])
        check_head(model, data.batch(torch.arange(min(2, len(data))), device).images, len(data.classes))
        chunk = min(BATCH, default_chunk((data.channels, *data.size), device))
        return _Bench(model, data.to(device), device, chunk)

    def batches(self) -> Iterator[Batch]:
        return self.data.batches(torch.arange(len(self.data)).split(BATCH), self.device)

    def losses(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy `[N]` and logits: in chunks of one shape, so that equal variants have equal losses."""
        outputs_NK = logits(self.model, images, self.chunk)
        loss_N = F.cross_entropy(outputs_NK, labels, reduction="none")
        if not loss_N.isfinite().all():
            raise UserError("model: the loss of a variant is not finite, so there is no highest one.")
        return loss_N, outputs_NK

    def grid(self, rows: Tensor, space: Space, progress: "_Progress | None" = None) -> Tensor:
        """The highest loss of each image among the chromosomes `rows`."""
        best = []
        for batch in self.batches():
            best_N = torch.full((len(batch.labels),), -torch.inf, device=self.device)
            for part_BG in rows.to(self.device).split(max(1, 8 * self.chunk // len(batch.labels))):
                many = len(part_BG)
                images = vary(batch.images.repeat_interleave(many, 0), part_BG.repeat(len(batch.labels), 1), space)
                loss_M = self.losses(images, batch.labels.repeat_interleave(many))[0]
                best_N = torch.maximum(best_N, loss_M.view(-1, many).amax(1))
                if progress is not None:
                    progress.add(len(images))
            best.append(best_N)
        return torch.cat(best).cpu()

    def searched(self, augmenter: Augmenter, budget: int, progress: "_Progress") -> tuple[Tensor, Tensor]:
        """Generations until the next would exceed the budget: passes per image so far `[T]`, losses `[T, N]`.

        Generations may differ in cost (a fitness that learns, samples that are skipped): the dearest so far must fit.
        """
        first = augmenter.settings.warmup if isinstance(augmenter, Sensei) else 0
        found: list[Tensor] = []
        spent, dearest = [0.0], 0.0
        while len(found) < budget and spent[-1] + dearest <= budget + SAME:
            found.append(self._generation(augmenter, first + len(found)))
            # who scores nothing (random) is charged with the one look at what it made
            spent.append(augmenter.forwards / len(self.data) if augmenter.forwards else float(len(found)))
            dearest = max(dearest, spent[-1] - spent[-2])
            if spent[-1] > budget + SAME:
                raise UserError(
                    f"generations: one of {type(augmenter).__name__} takes {dearest:g} passes per image, above the"
                    f" budget of {budget}; more generations or fewer candidates are needed."
                )
            progress.add(round((spent[-1] - spent[-2]) * len(self.data)))
        return torch.tensor(spent[1:], dtype=torch.float64), torch.stack(found)

    def _generation(self, augmenter: Augmenter, epoch: int) -> Tensor:
        """One epoch as training has it, without the step: the losses of what would be trained, `[N]`."""
        augmenter.begin_epoch(self.model, self.data, epoch)
        losses = []
        for batch in self.batches():
            images = augmenter(self.model, batch.images, batch.labels, batch.index, epoch)
            loss_N, outputs_NK = self.losses(images, batch.labels)
            augmenter.observe(batch.index, outputs_NK, batch.labels)
            losses.append(loss_N)
        return torch.cat(losses).cpu()


class _Progress:
    """Tells how many passes are done, of those that are planned."""

    def __init__(self, report: Report | None, total: int) -> None:
        self.report, self.total, self.done = report, total, 0

    def add(self, passes: int) -> None:
        self.to(self.done + passes)

    def to(self, done: int) -> None:
        self.done = min(self.total, done)
        if self.report is not None:
            self.report(self.done, self.total)


def _makers(methods: Sequence[str] | Mapping[str, Method]) -> dict[str, Method]:
    if isinstance(methods, str) or not methods:
        raise UserError(f"methods: a list of names is needed, such as {list(SEARCHES[:3])}, but {methods!r} was given.")
    if isinstance(methods, Mapping):
        return dict(methods)
    for name in methods:
        check_known("methods", name, AUGMENTERS)
    return {name: AUGMENTERS[name]() for name in methods}


def _made(name: str, make: Method, space: Space, seed: int) -> Augmenter:
    made = make.build(space, seed, False) if isinstance(make, AugmenterConfig) else make(space, seed)
    if isinstance(made, Standard):
        raise UserError(f"methods: {name!r} leaves the images as they are; there is no search in it.")
    if made.flips:
        raise UserError(f"methods: {name!r} flips images, which the grid does not; make it with flips=False.")
    return made


def _aligned(runs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """The seeds' losses `[S, T, N]` at the passes of the first seed (all have the same, unless samples are skipped)."""
    axis_T = runs[0][0]
    at = [(torch.searchsorted(spent_T, axis_T + SAME, right=True) - 1).clamp(min=0) for spent_T, _ in runs]
    return torch.stack([loss_TN[at_T] for at_T, (_, loss_TN) in zip(at, runs, strict=True)])

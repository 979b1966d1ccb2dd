"""Inputs that nobody tested: a genetic search for a pattern of uncertainty around each seed (section 2.3 of the paper).

Two ways to make individuals: noise on pixels in an Linf ball (the paper's), and natural variations (`natural.py`). All
seeds of a block evolve together; those that are done leave. Every generation has its own dropout masks, the same for
all individuals of a seed, so that a better fitness is no luck of the masks. Beyond the paper, some individuals are no
children but climb: they follow the gradient of their fitness, whatever it is, and the others breed with them.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from math import inf, prod
from typing import Annotated, Protocol

import torch
from pydantic import Field
from torch import Tensor

from ukemi.attacks.base import leaf_of
from ukemi.attacks.norms import cube, length, radius_of
from ukemi.data import Data, shared
from ukemi.errors import UserError
from ukemi.genetics import tournament
from ukemi.models.inference import home_of
from ukemi.randomness import Stream
from ukemi.ranks import Ranks
from ukemi.schema import Number, Schema
from ukemi.uncertainty import pixels
from ukemi.uncertainty.metrics import Sampled, Uncertainty, joined, measured
from ukemi.uncertainty.passes import Ensemble, Source, check_source
from ukemi.uncertainty.targets import Target

VALUES = {"cpu": 2**23, "cuda": 2**26}
"""pixel values that the individuals of one block of seeds may have"""
STRIDE, MOMENTUM = 0.1, 0.8
"""a climber's first step as a share of the ball's radius, and what is left of a slope after a step"""
TINY = 1e-30
"""no slope is shorter than this"""
EDGE = 0.9
"""how often a drawn pixel lies at an end of the ball, where nothing else is said"""
CHECK, CONFIRM = 1_000_000, 2_000_000
"""turns of masks that no generation uses: from CHECK on to check a find during the search, CONFIRM to count it"""
CHECKS = (4, 12)
"""sets of masks under which, taken together, a find must hold before its seed stops: few first, which sort out most"""
Report = Callable[[int, int], None]
Slope = Callable[[Tensor], Tensor]
"""From images `[N, K, C, H, W]` to the gradients of their fitness."""


class SearchSettings(Schema):
    """How inputs are searched for."""

    population: int = Field(50, ge=2)
    """Individuals per seed image."""
    generations: int = Field(50, ge=1)
    """The budget: a seed without success stops here."""
    epsilon: Number = Field(8 / 255, gt=0, le=1)
    """How far a pixel may move, in pixels of 0..1: 8/255, or 0.3 for digits."""
    tournament: int = Field(8, ge=1)
    """How many individuals compete to be a parent (pixels)."""
    exchange: Number = Field(0.1, ge=0, le=1)
    """The share of pixels that a child has from its second parent (pixels)."""
    mutation: Number = Field(0.02, ge=0, le=1)
    """The share of pixel values that are drawn anew in a child; 0 leaves mutation out, as the paper does (pixels)."""
    edge: Annotated[Number, Field(ge=0, lt=1)] | None = None
    """How often a drawn pixel lies at an end of the ball, or a drawn gene at an end of its range, instead of inside;
    default: 0.9 for pixels, 0.5 for genes."""
    grains: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 2, 4), min_length=1)
    """Sides of the square patches in which noise and mutation are drawn, in turns from individual to individual: a
    patch moves a network more than as many single pixels (pixels)."""
    elite: int = Field(5, ge=0)
    """How many of the best live on unchanged."""
    climbers: int = Field(8, ge=0)
    """How many individuals follow the gradient of their fitness instead of being bred, at most half of the population;
    0 leaves gradients out, as the paper does (pixels)."""


@dataclass(frozen=True)
class Generated:
    """What was found for each of N seeds; tensors on the CPU."""

    images: Tensor
    """`[N, C, H, W]` in [0, 1]: the best individual, whether it succeeded or not"""
    labels: Tensor
    """int64 `[N]`"""
    index: Tensor
    """int64 `[N]`: the identities of the seeds"""
    success: Tensor
    """bool `[N]`: goal and pattern hold under fresh masks"""
    claimed: Tensor
    """bool `[N]`: the search stopped because it saw a success"""
    fitness: Tensor
    """float64 `[N]`: the best that the search saw (`targets.Scores.fitness`)"""
    generations: Tensor
    """int64 `[N]`: how many generations were scored"""
    distance: Tensor
    """`[N]`: Linf, from the seed image"""
    metrics: Uncertainty
    """under the fresh masks"""
    target: Target
    evaluations: int
    """individuals that were scored, and gradients taken; each took one certain pass and T stochastic ones"""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def success_rate(self) -> float:
        return float(self.success.double().mean()) if len(self) else float("nan")


class Maker(Protocol):
    """How individuals of a block of seeds come to be; codes are whatever it evolves, `[N, K, …]`."""

    def first(self, count: int) -> Tensor: ...
    def images(self, codes: Tensor) -> Tensor:
        """`[N, K, C, H, W]` of codes `[N, K, …]`."""

    def children(self, codes: Tensor, fitness_NK: Tensor, generation: int, slope: Slope) -> Tensor:
        """The next generation, as many as before."""

    def kept(self, rows: Tensor) -> "Maker":
        """The maker of some of the seeds."""


class PixelMaker:
    """Noise in an Linf ball, exchange of pixels, mutation; the last of every population are climbers."""

    def __init__(self, images_NCHW: Tensor, index_N: Tensor, settings: SearchSettings, seed: int) -> None:
        self._box = cube(images_NCHW, radius_of(settings.epsilon, images_NCHW, "linf"))
        self._seeds, self._index, self._settings, self._seed = images_NCHW, index_N, settings, seed
        self._speed: Tensor | None = None

    def first(self, count: int) -> Tensor:
        made = pixels.noisy(
            self._box, self._index, count, seed=self._seed, edge=self._edge(), grains=self._settings.grains
        )
        if climbers := self._climbers(count):
            made[:, -climbers] = self._seeds  # one climbs from the image itself, the others from noise
        return made

    def _edge(self) -> float:
        return EDGE if self._settings.edge is None else self._settings.edge

    def _climbers(self, count: int) -> int:
        return min(self._settings.climbers, count // 2)

    def images(self, codes: Tensor) -> Tensor:
        return codes

    def children(self, codes: Tensor, fitness_NK: Tensor, generation: int, slope: Slope) -> Tensor:
        told, count = self._settings, codes.shape[1]
        climbers = self._climbers(count)
        elite = min(told.elite, count - 1 - climbers)
        key = {"seed": self._seed, "generation": generation}
        chosen = tournament(
            fitness_NK,
            self._index,
            2 * (count - elite - climbers),
            seed=self._seed,
            epoch=generation,
            rounds=told.tournament,
            stream=Stream.TOURNAMENT,
        )
        first, second = (pixels.rows_of(codes, half) for half in chosen.chunk(2, 1))
        made = pixels.exchanged(first, second, self._index, share=told.exchange, **key)
        kind = {"rate": told.mutation, "edge": self._edge(), "grains": told.grains}
        made = pixels.mutated(made, self._box, self._index, **kind, **key)  # type: ignore[arg-type]
        best = fitness_NK.argsort(dim=1, descending=True, stable=True)[:, :elite]
        return torch.cat([pixels.rows_of(codes, best), made, *self._climbed(codes, climbers, generation, slope)], 1)

    def _climbed(self, codes: Tensor, climbers: int, generation: int, slope: Slope) -> list[Tensor]:
        """The climbers a step further, up or down by the signs of their slopes so far, and shorter every time. No step
        is taken back: what is worse now may lead to what is better."""
        if not climbers:
            return []
        at = codes[:, -climbers:]
        slopes = slope(at)
        slopes = slopes / slopes.flatten(2).abs().mean(2).clamp(min=TINY)[:, :, None, None, None]
        self._speed = slopes if self._speed is None else MOMENTUM * self._speed + slopes
        size = STRIDE * self._settings.epsilon * (1 - (generation - 1) / self._settings.generations)
        low, high = (end[:, None] for end in self._box)
        return [torch.minimum(torch.maximum(at + size * self._speed.sign(), low), high)]

    def kept(self, rows: Tensor) -> "PixelMaker":
        part = copy(self)
        part._box = (self._box[0][rows], self._box[1][rows])
        part._seeds, part._index = self._seeds[rows], self._index[rows]
        part._speed = None if self._speed is None else self._speed[rows]
        return part


MakerOf = Callable[[Tensor, Tensor, SearchSettings, int], Maker]
"""From seed images `[N, C, H, W]`, identities `[N]`, settings and seed."""


def generate(
    source: Source,
    data: Data,
    target: Target,
    settings: SearchSettings | None = None,
    *,
    maker: MakerOf = PixelMaker,
    seed: int = 0,
    report: Report | None = None,
    ranks: Ranks | None = None,
) -> Generated:
    """Searches an input of the target's pattern and goal from every image of `data`; `report(done, total)` hears how
    far it is. A target that can't be reached ends after the budget, with the best that was seen. Each rank searches for
    its share of the images, and all know the whole."""
    told = settings or SearchSettings()
    check_source(source)
    if not len(data):
        raise UserError("data: there is no image to search from.")
    with torch.inference_mode(False):  # a caller's: climbers need gradients
        return shared(data, ranks, lambda part: _generate(source, part, target, told, maker, seed, report), _joined)


def _generate(
    source: Source,
    data: Data,
    target: Target,
    settings: SearchSettings,
    maker: MakerOf,
    seed: int,
    report: Report | None,
) -> Generated:
    device = home_of(source.model)
    values = settings.population * prod((data.channels, *data.size))
    block = max(1, VALUES.get(device.type, VALUES["cpu"]) // values)
    parts: list[Generated] = []
    for positions in torch.arange(len(data)).split(block):
        batch = data.batch(positions, device)
        search = _Search(source, target, settings, batch.images, batch.labels, batch.index)
        before = int(positions[0])

        def told(done: int, before: int = before) -> None:
            if report is not None:
                report(before + done, len(data))

        search.run(maker(batch.images, batch.index, settings, seed), told)
        parts.append(search.result())
    return parts[0] if len(parts) == 1 else _joined(parts)


class _Search:
    """The search of one block of seeds."""

    def __init__(
        self, source: Source, target: Target, settings: SearchSettings, images: Tensor, labels: Tensor, index: Tensor
    ) -> None:
        self._source, self._target, self._settings = source, target, settings
        self._seeds, self._labels, self._index = images, labels, index
        # the members of an ensemble answer the same every time: nothing is left to chance
        self._passes = inf if isinstance(source, Ensemble) else source.passes
        count = len(images)
        self._best = images.clone()
        self._fitness = torch.full((count,), -torch.inf, dtype=torch.float64, device=images.device)
        self._claimed = torch.zeros(count, dtype=torch.bool, device=images.device)
        self._generations = torch.zeros(count, dtype=torch.int64, device=images.device)
        self._evaluations = 0

    def run(self, maker: Maker, told: Callable[[int], None]) -> None:
        """Generation after generation, until every seed has left or the budget is spent."""
        rows = torch.arange(len(self._index), device=self._index.device)
        codes = maker.first(self._settings.population)
        for generation in range(self._settings.generations):
            images = maker.images(codes)
            fitness_NK = self._scored(images, rows, generation)
            done = self._noted(images, fitness_NK, rows, generation)
            if done is not None:  # some leave
                left = (~done).nonzero().flatten()
                rows, maker, codes, fitness_NK = rows[left], maker.kept(left), codes[left], fitness_NK[left]
                told(len(self._index) - len(rows))
            if not len(rows) or generation + 1 == self._settings.generations:
                break
            codes = maker.children(codes, fitness_NK, generation + 1, partial(self._slope, rows, generation))
        told(len(self._index))

    def _scored(self, images: Tensor, rows: Tensor, generation: int) -> Tensor:
        """Fitness `[n, K]` of the individuals of the seeds `rows`, under this generation's masks."""
        count = images.shape[1]
        sampled = self._source(images.flatten(0, 1), self._index[rows], turn=1 + generation, shared=count)
        self._evaluations += len(rows) * count
        scores = self._target.scored(sampled, self._labels[rows].repeat_interleave(count), self._passes)
        return scores.fitness.view(-1, count)

    def _slope(self, rows: Tensor, generation: int, images: Tensor) -> Tensor:
        """The gradients of the fitness of individuals `[n, K, C, H, W]` of the seeds `rows`, under this generation's
        masks."""
        count = images.shape[1]
        self._evaluations += len(rows) * count
        chunk = self._source.linked_rows(images[:, 0])
        each = zip(images.flatten(0, 1).split(chunk), rows.repeat_interleave(count).split(chunk), strict=True)
        return torch.cat([self._gradient(part, some, 1 + generation) for part, some in each]).view_as(images)

    def _gradient(self, images: Tensor, rows: Tensor, turn: int) -> Tensor:
        leaf = leaf_of(images)
        sampled = self._source.linked(leaf, self._index[rows], turn=turn)
        fitness = self._target.scored(sampled, self._labels[rows], self._passes).fitness
        found = torch.autograd.grad(fitness.sum(), leaf, allow_unused=True)[0] if fitness.requires_grad else None
        if found is None:
            raise UserError(
                "climbers: no gradient leads from the model's outputs to the pixels (no_grad, detach or NumPy inside?);"
                " 0 climbers need none."
            )
        return found

    def _noted(self, images: Tensor, fitness_NK: Tensor, rows: Tensor, generation: int) -> Tensor | None:
        """Keeps what is better than before, and says which seeds are done, bool `[n]`: met here and under other masks
        as well. What is not met there has been lucky here, and gets the fitness that it has there. None where no seed
        is done; only looking for that waits for the device."""
        top_n, at_n = fitness_NK.max(1)
        best_n = pixels.rows_of(images, at_n[:, None])[:, 0]
        self._generations[rows] = generation + 1
        done = torch.zeros_like(top_n, dtype=torch.bool)
        at = (top_n >= 1).nonzero().flatten()
        if len(at) and self._passes != inf:
            top_n[at] = self._checked(best_n[at], rows[at], generation)
            fitness_NK[at, at_n[at]] = top_n[at]
            at = at[top_n[at] >= 1]
        done[at] = True
        better = top_n > self._fitness[rows]  # which is below 1, so a find is
        self._best[rows] = torch.where(better[:, None, None, None], best_n, self._best[rows])
        self._fitness[rows] = torch.where(better, top_n, self._fitness[rows])
        self._claimed[rows] = done
        return done if len(at) else None

    def _checked(self, images: Tensor, rows: Tensor, generation: int) -> Tensor:
        """The fitness of finds, `[n]`, over other sets of masks taken together.

        Many individuals are looked at, so one is always lucky with its generation's masks; its mean over several other
        sets of them is not.
        """
        fitness = torch.ones(len(rows), dtype=torch.float64, device=rows.device)
        turn, drawn = CHECK + sum(CHECKS) * generation, None
        for many in CHECKS:
            at = (fitness >= 1).nonzero().flatten()
            if not len(at):
                break
            index = self._index[rows[at]]
            again = [self._source(images[at], index, turn=turn + check) for check in range(many)]
            self._evaluations += many * len(at)
            drawn = torch.cat([*([] if drawn is None else [drawn]), *(one.drawn for one in again)])
            pooled = Sampled(again[0].certain, drawn)
            fitness[at] = self._target.scored(pooled, self._labels[rows[at]], self._passes).fitness
            drawn, turn = drawn[:, fitness[at] >= 1], turn + many
        return fitness

    def result(self) -> Generated:
        """The best of every seed, judged under masks that the search never saw."""
        sampled: Sampled = self._source(self._best, self._index, turn=CONFIRM)
        met = self._target.scored(sampled, self._labels).met
        found = measured(sampled, self._target.confidence, self._target.against)
        return Generated(
            images=self._best.cpu(),
            labels=self._labels.cpu(),
            index=self._index.cpu(),
            success=met.cpu(),
            claimed=self._claimed.cpu(),
            fitness=self._fitness.cpu(),
            generations=self._generations.cpu(),
            distance=length(self._best - self._seeds, "linf").cpu(),
            metrics=found.cpu(),
            target=self._target,
            evaluations=self._evaluations,
        )


def _joined(parts: list[Generated]) -> Generated:
    names = ("images", "labels", "index", "success", "claimed", "fitness", "generations", "distance")
    columns = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    return Generated(
        **columns,
        metrics=joined([part.metrics for part in parts]),
        target=parts[0].target,
        evaluations=sum(part.evaluations for part in parts),
    )

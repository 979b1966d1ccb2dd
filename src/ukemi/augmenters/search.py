"""Scoring the candidates of a batch: which variant of each sample hurts most, and by how much each does."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi.activations import recording
from ukemi.augmenters.base import Augmenter, outside
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.fitness import Fitness, Scored, Scorer, checked, fitness_of
from ukemi.models.inference import rows_per_pass, scoring, writes
from ukemi.ranks import out_of_memory
from ukemi.schema import called
from ukemi.spaces import Space, check_space
from ukemi.variations import vary


@dataclass(frozen=True)
class Searched:
    """What scoring a batch's candidates gave; K counts all of them, those beside the contest last."""

    worst: Tensor
    """the very tensor `[N, C, H, W]` that scored highest: same flip, same pixels"""
    at: Tensor
    """its candidate's number `[N]`; a tie goes to the lowest"""
    fitness: Tensor
    """float64 `[N, K]`"""
    losses: Tensor
    """plain cross-entropy, float32 `[N, K]`, whatever the fitness"""
    predicted: Tensor
    """classes `[N, K]`"""
    classes: int
    """how many the network tells apart"""


class Searching(Augmenter):
    """An augmenter that scores candidates by a fitness and takes the highest."""

    def __init__(self, space: Space, fitness: Any, *, seed: int = 0, flips: bool = False) -> None:
        super().__init__(seed=seed, flips=flips)
        self.space = check_space(space)
        self.fitness: Scorer = fitness_of(fitness)
        self.most_per_pass: int | None = None
        """candidates of a batch in one pass, once memory has run out"""

    def check_fitness(self, model: nn.Module, data: Data) -> bool:
        """Asks a fitness whether it can work here; and whether it can be tried without learning anything first."""
        if not isinstance(self.fitness, Fitness):
            return True
        called(self.fitness.check, "fitness", model, data)
        return type(self.fitness).begin_epoch is Fitness.begin_epoch

    def begin_fitness(self, model: nn.Module, data: Data, epoch: int) -> None:
        """Lets a fitness that compares with the training data look at them."""
        if isinstance(self.fitness, Fitness):
            before = self.fitness.forwards
            called(self.fitness.begin_epoch, "fitness", model, data, epoch)
            if self.ranks.first:  # every rank learns the same
                self.forwards += self.fitness.forwards - before

    def fitness_state(self) -> dict[str, Tensor]:
        if not isinstance(self.fitness, Fitness):
            return {}
        state = called(self.fitness.state_dict, "fitness")
        for name, tensor in state.items():
            if not isinstance(tensor, Tensor):
                raise UserError(f"fitness: a state is made of tensors, but its {name} is a {type(tensor).__name__}.")
        return {f"fitness.{name}": tensor for name, tensor in state.items()}

    def load_fitness(self, state: dict[str, Tensor]) -> None:
        if isinstance(self.fitness, Fitness):
            own = {name: tensor for name, tensor in state.items() if name.startswith("fitness.")}
            own = {name.removeprefix("fitness."): tensor for name, tensor in own.items()}
            called(self.fitness.load_state_dict, "fitness", own)

    def searched(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        index: Tensor,
        epoch: int,
        genes_NKG: Tensor,
        beside: int = 0,
    ) -> Searched:
        """Scores every candidate with the weights as they are, in passes of one shape.

        The last `beside` candidates are scored but can't be the worst: the unchanged image, whose loss alone matters.
        Where memory runs out, half as many candidates go through the model at once, from then on.
        """
        clean_NC = self._clean_logits(model, images, index, epoch)
        while True:
            many = per_pass(genes_NKG.shape[1], images, self.most_per_pass)
            try:
                found = self._searched(model, images, labels, index, epoch, genes_NKG, beside, clean_NC, many)
            except RuntimeError as error:
                if many == 1 or not out_of_memory(error):
                    raise
                self.most_per_pass = many // 2
            else:
                self.forwards += len(images) * genes_NKG.shape[1]
                return found

    def _searched(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        index: Tensor,
        epoch: int,
        genes_NKG: Tensor,
        beside: int,
        clean_NC: Tensor | None,
        many: int,
    ) -> Searched:
        """The same with `many` candidates of each sample at once."""
        best_N = torch.full((len(images),), -torch.inf, dtype=torch.float64, device=images.device)
        worst, at_N = images, torch.zeros_like(index)
        rows_N = torch.arange(len(images), device=images.device)
        parts: list[tuple[Tensor, ...]] = []
        count, classes = genes_NKG.shape[1], 0
        for start in range(0, count, many):
            part_NBG = genes_NKG[:, start : start + many]
            variants = vary(images.repeat_interleave(many, 0), part_NBG.flatten(0, 1), self.space)
            variants = self.flipped(variants, index.repeat_interleave(many), epoch)
            clean_MC = None if clean_NC is None else clean_NC.repeat_interleave(many, 0)
            part, classes = _scored(
                model, variants, labels.repeat_interleave(many), self.fitness, clean_MC, look=self.forwards == 0
            )
            parts.append(tuple(values.view(-1, many) for values in part))
            number_B = start + torch.arange(many, device=index.device)
            contest_NB = torch.where(number_B < count - beside, parts[-1][0], -torch.inf)
            # stable, so a tie goes to the lowest candidate; NaN sorts as the highest, so it is never hidden
            first_N = contest_NB.argsort(dim=1, descending=True, stable=True)[:, 0]
            found_N = contest_NB[rows_N, first_N]
            better_N = (found_N > best_N) | (found_N.isnan() & ~best_N.isnan()) | (start == 0)
            best_N = torch.where(better_N, found_N, best_N)
            at_N = torch.where(better_N, start + first_N, at_N)
            of_each = variants.unflatten(0, (-1, many))
            worst = torch.where(better_N[:, None, None, None], of_each[rows_N, first_N], worst)
        fitness_NK, losses_NK, predicted_NK = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        return Searched(worst, at_N, fitness_NK, losses_NK, predicted_NK, classes)

    def _clean_logits(self, model: nn.Module, images: Tensor, index: Tensor, epoch: int) -> Tensor | None:
        """What the unchanged images get, where the fitness compares with it: one more pass."""
        if not getattr(self.fitness, "clean", False):
            return None
        self.forwards += len(images)
        with scoring(model, images.device):
            logits = logits_of(model, self.flipped(images, index, epoch))
        return logits.clone()


def per_pass(candidates: int, images: Tensor, most: int | None = None) -> int:
    """The largest divisor of the candidates that fits one pass (and is at most `most`), so that every pass has the same
    shape."""
    limit = max(1, rows_per_pass(tuple(images.shape[1:]), images.device) // max(1, len(images)))
    limit = limit if most is None else min(limit, most)
    return max(many for many in range(1, candidates + 1) if candidates % many == 0 and many <= limit)


def _scored(
    model: nn.Module, variants: Tensor, labels: Tensor, fitness: Scorer, clean: Tensor | None, look: bool
) -> tuple[tuple[Tensor, ...], int]:
    """Fitness, loss and predicted class of each variant, from one pass in evaluation mode; and how many classes."""
    written = writes(variants)
    with scoring(model, variants.device), _recorded(model, fitness) as seen:
        logits = logits_of(model, variants)
        _check_unwritten(variants, written, "model: it")
        _check_labels(labels, logits.shape[1])
        # first, since anyone's own fitness may write into the logits
        losses, predicted = F.cross_entropy(logits, labels, reduction="none"), logits.argmax(1)
        scored = Scored(model, variants, labels, logits, clean, tuple(seen))
        found = checked(called(fitness, "fitness", scored), scored, _name(fitness), look=look)
        _check_unwritten(variants, written, f"fitness: {_name(fitness)}")
    # outside inference mode: ordinary tensors
    return (found.clone(), losses.clone(), predicted.clone()), logits.shape[1]


def logits_of(model: nn.Module, images: Tensor) -> Tensor:
    """What the model gives, float32 `[M, classes]`."""
    given = model(images)
    check_logits(given, "model", "it gives {}")
    if len(given) != len(images):
        raise UserError(f"model: logits [{len(images)}, classes] are needed, but it gives {list(given.shape)}.")
    return given.float()


def check_logits(given: Any, field: str = "logits", said: str = "{} was given") -> None:
    if not isinstance(given, Tensor) or given.ndim != 2:
        what = list(given.shape) if isinstance(given, Tensor) else f"a {type(given).__name__}"
        raise UserError(f"{field}: {'logits ' * (field != 'logits')}[N, classes] are needed, but {said.format(what)}.")


def _check_labels(labels: Tensor, classes: int) -> None:
    if (given := outside(labels, classes)) is not None:
        raise UserError(f"labels: {given} is outside the model's {classes} classes.")


def _check_unwritten(variants: Tensor, before: int, who: str) -> None:
    """What was scored must be what is trained."""
    if writes(variants) != before:
        raise UserError(f"{who} writes into the images that it is given, which are trained on; let it work on a copy.")


def _recorded(model: nn.Module, fitness: Scorer) -> AbstractContextManager[Sequence[Tensor]]:
    if not getattr(fitness, "outputs", False):
        return nullcontext([])
    return recording(model, fitness.kept) if isinstance(fitness, Fitness) else recording(model)


def _name(fitness: Scorer) -> str:
    return getattr(fitness, "__name__", type(fitness).__name__)

"""Scoring the candidates of a batch: which variant of each sample hurts most, and by how much each does."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi.augmenters.base import Augmenter
from ukemi.models.inference import rows_per_pass, scoring
from ukemi.spaces import Space
from ukemi.variations import vary

Select = Literal["loss", "misclassified"]


@dataclass(frozen=True)
class Searched:
    """What scoring a batch's candidates gave."""

    worst: Tensor
    """the very tensor `[N, C, H, W]` that scored highest: same flip, same pixels"""
    at: Tensor
    """its candidate's number `[N]`; a tie goes to the lowest"""
    fitness: Tensor
    """float64 `[N, K]`"""


def searched(
    augmenter: Augmenter,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    index: Tensor,
    epoch: int,
    genes_NKG: Tensor,
    space: Space,
    select: Select = "loss",
) -> Searched:
    """Scores every candidate with the weights as they are, in passes of one shape."""
    best_N = torch.full((len(images),), -torch.inf, dtype=torch.float64, device=images.device)
    worst, at_N = images, torch.zeros_like(index)
    rows_N = torch.arange(len(images), device=images.device)
    fitness = []
    many = per_pass(genes_NKG.shape[1], images)
    for start in range(0, genes_NKG.shape[1], many):
        part_NBG = genes_NKG[:, start : start + many]
        variants = vary(images.repeat_interleave(many, 0), part_NBG.flatten(0, 1), space)
        variants = augmenter.flipped(variants, index.repeat_interleave(many), epoch)
        fitness_NB = _fitness(model, variants, labels.repeat_interleave(many), select).view(-1, many)
        # stable, so a tie goes to the lowest candidate; NaN sorts as the highest, so it is never hidden
        first_N = fitness_NB.argsort(dim=1, descending=True, stable=True)[:, 0]
        found_N = fitness_NB[rows_N, first_N]
        better_N = (found_N > best_N) | (found_N.isnan() & ~best_N.isnan())
        best_N = torch.where(better_N, found_N, best_N)
        at_N = torch.where(better_N, start + first_N, at_N)
        worst = torch.where(better_N[:, None, None, None], variants.unflatten(0, (-1, many))[rows_N, first_N], worst)
        fitness.append(fitness_NB)
    augmenter.forwards += genes_NKG.shape[0] * genes_NKG.shape[1]
    return Searched(worst, at_N, torch.cat(fitness, 1))


def per_pass(candidates: int, images: Tensor) -> int:
    """The largest divisor of the candidates that fits one pass, so that every pass has the same shape."""
    limit = max(1, rows_per_pass(tuple(images.shape[1:]), images.device) // len(images))
    return max(many for many in range(1, candidates + 1) if candidates % many == 0 and many <= limit)


def _fitness(model: nn.Module, variants: Tensor, labels: Tensor, select: Select) -> Tensor:
    with scoring(model, variants.device):
        logits = model(variants).float()
        fitness = F.cross_entropy(logits, labels, reduction="none").double()
        if select == "misclassified":
            fitness = fitness + 1e6 * (logits.argmax(1) != labels)
    return fitness.clone()  # outside inference mode: an ordinary tensor

"""Minimal-distance semantics for a fixed-budget attack: the smallest budget at which it succeeds, per sample."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Norm, Victim, attacking, numbered
from ukemi.attacks.norms import Epsilon, length, radius_of
from ukemi.attacks.settings import check_count, check_numbers
from ukemi.errors import UserError


def minimal(
    attack: Callable[..., Attacked],
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    high: Epsilon,
    norm: Norm = "linf",
    tolerance: float = 0.01,
    rounds: int = 20,
    targets: Tensor | None = None,
    index: Tensor | None = None,
    **options: Any,
) -> Attacked:
    """Bisects epsilon between 0 and `high` for each sample, and gives the nearest image that fools the model.

    A sample that is misclassified as it is has the distance 0; one that `attack` can't solve at `high` keeps its image
    and no success. The others are attacked until the bracket is at most `tolerance` of its upper end, `rounds` times at
    most; only samples whose bracket is open are attacked. `attack` takes epsilon per sample, as `fgsm`, `bim`, `pgd`
    and `square` (linf alone) do; `options` go to it as they are.
    """
    check_numbers(tolerance=tolerance)
    check_count("rounds", rounds)
    if not 0 < tolerance < 1:
        raise UserError(f"tolerance: it should lie between 0 and 1, but {tolerance} was given.")
    if not _takes(attack, "epsilon"):
        name = getattr(attack, "__name__", type(attack).__name__)
        raise UserError(f"attack: {name} has no budget (epsilon), so no smallest one is found.")
    if _takes(attack, "norm"):
        options["norm"] = norm
    with attacking(model):
        victim = Victim(model, images, labels, targets, index)
        index, images = numbered(images, index), victim.originals
        ceiling_N = radius_of(high, images, norm, "high")
        every = torch.arange(len(images), device=images.device)
        success_N = victim.fooled(victim.logits(images, every), every)
        best, low_N, high_N = images.clone(), torch.zeros_like(ceiling_N), torch.zeros_like(ceiling_N)
        rows, tried = (~success_N).nonzero()[:, 0], ceiling_N
        for _ in range(rounds + 1):
            if not len(rows):
                break
            found = attack(
                model,
                images[rows],
                labels[rows],
                epsilon=tried[rows],
                targets=None if targets is None else targets[rows],
                index=index[rows],
                **options,
            )
            if found.norm != norm:
                raise UserError(f"norm: {norm} is asked for, but the attack's budget is in {found.norm}.")
            victim.forwards[rows] += found.forwards
            victim.backwards[rows] += found.backwards
            hit, miss = rows[found.success], rows[~found.success]
            best[hit], high_N[hit], success_N[hit] = found.images[found.success], found.distance[found.success], True
            low_N[miss] = tried[miss]
            # what failed at the ceiling stays unsolved: its upper end is still 0
            rows = (high_N - low_N > tolerance * high_N).nonzero()[:, 0]
            tried = (low_N + high_N) / 2
    return Attacked(best, success_N, length(best - images, norm), norm, victim.forwards, victim.backwards)


def _takes(attack: Callable[..., Attacked], name: str) -> bool:
    takes = inspect.signature(attack).parameters
    return name in takes or any(each.kind is each.VAR_KEYWORD for each in takes.values())

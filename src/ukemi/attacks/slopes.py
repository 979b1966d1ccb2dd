"""Gradients of several mixtures of a model's logits at once, in bounded memory."""

from collections.abc import Callable

import torch
from torch import Tensor

from ukemi.attacks.base import Victim, joined, leaf_of, pulled_back
from ukemi.models.inference import rows_per_pass

_FEW = 2
"""So many backward passes take less time than one that is batched, which has more to launch."""


def slopes(victim: Victim, images: Tensor, rows: Tensor, mixtures_nMK: Tensor) -> tuple[Tensor, Tensor]:
    """The logits `[n, K]`, and the gradients `[n, M, C, H, W]` of M weighted sums of them at each image.

    One forward pass for all M; each weighted sum counts as one backward pass. A sample may stand in several `rows`.
    """
    once = torch.ones_like(rows)
    victim.forwards.index_add_(0, rows, once)
    victim.backwards.index_add_(0, rows, once * mixtures_nMK.shape[1])
    return uncounted_slopes(victim, images, mixtures_nMK.shape[1], lambda _logits, at: mixtures_nMK[at])


def uncounted_slopes(
    victim: Victim, images: Tensor, many: int, mixed: Callable[[Tensor, slice], Tensor]
) -> tuple[Tensor, Tensor]:
    """The same for `many` sums that `mixed(logits [m, K], where these m rows stand)` says, `[m, M, K]`; who calls it
    counts the passes."""
    chunk = rows_per_pass((many, *images.shape[1:]), images.device)
    found = []
    for start in range(0, max(1, len(images)), chunk):
        at = slice(start, start + chunk)
        leaf = leaf_of(images[at])
        with torch.enable_grad():
            logits = victim.passed(leaf)
        found.append((logits.detach(), _all_at_once(victim, logits, leaf, mixed(logits.detach(), at))))
    logits, gradients = (joined(column) for column in zip(*found, strict=True))
    return logits, gradients


def _all_at_once(victim: Victim, logits: Tensor, leaf: Tensor, weights: Tensor) -> Tensor:
    """One batched backward pass where launches are the cost; looped over, from then on, where a layer has no rule for
    batched gradients, or where they take more memory than there is."""
    if leaf.is_cuda and victim.batches and weights.shape[1] > _FEW:
        try:
            return batched(logits, leaf, weights)
        except RuntimeError:  # torch.OutOfMemoryError is one too
            victim.batches = False
    return looped(logits, leaf, weights)


def batched(logits: Tensor, leaf: Tensor, weights_nMK: Tensor) -> Tensor:
    """The gradients `[n, M, C, H, W]` in one backward pass."""
    mixtures = weights_nMK.transpose(0, 1)
    return pulled_back(logits, leaf, mixtures, retain_graph=True, is_grads_batched=True).transpose(0, 1)


def looped(logits: Tensor, leaf: Tensor, weights_nMK: Tensor) -> Tensor:
    """The same in M backward passes, which a processor does as fast."""
    mixtures = weights_nMK.unbind(1)
    return torch.stack([pulled_back(logits, leaf, own, retain_graph=True) for own in mixtures], 1)

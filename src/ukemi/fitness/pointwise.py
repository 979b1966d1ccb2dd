"""Fitness that needs the logits alone."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ukemi.errors import UserError
from ukemi.fitness.base import Scored, wants
from ukemi.models.inference import wrong

CLIP = 1e-8
WRONG = 1e6
"""what a misclassified variant has ahead; no cross-entropy of float32 logits in practice reaches it"""


def cross_entropy(scored: Scored) -> Tensor:
    """`-log p(label)`, the loss of training: SENSEI's fitness as its paper has it."""
    return F.cross_entropy(scored.logits, scored.labels, reduction="none")


def margin(scored: Scored) -> Tensor:
    """The highest other logit minus the label's: above 0 where the variant is misclassified, and never flat."""
    at_M1 = scored.labels[:, None]
    others_M = scored.logits.scatter(1, at_M1, -torch.inf).amax(1)
    return others_M - scored.logits.gather(1, at_M1)[:, 0]


def binary_cross_entropy(scored: Scored) -> Tensor:
    """The binary cross-entropies of all classes summed, p clipped to [1e-8, 1 - 1e-8]: SENSEI's released code."""
    return summed_binary(scored.logits, scored.labels)


def summed_binary(logits_MK: Tensor, labels_M: Tensor) -> Tensor:
    """The same of logits and labels, `[M]`; in float64, where 1 - 1e-8 is not 1.

    Written out: torch's own refuses to run under autocast on a GPU, whatever it is given.
    """
    p_MK = logits_MK.double().softmax(1).clamp(CLIP, 1 - CLIP)
    own_MK = torch.zeros_like(p_MK, dtype=torch.bool).scatter(1, labels_M[:, None], True)
    return -torch.where(own_MK, p_MK.log(), (-p_MK).log1p()).sum(1)


def misclassified_first(scored: Scored) -> Tensor:
    """Cross-entropy, with every misclassified variant ahead of every one classified right (Engstrom et al. 2019)."""
    return cross_entropy(scored).double() + WRONG * wrong(scored.logits, scored.labels)


@wants(clean=True)
def divergence(scored: Scored) -> Tensor:
    """KL(clean || variant): how far the variant's prediction is from its unchanged image's, whatever the label.

    In float64: of two nearly equal predictions float32 leaves noise, and it can be negative.
    """
    if scored.clean is None:
        raise UserError("fitness: divergence compares with the unchanged images, but Scored.clean is missing.")
    variant_MK, clean_MK = (logits.double().log_softmax(1) for logits in (scored.logits, scored.clean))
    return F.kl_div(variant_MK, clean_MK, reduction="none", log_target=True).sum(1)

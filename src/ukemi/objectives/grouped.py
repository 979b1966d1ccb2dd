"""Manifold mixup of one group of samples, trained together with all others unmixed (uncertainty-guided retraining)."""

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ukemi.objectives.base import ObjectiveConfig, Outcome
from ukemi.objectives.mixup import ManifoldMixup, drawn
from ukemi.schema import Fixed, Number

Partners = Literal["group", "others"]


class GroupedMixup(ManifoldMixup):
    """Samples with an identity from `first` on are mixed, pixels or inner features, the rest are trained as they are.

    A sample's partner is drawn from the group's samples of the batch, or from the others of it (`partners`). Which rows
    belong to the group is never asked on the processor, so a step can be captured.
    """

    class Config(ObjectiveConfig):
        """Trains on mixtures within one group of samples, and on all other samples unmixed."""

        name: Fixed[Literal["grouped-mixup"]] = "grouped-mixup"
        first: int = Field(0, ge=0)
        """Samples from this number on are the group; those before it are never mixed."""
        partners: Partners = "group"
        """Whom a sample of the group is mixed with: samples of the group, or others."""
        alpha: Annotated[Number, Field(gt=0)] = 2.0
        """The share is drawn from Beta(alpha, alpha): 1 is even, larger is nearer to a half."""
        layers: tuple[str, ...] = ()
        """As of manifold-mixup."""

        def build(self, smoothing: float) -> "GroupedMixup":
            return GroupedMixup(smoothing, **self.model_dump(exclude={"name"}))

    def __init__(
        self,
        smoothing: float = 0.0,
        *,
        first: int = 0,
        partners: Partners = "group",
        alpha: float = 2.0,
        layers: tuple[str, ...] = (),
    ) -> None:
        super().__init__(smoothing, alpha=alpha, layers=tuple(layers))
        GroupedMixup.Config(first=first, partners=partners)
        self.first, self.partners = first, partners

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int, clean: Tensor | None = None
    ) -> Outcome:
        group_N = index >= self.first
        share, order_N = drawn(self.alpha, images)
        other_N = partners_of(group_N, order_N, self.partners)
        share_N = torch.where(group_N, share, torch.ones_like(share))
        logits_NK = self.forward(model, images, share_N, other_N)
        own_N, others_N = (
            F.cross_entropy(logits_NK, aims, reduction="none", label_smoothing=self.smoothing)
            for aims in (labels, labels[other_N])
        )
        return Outcome(share_N * own_N + (1 - share_N) * others_N, logits_NK)


def partners_of(group_N: Tensor, order_N: Tensor, partners: Partners) -> Tensor:
    """A partner for every sample, int64 `[N]`; `order_N` is a random permutation of the batch.

    Within the group partners are a permutation of it. Of the others each sample gets one, in the order's turn, and some
    more than one where they are fewer; where there are none it stays with the group. Samples outside the group are
    given partners too, which an unmixed sample does not use.
    """
    own_N = (~group_N).long().argsort(stable=True)  # the group first, in the batch's order
    shuffled_N = order_N[(~group_N[order_N]).long().argsort(stable=True)]  # the group first, in random order
    if partners == "others":
        pool_N = order_N[group_N[order_N].long().argsort(stable=True)]  # the others first, in random order
        many = (~group_N).sum()
        places_N = torch.arange(len(group_N), device=group_N.device)
        shuffled_N = pool_N[places_N % torch.where(many > 0, many, len(group_N))]
    return torch.empty_like(order_N).scatter_(0, own_N, shuffled_N)

"""Worst-of-k (Engstrom et al. 2019): of k random variants of each sample, train on the one that hurts most."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ukemi.augmenters.base import Augmenter, AugmenterConfig
from ukemi.augmenters.search import Select, searched
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.schema import Fixed
from ukemi.spaces import Space
from ukemi.variations import vary

When = Literal["batch", "epoch"]
BATCH = 512
"""rows per batch when a whole epoch's variants are picked ahead"""


class WorstOf(Augmenter):
    """The worst of k fresh random variants per sample, judged by the weights about to be updated."""

    class Config(AugmenterConfig):
        """Trains on the worst of k random variants per sample."""

        name: Fixed[Literal["worst-of"]] = "worst-of"
        k: int = Field(10, ge=1)
        """How many variants are scored per sample."""
        select: Select = "loss"
        """The highest loss wins, or misclassified variants come first (Engstrom et al.)."""
        when: When = "batch"
        """Pick right before each step, or all before the epoch (as the AUGMENTATION paper did)."""
        identity: bool = False
        """Put the unchanged image among the k."""

        def build(self, space: Space, seed: int, flips: bool) -> "WorstOf":
            return WorstOf(
                self.k, space, seed=seed, flips=flips, select=self.select, when=self.when, identity=self.identity
            )

    def __init__(
        self,
        k: int,
        space: Space,
        *,
        seed: int = 0,
        flips: bool = False,
        select: Select = "loss",
        when: When = "batch",
        identity: bool = False,
    ) -> None:
        super().__init__(seed=seed, flips=flips)
        WorstOf.Config(k=k, select=select, when=when, identity=identity)
        self.k, self.space = k, space
        self.select, self.when, self.identity = select, when, identity
        self._picked: Tensor | None = None

    @torch.no_grad()
    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        if self.when == "batch":
            self.genes, worst = self._worst(model, images, labels, index, epoch)
            return worst
        if self._picked is None:
            raise UserError('augmenter: when="epoch" needs begin_epoch(model, data, epoch) before the first batch.')
        self.genes = self._picked[index]
        return self.flipped(vary(images, self.genes, self.space), index, epoch)

    @torch.no_grad()
    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        if self.when == "batch":
            return
        device = next(model.parameters()).device
        picked = torch.zeros(data.identities, len(self.space), device=device)
        for batch in data.batches(torch.arange(len(data)).split(BATCH), device):
            picked[batch.index] = self._worst(model, batch.images, batch.labels, batch.index, epoch)[0]
        self._picked = picked

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self._picked is None else {"picked": self._picked}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._picked = state.get("picked")

    def _candidates(self, index: Tensor, epoch: int) -> Tensor:
        genes_NKG = self.space.sample(index, self.k, seed=self.seed, epoch=epoch)
        if self.identity:
            genes_NKG[:, 0] = self.space.identity(index.device)
        return genes_NKG

    def _worst(
        self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int
    ) -> tuple[Tensor, Tensor]:
        genes_NKG = self._candidates(index, epoch)
        found = searched(self, model, images, labels, index, epoch, genes_NKG, self.space, self.select)
        return genes_NKG[torch.arange(len(images), device=images.device), found.at], found.worst

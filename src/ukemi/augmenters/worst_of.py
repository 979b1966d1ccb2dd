"""Worst-of-k (Engstrom et al. 2019): of k random variants of each sample, train on the one that hurts most."""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ukemi.augmenters.base import Augmenter, AugmenterConfig
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.models.inference import rows_per_pass, scoring
from ukemi.schema import Fixed
from ukemi.spaces import Space
from ukemi.variations import vary

Select = Literal["loss", "misclassified"]
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
    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
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
        """The genes and the very tensor that scored worst; candidates are scored in passes of one shape."""
        genes_NKG = self._candidates(index, epoch)
        best = torch.full((len(images),), -torch.inf, dtype=torch.float64, device=images.device)
        worst, genes = images, genes_NKG[:, 0]
        for part_NBG in genes_NKG.split(self._per_pass(images), 1):
            many = part_NBG.shape[1]
            variants = vary(images.repeat_interleave(many, 0), part_NBG.flatten(0, 1), self.space)
            variants = self.flipped(variants, index.repeat_interleave(many), epoch)
            fitness_NB = self._fitness(model, variants, labels.repeat_interleave(many)).view(-1, many)
            # stable, so a tie goes to the lowest candidate; NaN sorts as the highest, so it is never hidden
            at = fitness_NB.argsort(dim=1, descending=True, stable=True)[:, 0]
            rows = torch.arange(len(images), device=images.device)
            found = fitness_NB[rows, at]
            better = (found > best) | (found.isnan() & ~best.isnan())
            best = torch.where(better, found, best)
            genes = torch.where(better[:, None], part_NBG[rows, at], genes)
            worst = torch.where(better[:, None, None, None], variants.unflatten(0, (-1, many))[rows, at], worst)
        self.forwards += genes_NKG.shape[0] * self.k
        return genes, worst

    def _per_pass(self, images: Tensor) -> int:
        """The largest divisor of k whose candidates fit one pass, so that every pass has the same shape."""
        limit = max(1, rows_per_pass(tuple(images.shape[1:]), images.device) // len(images))
        return max(many for many in range(1, self.k + 1) if self.k % many == 0 and many <= limit)

    def _fitness(self, model: nn.Module, variants: Tensor, labels: Tensor) -> Tensor:
        with scoring(model, variants.device):
            logits = model(variants).float()
            fitness = F.cross_entropy(logits, labels, reduction="none").double()
            if self.select == "misclassified":
                fitness = fitness + 1e6 * (logits.argmax(1) != labels)
        return fitness.clone()  # outside inference mode: an ordinary tensor

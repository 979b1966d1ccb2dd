"""Worst-of-k (Engstrom et al. 2019): of k random variants of each sample, train on the one that hurts most."""

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ukemi.augmenters.base import AugmenterConfig
from ukemi.augmenters.search import Searching
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.fitness import fitness_of
from ukemi.models.inference import home_of
from ukemi.schema import Fixed, Named
from ukemi.spaces import Space
from ukemi.variations import vary

When = Literal["batch", "epoch"]
BATCH = 512
"""rows per batch when a whole epoch's variants are picked ahead"""


class WorstOf(Searching):
    """The worst of k fresh random variants per sample, judged by the weights about to be updated."""

    class Config(AugmenterConfig):
        """Trains on the worst of k random variants per sample."""

        name: Fixed[Literal["worst-of"]] = "worst-of"
        k: int = Field(10, ge=1, le=10_000)
        """How many variants are scored per sample."""
        fitness: Named = "cross-entropy"
        """What makes a variant the worst: cross-entropy, misclassified (those first, Engstrom et al.), margin, kl, …
        (see `ukemi augmenters`), or package.module:name."""
        when: When = "batch"
        """Pick right before each step, or all before the epoch (as the AUGMENTATION paper did)."""
        identity: bool = False
        """Put the unchanged image among the k."""

        @model_validator(mode="after")
        def _known(self) -> "WorstOf.Config":
            fitness_of(self.fitness)
            return self

        def build(self, space: Space, seed: int, flips: bool) -> "WorstOf":
            return WorstOf(
                space, k=self.k, seed=seed, flips=flips, fitness=self.fitness, when=self.when, identity=self.identity
            )

    def __init__(
        self,
        space: Space,
        *,
        k: int = 10,
        seed: int = 0,
        flips: bool = False,
        fitness: Any = "cross-entropy",
        when: When = "batch",
        identity: bool = False,
    ) -> None:
        WorstOf.Config(k=k, fitness=fitness, when=when, identity=identity)
        super().__init__(space, fitness, seed=seed, flips=flips)
        self.k, self.when, self.identity = k, when, identity
        self._picked: Tensor | None = None
        self._epoch = -1

    @torch.no_grad()
    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        if self.when == "batch":
            self.genes, worst = self._worst(model, images, labels, index, epoch)
            return worst
        if self._picked is None or epoch != self._epoch:
            raise UserError(f'augmenter: when="epoch" needs begin_epoch(model, data, {epoch}) before its batches.')
        self._picked = self._picked.to(index.device)  # a state may have been loaded elsewhere
        self.genes = self._picked[index]
        return self.flipped(vary(images, self.genes, self.space), index, epoch)

    @torch.no_grad()
    def rehearse(self, model: nn.Module, data: Data) -> None:
        """Asks the fitness; and one batch of two samples, where it need not learn first."""
        if self.check_fitness(model, data):
            batch = data.batch(torch.arange(min(2, len(data))), home_of(model))
            WorstOf(self.space, k=2, fitness=self.fitness)(model, batch.images, batch.labels, batch.index, 0)

    @torch.no_grad()
    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        self.begin_fitness(model, data, epoch)
        if self.when == "batch":
            return
        device = home_of(model)
        picked = torch.zeros(data.identities, len(self.space), device=device)
        parts = self.ranks.parts(torch.arange(len(data)))
        for batch in data.batches(parts[self.ranks.rank].split(BATCH), device):
            picked[batch.index] = self._worst(model, batch.images, batch.labels, batch.index, epoch)[0]
        self.ranks.merge([picked], [data.index[part].to(device) for part in parts])
        self._picked, self._epoch = picked, epoch

    def state_dict(self) -> dict[str, Tensor]:
        picked = {} if self._picked is None else {"picked": self._picked, "epoch": torch.tensor(self._epoch)}
        return picked | self.fitness_state()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        foreign = sorted(name for name in state if name not in ("picked", "epoch") and not name.startswith("fitness."))
        if foreign:
            raise UserError(f"augmenter: {', '.join(foreign)} is not the state of worst-of.")
        self._picked, self._epoch = state.get("picked"), int(state.get("epoch", -1))
        self.load_fitness(state)

    def _candidates(self, index: Tensor, epoch: int) -> Tensor:
        genes_NKG = self.space.sample(index, self.k, seed=self.seed, epoch=epoch)
        if self.identity:
            genes_NKG[:, 0] = self.space.identity(index.device)
        return genes_NKG

    def _worst(
        self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int
    ) -> tuple[Tensor, Tensor]:
        genes_NKG = self._candidates(index, epoch)
        found = self.searched(model, images, labels, index, epoch, genes_NKG)
        return genes_NKG[torch.arange(len(images), device=images.device), found.at], found.worst

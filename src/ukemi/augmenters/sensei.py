"""SENSEI (Gao et al. 2020, Algorithms 2 and 3): a genetic search that goes on from epoch to epoch, one per sample.

Every sample keeps a population of chromosomes. In each epoch its children are scored with the weights about to be
updated, the worst one is trained on, and the fittest become the parents of the next epoch. SENSEI-RW and SENSEI-T
(KAIST 2021) draw the survivors by roulette wheel and by tournament instead.
"""

from math import ceil
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ukemi.augmenters.base import Augmenter, AugmenterConfig
from ukemi.augmenters.search import searched
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.genetics import SELECTIONS, bred, first_population, packed, unpacked
from ukemi.schema import Fixed, Number
from ukemi.spaces import Space

Selecting = Literal["elitism", "roulette", "tournament"]


class Sensei(Augmenter):
    """The worst child of each sample's own population; the population lives on from epoch to epoch."""

    class Config(AugmenterConfig):
        """Searches each sample's worst variant with a genetic algorithm that goes on over the epochs (SENSEI)."""

        name: Fixed[Literal["sensei"]] = "sensei"
        population: int = Field(10, ge=2)
        """Children scored per sample and epoch."""
        crossover: Annotated[Number, Field(ge=0, le=1)] = 0.4
        """How often a child comes from two parents; else one gene of one parent is drawn anew."""
        keep: Annotated[Number, Field(gt=0, le=1)] = 0.4
        """Share of the children that elitism lets live on; the other selections draw as many as the population."""
        selection: Selecting = "elitism"
        """Who lives on: elitism (SENSEI), roulette (SENSEI-RW), tournament (SENSEI-T)."""
        edge: Annotated[Number, Field(ge=0, le=1)] = 0.0
        """How often a gene drawn anew lies at an end of its range, where models fail."""
        warmup: int = Field(1, ge=0)
        """Epochs on the images as they are before the search begins."""
        identity: bool = False
        """Put the unchanged image into the first population."""

        def build(self, space: Space, seed: int, flips: bool) -> "Sensei":
            return Sensei(space, seed=seed, flips=flips, **self.model_dump(exclude={"name"}))

    def __init__(
        self,
        space: Space,
        *,
        samples: int | None = None,
        seed: int = 0,
        flips: bool = False,
        population: int = 10,
        crossover: float = 0.4,
        keep: float = 0.4,
        selection: Selecting = "elitism",
        edge: float = 0.0,
        warmup: int = 1,
        identity: bool = False,
    ) -> None:
        super().__init__(seed=seed, flips=flips)
        Sensei.Config(
            population=population,
            crossover=crossover,
            keep=keep,
            selection=selection,
            edge=edge,
            warmup=warmup,
            identity=identity,
        )
        self.space, self.samples = space, samples
        self.population, self.crossover, self.edge = population, crossover, edge
        self.warmup, self.identity = warmup, identity
        self.selection = selection
        self.survivors = ceil(keep * population - 1e-9) if selection == "elitism" else population
        self._codes: Tensor | None = None
        """int16 `[samples, population, G]`"""
        self._alive: Tensor | None = None
        """int16 `[samples]`: how many of a sample's chromosomes are parents; 0 before its search began"""

    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        """The training loop's way to say how many samples there are; your own loop gives `samples` at the start."""
        if self.samples is None:
            self.samples = data.identities

    @torch.no_grad()
    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        codes, alive = self._store(index)
        if epoch < self.warmup:
            self.genes = None
            return self.flipped(images, index, epoch)
        parents_NKG, alive_N = self._parents(codes, alive, index)
        children_NKG = bred(
            parents_NKG,
            alive_N,
            index,
            self.population,
            self.space,
            seed=self.seed,
            epoch=epoch,
            crossover=self.crossover,
            edge=self.edge,
        )
        genes_NKG = self.space.decode(children_NKG)
        found = searched(self, model, images, labels, index, epoch, genes_NKG, self.space)
        kept_NS = SELECTIONS[self.selection](found.fitness, index, self.survivors, seed=self.seed, epoch=epoch)
        survivors_NSG = children_NKG.gather(1, kept_NS[..., None].expand(-1, -1, len(self.space)))
        codes[index, : self.survivors] = packed(survivors_NSG)
        alive.index_fill_(0, index, self.survivors)
        self.genes = genes_NKG[torch.arange(len(images), device=images.device), found.at]
        return found.worst

    def state_dict(self) -> dict[str, Tensor]:
        if self._codes is None or self._alive is None:
            return {}
        return {"codes": self._codes, "alive": self._alive}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._codes, self._alive = state.get("codes"), state.get("alive")
        if self._codes is not None:
            self.samples = len(self._codes)

    def _store(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The populations of all samples, made at first use; a sample's search begins where it is first seen."""
        if self._codes is None or self._alive is None:
            if self.samples is None:
                raise UserError("sensei: samples, the number of training samples, is needed (or begin_epoch).")
            shape = (self.samples, self.population, len(self.space))
            self._codes = torch.zeros(shape, dtype=torch.int16, device=index.device)
            self._alive = torch.zeros(self.samples, dtype=torch.int16, device=index.device)
        # a GPU would have to be waited for; there an index outside is caught by the device itself
        if index.device.type == "cpu" and len(index) and int(index.max()) >= len(self._alive):
            raise UserError(f"index: {int(index.max())} is outside the store of {len(self._alive)} samples.")
        return self._codes, self._alive

    def _parents(self, codes: Tensor, alive: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        first_NKG = first_population(index, self.population, self.space, seed=self.seed, identity=self.identity)
        alive_N = alive[index].long()
        begun_N = alive_N > 0
        parents_NKG = torch.where(begun_N[:, None, None], unpacked(codes[index]), first_NKG)
        return parents_NKG, torch.where(begun_N, alive_N, self.population)

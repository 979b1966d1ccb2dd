"""What a search remembers of every training sample: a few tensors on the device, one row per index."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ukemi.augmenters.base import outside
from ukemi.errors import UserError
from ukemi.genetics import packed, unpacked
from ukemi.ranks import Ranks


@dataclass
class Store:
    """Rows are written in place, so that a captured step finds them where they were."""

    parents: Tensor
    """int16 `[samples, survivors, G]`, the fittest first"""
    begun: Tensor
    """bool `[samples]`: whether a sample's search has begun"""
    fitness: Tensor
    """float32 `[samples]`: the highest fitness when a sample was last scored"""
    worst: Tensor
    """int16 `[samples, G]`: the variant that was the worst then; no rows where nobody asks for it"""
    active: Tensor
    """bool `[samples]`: who is searched in this epoch; no rows where all are"""
    coming: Tensor
    """bool `[samples]`: who will be searched in the next"""
    waiting: Tensor
    """bool `[samples]`: who was skipped and has not been observed since"""

    @classmethod
    def empty(cls, samples: int, survivors: int, genes: int, device: torch.device, worst: bool, flags: bool) -> "Store":
        def flag(value: bool, wanted: bool = True) -> Tensor:
            return torch.full((samples if wanted else 0,), value, device=device)

        return cls(
            parents=torch.zeros(samples, survivors, genes, dtype=torch.int16, device=device),
            begun=flag(False),
            fitness=torch.zeros(samples, device=device),
            worst=torch.zeros(samples if worst else 0, genes, dtype=torch.int16, device=device),
            active=flag(True, flags),
            coming=flag(True, flags),
            waiting=flag(False, flags),
        )

    def check(self, index: Tensor) -> None:
        if (given := outside(index, len(self.begun))) is not None:
            raise UserError(f"index: {given} is outside the store of {len(self.begun)} samples.")

    def write(self, index: Tensor, real: Tensor, parents_NSG: Tensor, fitness_N: Tensor, worst_NG: Tensor) -> None:
        """What a search found, for the rows that are `real`; the others only filled up a shape."""
        old_NSG = self.parents[index]
        self.parents[index] = torch.where(real[:, None, None], packed(parents_NSG), old_NSG)
        self.begun[index] = self.begun[index] | real
        self.fitness[index] = torch.where(real, fitness_N.float(), self.fitness[index])
        if len(self.worst):
            self.worst[index] = torch.where(real[:, None], packed(worst_NG), self.worst[index])

    def worst_of(self, index: Tensor) -> Tensor:
        """Codes `[N, G]` of the worst variants of the last search."""
        return unpacked(self.worst[index])

    def to(self, device: torch.device) -> "Store":
        return Store(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def turn(self) -> None:
        """A new epoch: what came in the last one decides."""
        self.active.copy_(self.coming)

    def merge(self, ranks: Ranks, rows: Sequence[Tensor]) -> None:
        """What rank r wrote of the samples `rows[r]`, everywhere."""
        # sorted: rows that follow each other in memory are read and written faster
        ranks.merge(list(self.state_dict().values()), [index.to(self.begun.device).sort().values for index in rows])

    def state_dict(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in vars(self).items() if len(tensor)}

"""Who lives on: elitism (SENSEI), roulette wheel (SENSEI-RW), tournament of five (SENSEI-T).

A selection is a function `(fitness [N, K], index [N], keep, seed, epoch) -> numbers of the survivors [N, keep]`. Ties
go to the lowest number.
"""

from typing import Protocol

import torch
from torch import Tensor

from ukemi import randomness
from ukemi.errors import UserError
from ukemi.randomness import Stream
from ukemi.schema import called

ROUND = 5
"""chromosomes in one tournament"""


class Selection(Protocol):
    def __call__(self, fitness_NK: Tensor, index_N: Tensor, keep: int, *, seed: int, epoch: int) -> Tensor: ...


def elitism(fitness_NK: Tensor, index_N: Tensor, keep: int, *, seed: int, epoch: int) -> Tensor:
    """The fittest, in order."""
    return fitness_NK.argsort(dim=1, descending=True, stable=True)[:, :keep]


def roulette(fitness_NK: Tensor, index_N: Tensor, keep: int, *, seed: int, epoch: int) -> Tensor:
    """Drawn with replacement in proportion to fitness, shifted where that is negative; evenly where all are equal, and
    among the infinite where there are any."""
    # an infinite share of an infinite sum is no number, so those that are infinite get all of it
    endless_NK = fitness_NK == torch.inf
    fitness_NK = torch.where(endless_NK.any(1, keepdim=True), endless_NK.double(), fitness_NK.double())
    fitness_NK = fitness_NK.clamp(min=torch.finfo(torch.float32).min)
    lowest_N1 = fitness_NK.amin(1, keepdim=True).clamp(max=0)
    weights_NK = fitness_NK - lowest_N1
    weights_NK = torch.where(weights_NK.sum(1, keepdim=True) > 0, weights_NK, torch.ones_like(weights_NK))
    ends_NK = weights_NK.cumsum(1)
    u_NS = randomness.uniform(index_N, keep, seed=seed, stream=Stream.SELECTION, epoch=epoch)[..., 0].double()
    spins_NS = u_NS * ends_NK[:, -1:]
    return torch.searchsorted(ends_NK, spins_NS, right=True).clamp(max=fitness_NK.shape[1] - 1)


def tournament(
    fitness_NK: Tensor,
    index_N: Tensor,
    keep: int,
    *,
    seed: int,
    epoch: int,
    rounds: int = ROUND,
    stream: Stream = Stream.SELECTION,
) -> Tensor:
    """The best of five (`rounds`) drawn with replacement, `keep` times."""
    u_NSR = randomness.uniform(index_N, keep, rounds, seed=seed, stream=stream, epoch=epoch).double()
    drawn_NSR = (u_NSR * fitness_NK.shape[1]).long()
    # a rank for every chromosome makes the winner the drawn one of lowest rank, whoever was drawn first
    order_NK = fitness_NK.argsort(dim=1, descending=True, stable=True)
    rank_NK = torch.empty_like(order_NK).scatter_(
        1, order_NK, torch.arange(order_NK.shape[1], device=order_NK.device).expand_as(order_NK)
    )
    best_NS = rank_NK.gather(1, drawn_NSR.flatten(1)).view_as(drawn_NSR).amin(2)
    return order_NK.gather(1, best_NS)


def selected(select: Selection, fitness_NK: Tensor, index_N: Tensor, keep: int, *, seed: int, epoch: int) -> Tensor:
    """What a selection gave, int64 `[N, keep]`; what anyone's own gives is checked where the device need not wait."""
    # a copy, in case that anyone's own works in place
    kept_NS = called(select, "augmenter.selection", fitness_NK.clone(), index_N, keep, seed=seed, epoch=epoch)
    wanted, count = (len(fitness_NK), keep), fitness_NK.shape[1]
    if not isinstance(kept_NS, Tensor) or kept_NS.is_floating_point() or tuple(kept_NS.shape) != wanted:
        given = f"{kept_NS.dtype} {list(kept_NS.shape)}" if isinstance(kept_NS, Tensor) else repr(kept_NS)
        raise UserError(f"augmenter.selection: whole numbers {list(wanted)} are needed, but it gave {given}.")
    if kept_NS.device.type == "cpu" and len(kept_NS) and not 0 <= int(kept_NS.min()) <= int(kept_NS.max()) < count:
        raise UserError(f"augmenter.selection: its numbers should lie in 0 to {count - 1}.")
    return kept_NS.long()


SELECTIONS: dict[str, Selection] = {"elitism": elitism, "roulette": roulette, "tournament": tournament}

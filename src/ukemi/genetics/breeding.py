"""A new generation (SENSEI, Algorithm 3): each child comes from two parents or is one parent changed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ukemi import randomness
from ukemi.errors import UserError
from ukemi.fused import fusable
from ukemi.genetics.operators import Crossover, Draw, Mutation, below, one_point, redraw
from ukemi.randomness import Stream
from ukemi.schema import called
from ukemi.spaces import Space

TRIES = 10
"""how often a child that is already there is drawn again: the algorithm collects a set"""

Parents = Literal["random", "fittest"]
Invalid = Literal["redraw", "clip"]


@dataclass(frozen=True)
class Breeding:
    """How children are made; the defaults are the paper's."""

    rate: float = 0.4
    """how often a child comes from two parents"""
    crossover: Crossover = one_point
    mutation: Mutation = redraw
    edge: float = 0.0
    """how often a gene drawn anew lies at an end of its range"""
    parents: Parents = "random"
    """two different ones, drawn evenly; or the first (the fittest) and the one that differs from it most"""
    invalid: Invalid = "redraw"
    """a child outside the ranges is drawn again, or clipped"""
    apart: bool = False
    """a child that equals a parent is drawn again too"""


PAPER = Breeding()


def bred(
    parents_NSG: Tensor,
    alive_N: Tensor,
    index_N: Tensor,
    size: int,
    space: Space,
    *,
    seed: int,
    epoch: int,
    how: Breeding = PAPER,
    fitness_N: Tensor | None = None,
    coin: Tensor | None = None,
) -> Tensor:
    """`size` children per sample, int32 codes `[N, size, G]`.

    Sample n's parents are its first `alive_N[n]` rows. Every draw is a function of (seed, epoch, index, child, try). A
    child that a sibling (or, with `apart`, a parent) already is, or that lies outside, is drawn again up to ten times.
    `coin`, one number in [0, 1), decides crossover or mutation for all children alike (SENSEI's released code).
    """
    fitness_N = torch.zeros(len(index_N), device=index_N.device) if fitness_N is None else fitness_N
    proposals_NPG = _proposals(
        parents_NSG, alive_N, index_N, size * (TRIES + 1), space, seed, epoch, how, fitness_N, coin
    )
    last_G = space.last_codes(index_N.device).int()
    inside_NPG = torch.minimum(proposals_NPG.clamp(min=0), last_G)
    outside_NP = (inside_NPG != proposals_NPG).any(-1) & (how.invalid == "redraw")
    tries_NKTG, outside_NKT = inside_NPG.unflatten(1, (size, -1)), outside_NP.unflatten(1, (size, -1))
    # whom a child must not equal: children as they come, behind the parents; -1 is equal to none
    numbers_S = torch.arange(parents_NSG.shape[1] if how.apart else 0, device=index_N.device)
    parents_NSG = parents_NSG[:, : len(numbers_S)].masked_fill((numbers_S >= alive_N[:, None])[..., None], -1)
    return _distinct(tries_NKTG, outside_NKT, parents_NSG)


@fusable
def _distinct(tries_NKTG: Tensor, outside_NKT: Tensor, others_NSG: Tensor) -> Tensor:
    """Each child at its first try that is none of the others and no child before it."""
    size = tries_NKTG.shape[1]
    taken_NXG = F.pad(others_NSG, (0, 0, 0, size), value=-1)
    children_NKG, try_T = taken_NXG[:, others_NSG.shape[1] :], torch.arange(TRIES + 1, device=others_NSG.device)
    for child in range(size):
        tries_NTG = tries_NKTG[:, child]
        there_NT = (tries_NTG[:, :, None] == taken_NXG[:, None]).all(-1).any(-1) | outside_NKT[:, child]
        first_free_N = try_T.masked_fill(there_NT, TRIES).amin(1)
        places_N1G = first_free_N[:, None, None].expand(-1, 1, tries_NTG.shape[2])
        children_NKG[:, child] = tries_NTG.gather(1, places_N1G)[:, 0]
    return children_NKG


def _proposals(
    parents_NSG: Tensor,
    alive_N: Tensor,
    index_N: Tensor,
    count: int,
    space: Space,
    seed: int,
    epoch: int,
    how: Breeding,
    fitness_N: Tensor,
    coin: Tensor | None,
) -> Tensor:
    """What each child would be at its first try, its second, …: `[N, count, G]`."""

    def stream(name: Stream) -> Draw:
        return lambda many: randomness.uniform(index_N, count, many, seed=seed, stream=name, epoch=epoch).double()

    operator, parent, mate = stream(Stream.CHILDREN)(3).unbind(-1)
    if how.parents == "random":
        first_NP, second_NP = _drawn(parent, mate, alive_N)
    else:
        first_NP = torch.zeros_like(parent).long()
        second_NP = _most_different(parents_NSG, alive_N)[:, None].expand_as(first_NP)
    first_NPG, second_NPG = _rows(parents_NSG, first_NP), _rows(parents_NSG, second_NP)
    # a copy, in case that anyone's own works in place: mutations begin with the same parents
    mine_NPG, crossing = first_NPG.clone(), stream(Stream.CROSSOVER)
    crossed_NPG = _made("crossing", first_NPG, how.crossover, mine_NPG, second_NPG, crossing, space)
    mutation = stream(Stream.MUTATION)
    mutated_NPG = _made("mutation", first_NPG, how.mutation, first_NPG, fitness_N, mutation, space, how.edge)
    crosses = (operator if coin is None else coin.expand_as(operator)) < how.rate
    return torch.where(crosses[..., None], crossed_NPG, mutated_NPG)


def _made(field: str, like_NPG: Tensor, operator: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """What an operator gave, as int32 codes; what anyone's own gives is checked."""
    codes_NPG = called(operator, f"augmenter.{field}", *arguments)
    if not isinstance(codes_NPG, Tensor) or codes_NPG.is_floating_point() or codes_NPG.shape != like_NPG.shape:
        given = f"{codes_NPG.dtype} {list(codes_NPG.shape)}" if isinstance(codes_NPG, Tensor) else repr(codes_NPG)
        raise UserError(f"augmenter.{field}: whole numbers {list(like_NPG.shape)} are needed, but it gave {given}.")
    return codes_NPG.int()


def _drawn(parent_NP: Tensor, mate_NP: Tensor, alive_N: Tensor) -> tuple[Tensor, Tensor]:
    """Two different parents, drawn evenly; where there is one only, it is both."""
    alive_N1 = alive_N[:, None].double()
    first_NP = below(parent_NP, alive_N1)
    second_NP = below(mate_NP, (alive_N1 - 1).clamp(min=1))
    # the mate is one of the others: numbers from the first parent's on move up by one
    return first_NP, torch.where((second_NP >= first_NP) & (alive_N1 > 1), second_NP + 1, second_NP)


def _most_different(parents_NSG: Tensor, alive_N: Tensor) -> Tensor:
    """The parent that differs from the first in the most genes; of equals the first."""
    differing_NS = (parents_NSG != parents_NSG[:, :1]).sum(-1)
    living_NS = torch.arange(parents_NSG.shape[1], device=alive_N.device) < alive_N[:, None]
    return torch.where(living_NS, differing_NS, -1).argsort(dim=1, descending=True, stable=True)[:, 0]


def _rows(parents_NSG: Tensor, which_NP: Tensor) -> Tensor:
    return parents_NSG.gather(1, which_NP[..., None].expand(-1, -1, parents_NSG.shape[2]))

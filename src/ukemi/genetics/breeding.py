"""A new generation (SENSEI, Algorithm 3): one-point crossover or the mutation of one gene, all samples at once."""

import torch
from torch import Tensor

from ukemi import randomness
from ukemi.randomness import Stream
from ukemi.spaces import Space

TRIES = 10
"""how often a child that its siblings already hold is drawn again: the algorithm collects a set"""
_DRAWS = ("operator", "parent", "mate", "cut", "gene", "value", "edge", "end")


def bred(
    parents_NSG: Tensor,
    alive_N: Tensor,
    index_N: Tensor,
    size: int,
    space: Space,
    *,
    seed: int,
    epoch: int,
    crossover: float = 0.4,
    edge: float = 0.0,
) -> Tensor:
    """`size` children per sample, int32 codes `[N, size, G]`.

    Sample n's parents are its first `alive_N[n]` rows. With probability `crossover` a child takes genes 1 to r from one
    parent and the rest from another one, r uniform in 1 to G; else it is a parent with one gene drawn anew, at an end
    of its range with probability `edge`. Every draw is a function of (seed, epoch, index, child, try).
    """
    proposals_NKTG = _proposals(parents_NSG, alive_N, index_N, size, space, seed, epoch, crossover, edge)
    children_NKG = proposals_NKTG[:, :1, 0]
    for child in range(1, size):
        tries_NTG = proposals_NKTG[:, child]
        taken_NT = (tries_NTG[:, :, None] == children_NKG[:, None]).all(-1).any(-1)
        first_free_N = taken_NT.long().cumprod(1).sum(1).clamp(max=TRIES)
        chosen_N1G = tries_NTG.gather(1, first_free_N[:, None, None].expand(-1, 1, tries_NTG.shape[2]))
        children_NKG = torch.cat([children_NKG, chosen_N1G], 1)
    return children_NKG


def _proposals(
    parents_NSG: Tensor,
    alive_N: Tensor,
    index_N: Tensor,
    size: int,
    space: Space,
    seed: int,
    epoch: int,
    crossover: float,
    edge: float,
) -> Tensor:
    """What each child would be at its first try, its second, …: `[N, size, TRIES + 1, G]`."""
    length = len(space)
    u_NPD = randomness.uniform(
        index_N, size * (TRIES + 1), len(_DRAWS), seed=seed, stream=Stream.CHILDREN, epoch=epoch
    ).double()
    u = dict(zip(_DRAWS, u_NPD.unbind(-1), strict=True))
    alive_N1 = alive_N[:, None].double()
    parent_NP = _below(u["parent"], alive_N1)
    mate_NP = _below(u["mate"], (alive_N1 - 1).clamp(min=1))
    # the mate is one of the others: numbers from the parent's on move up by one
    mate_NP = torch.where((mate_NP >= parent_NP) & (alive_N1 > 1), mate_NP + 1, mate_NP)
    gene_G = torch.arange(length, device=index_N.device)
    from_parent_NPG = gene_G < 1 + _below(u["cut"], length)[..., None]
    crossed_NPG = torch.where(from_parent_NPG, _rows(parents_NSG, parent_NP), _rows(parents_NSG, mate_NP))
    which_NP = _below(u["gene"], length)
    last_NP = space.last_codes(index_N.device)[which_NP]
    fresh_NP = torch.minimum(_below(u["value"], last_NP + 1).double(), last_NP)
    at_end_NP = torch.where(u["end"] < 0.5, torch.zeros_like(last_NP), last_NP)
    value_NP = torch.where(u["edge"] < edge, at_end_NP, fresh_NP).int()
    mutated_NPG = torch.where(gene_G == which_NP[..., None], value_NP[..., None], _rows(parents_NSG, parent_NP))
    children_NPG = torch.where((u["operator"] < crossover)[..., None], crossed_NPG, mutated_NPG)
    return children_NPG.unflatten(1, (size, TRIES + 1))


def _below(u: Tensor, count: Tensor | int) -> Tensor:
    """Whole numbers 0 to count - 1 from uniform ones."""
    return (u * count).floor().long()


def _rows(parents_NSG: Tensor, which_NP: Tensor) -> Tensor:
    return parents_NSG.gather(1, which_NP[..., None].expand(-1, -1, parents_NSG.shape[2]))

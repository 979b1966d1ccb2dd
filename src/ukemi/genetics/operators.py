"""How children are made: crossovers mix two parents, mutations change one. All samples and children at once.

Chromosomes are positions on their space's lattice (`Space.encode`), 0 to `last_codes`. `draw(n)` gives n uniform
numbers per child, float64 `[N, P, n]`, that are a function of (seed, epoch, index, child, try): call it once. What an
operator gives may lie outside the lattice; `bred` then draws again or clips.
"""

from collections.abc import Callable
from math import ceil
from typing import Protocol

import torch
from torch import Tensor

from ukemi.spaces import Space

Draw = Callable[[int], Tensor]

STEPS = {
    "rotation": 6.0,
    "translate_x": 0.2 / 6,
    "translate_y": 0.2 / 6,
    "shear": 0.02,
    "zoom": 0.02,
    "brightness": 4 / 255,
    "contrast": 0.05,
}
"""How far SENSEI's released code moves a gene (a pixel: a thirtieth of the side); others: a tenth of their range."""
CALM = 1e-3
"""below this fitness the released code doubles its steps of rotation and shear"""


class Crossover(Protocol):
    def __call__(self, first_NPG: Tensor, second_NPG: Tensor, draw: Draw, space: Space) -> Tensor: ...


class Mutation(Protocol):
    def __call__(self, parents_NPG: Tensor, fitness_N: Tensor, draw: Draw, space: Space, edge: float) -> Tensor:
        """`fitness_N` is the highest fitness of each sample when it was last scored (0 before)."""


def one_point(first_NPG: Tensor, second_NPG: Tensor, draw: Draw, space: Space) -> Tensor:
    """Genes 1 to r of the first, the rest of the second, r uniform in 1 to G (SENSEI, Algorithm 3)."""
    return _cut(first_NPG, second_NPG, 1 + below(draw(1)[..., 0], len(space)))


def one_point_or_none(first_NPG: Tensor, second_NPG: Tensor, draw: Draw, space: Space) -> Tensor:
    """As `one_point` with r uniform in 0 to G: a child may be the second parent too (AUGMENTATION)."""
    return _cut(first_NPG, second_NPG, below(draw(1)[..., 0], len(space) + 1))


def uniform(first_NPG: Tensor, second_NPG: Tensor, draw: Draw, space: Space) -> Tensor:
    """Every gene from either parent, at least one from each (SENSEI's released code)."""
    length = len(space)
    u_NPD = draw(length + 1)
    mine_NPG = u_NPD[..., :length] < 0.5
    same_NP1 = (mine_NPG == mine_NPG[..., :1]).all(-1, keepdim=True)
    turned_NP1 = below(u_NPD[..., length:], length)
    mine_NPG = mine_NPG ^ (same_NP1 & (torch.arange(length, device=mine_NPG.device) == turned_NP1))
    return torch.where(mine_NPG, first_NPG, second_NPG)


def redraw(parents_NPG: Tensor, fitness_N: Tensor, draw: Draw, space: Space, edge: float) -> Tensor:
    """One gene drawn anew (SENSEI, Algorithm 3), with probability `edge` at an end of its range."""
    which, value, at_edge, end = draw(4).unbind(-1)
    which_NP = below(which, len(space))
    last_NP = space.last_codes(parents_NPG.device)[which_NP]
    fresh_NP = torch.minimum(below(value, last_NP + 1).double(), last_NP)
    end_NP = torch.where(end < 0.5, torch.zeros_like(last_NP), last_NP)
    value_NP = torch.where(at_edge < edge, end_NP, fresh_NP).int()
    gene_G = torch.arange(len(space), device=parents_NPG.device)
    return torch.where(gene_G == which_NP[..., None], value_NP[..., None], parents_NPG)


def step(parents_NPG: Tensor, fitness_N: Tensor, draw: Draw, space: Space, edge: float) -> Tensor:
    """Half of the genes, rounded up, each moved one step up, one down or mirrored at the identity (SENSEI's released
    code); with probability `edge` such a gene goes to an end of its range instead."""
    length, device = len(space), parents_NPG.device
    rank, move, at_edge, end = draw(4 * length).unflatten(-1, (4, length)).unbind(-2)
    chosen_NPG = rank.argsort(dim=-1, stable=True).argsort(dim=-1, stable=True) < ceil(length / 2)
    step_NPG = _steps(space, device) * torch.where(fitness_N[:, None, None] < CALM, _calm(space, device), 1)
    identity_G = space.encode(space.identity(device))
    mirrored_NPG = 2 * identity_G - parents_NPG
    moved_NPG = torch.where(move < 1 / 3, parents_NPG + step_NPG, parents_NPG - step_NPG)
    moved_NPG = torch.where(move < 2 / 3, moved_NPG, mirrored_NPG.double())
    ends_NPG = torch.where(end < 0.5, 0.0, space.last_codes(device))
    moved_NPG = torch.where(at_edge < edge, ends_NPG, moved_NPG)
    return torch.where(chosen_NPG, moved_NPG.int(), parents_NPG)


def below(u: Tensor, count: Tensor | int) -> Tensor:
    """Whole numbers 0 to count - 1 from uniform ones."""
    return (u * count).floor().long()


def _cut(first_NPG: Tensor, second_NPG: Tensor, cut_NP: Tensor) -> Tensor:
    gene_G = torch.arange(first_NPG.shape[-1], device=first_NPG.device)
    return torch.where(gene_G < cut_NP[..., None], first_NPG, second_NPG)


def _steps(space: Space, device: torch.device) -> Tensor:
    """Each gene's step in positions of the lattice, at least one, float64 `[G]`."""
    shares = [STEPS.get(gene.name, (gene.high - gene.low) / 10) / (gene.high - gene.low) for gene in space.genes]
    # filled number by number: a tensor made from a list would be a copy from the host, which can't be captured
    last_G = space.last_codes(device)
    return torch.stack([(last_G[at] * share).round().clamp(min=1) for at, share in enumerate(shares)])


def _calm(space: Space, device: torch.device) -> Tensor:
    twice = [2.0 if gene.name in ("rotation", "shear") else 1.0 for gene in space.genes]
    return torch.stack([torch.full((), value, dtype=torch.float64, device=device) for value in twice])


CROSSOVERS: dict[str, Crossover] = {
    "one-point": one_point,
    "one-point-or-none": one_point_or_none,
    "uniform": uniform,
}
MUTATIONS: dict[str, Mutation] = {"redraw": redraw, "step": step}

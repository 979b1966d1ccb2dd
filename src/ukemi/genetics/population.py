"""Populations: chromosomes as positions on their space's lattice, one row of them per training sample."""

from functools import cache
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from ukemi import randomness
from ukemi.errors import UserError
from ukemi.randomness import Stream
from ukemi.spaces import Space

MOST = 10
"""genes of a space whose grid is dealt: 59,049 cards"""
First = Literal["random", "grid"]
_OFFSET = 32767
_OUT = {"rotation": 0.6, "translate_x": 2 / 3, "translate_y": 2 / 3, "shear": 0.6, "zoom": 0.6, "brightness": 0.75}
"""How far out the released code's grid of first chromosomes reaches, as a share of the way to the ends (contrast and
any other gene: 0.75)."""


def first_population(
    index_N: Tensor, size: int, space: Space, *, seed: int, identity: bool = False, first: First = "random"
) -> Tensor:
    """`size` chromosomes per sample, int32 codes `[N, size, G]`; with `identity` the first of them changes nothing.

    `random` draws them. `grid` deals them from one shuffled deck of three values per gene, as SENSEI's released code
    does (there with one deck per class; here sample i gets the cards from i x size on).
    """
    if first == "grid":
        deck_DG = _deck(space, seed, index_N.device)
        card_NK = index_N[:, None] * size + torch.arange(size, device=index_N.device)
        codes_NKG = deck_DG[card_NK % len(deck_DG)]
    else:
        codes_NKG = space.sample_codes(index_N, size, seed=seed, stream=Stream.POPULATION)
    if identity:
        _check_identity(space)
        codes_NKG[:, 0] = space.encode(space.identity(index_N.device))
    return codes_NKG


@cache
def _check_identity(space: Space) -> None:
    """The unchanged image can be a chromosome only where every gene's lattice holds the identity."""
    identity_G = space.identity()
    for at in (space.decode(space.encode(identity_G)) != identity_G).nonzero().flatten().tolist():
        gene = space.genes[at]
        raise UserError(
            f"augmenter.identity: {gene.name} changes nothing at {gene.identity:g}, which is none of its values,"
            f" {gene.low:g} to {gene.high:g} in steps of {gene.step:g}."
        )


def packed(codes: Tensor) -> Tensor:
    """Codes as int16: ten chromosomes of T6 for 1.28 million samples take 179 MB."""
    return (codes - _OFFSET).to(torch.int16)


def unpacked(stored: Tensor) -> Tensor:
    """Codes from what `packed` gave."""
    return stored.int() + _OFFSET


_DECKS: dict[tuple[Space, int, torch.device], Tensor] = {}


def _deck(space: Space, seed: int, device: torch.device) -> Tensor:
    """All combinations of low, identity and high, each part of the way out, shuffled by the seed; made once."""
    if len(space) > MOST:
        raise UserError(f"augmenter.first: a grid is dealt for at most {MOST} genes, but this space has {len(space)}.")
    if (space, seed, device) not in _DECKS:
        axes = []
        for gene in space.genes:
            out = _OUT.get(gene.name, 0.75)
            axes.append([gene.identity + out * (end - gene.identity) for end in (gene.low, gene.identity, gene.high)])
        cards = space.encode(torch.tensor(list(product(*axes)), dtype=torch.float64))
        order = randomness.permutation(len(cards), seed=seed, stream=Stream.POPULATION)
        _DECKS[space, seed, device] = cards[order].to(device)
    return _DECKS[space, seed, device]

"""The second generator: individuals are natural variations of their seed, evolved by SENSEI's genetics."""

from functools import partial

import torch
from torch import Tensor

from ukemi.genetics import Breeding, bred, elitism, first_population
from ukemi.spaces import T3, Space
from ukemi.uncertainty.generation import MakerOf, SearchSettings, Slope
from ukemi.variations import vary

SURVIVING = 0.4
"""the share of a generation that has children"""
EDGE = 0.5
"""how often a drawn gene lies at an end of its range, where nothing else is said"""


class NaturalMaker:
    """Chromosomes of a space as codes `[N, K, G]`: the fittest live on, the rest are children of the better ones."""

    def __init__(self, space: Space, images_NCHW: Tensor, index_N: Tensor, settings: SearchSettings, seed: int) -> None:
        self._space, self._seeds, self._index, self._settings, self._seed = space, images_NCHW, index_N, settings, seed

    def first(self, count: int) -> Tensor:
        return first_population(self._index, count, self._space, seed=self._seed)

    def images(self, codes: Tensor) -> Tensor:
        count = codes.shape[1]
        genes = self._space.decode(codes).flatten(0, 1)
        return vary(self._seeds.repeat_interleave(count, 0), genes, self._space).unflatten(0, (-1, count))

    def children(self, codes: Tensor, fitness_NK: Tensor, generation: int, slope: Slope) -> Tensor:
        count, told = codes.shape[1], self._settings
        living = max(2, round(SURVIVING * count))
        best_NS = elitism(fitness_NK, self._index, living, seed=self._seed, epoch=generation)
        parents_NSG = codes.gather(1, best_NS[..., None].expand(-1, -1, codes.shape[2]))
        elite, alive_N = min(told.elite, living, count - 1), torch.full_like(self._index, living)
        made = bred(
            parents_NSG,
            alive_N,
            self._index,
            count - elite,
            self._space,
            seed=self._seed,
            epoch=generation,
            how=Breeding(edge=EDGE if told.edge is None else told.edge, apart=True),
        )
        return torch.cat([parents_NSG[:, :elite], made], 1)

    def kept(self, rows: Tensor) -> "NaturalMaker":
        return NaturalMaker(self._space, self._seeds[rows], self._index[rows], self._settings, self._seed)


def natural(space: Space = T3) -> MakerOf:
    """What `generate(…, maker=natural(T6))` takes."""
    return partial(NaturalMaker, space)

"""Genetics: populations, children, survivors. Tensors only; no model in this room."""

from ukemi.genetics.breeding import Breeding, Invalid, Parents, bred
from ukemi.genetics.operators import CROSSOVERS, MUTATIONS, Crossover, Draw, Mutation
from ukemi.genetics.population import First, first_population, packed, unpacked
from ukemi.genetics.selection import SELECTIONS, Selection, elitism, roulette, selected, tournament

__all__ = [
    "CROSSOVERS",
    "MUTATIONS",
    "SELECTIONS",
    "Breeding",
    "Crossover",
    "Draw",
    "First",
    "Invalid",
    "Mutation",
    "Parents",
    "Selection",
    "bred",
    "elitism",
    "first_population",
    "packed",
    "roulette",
    "selected",
    "tournament",
    "unpacked",
]

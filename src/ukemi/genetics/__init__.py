"""Genetics: populations, children, survivors. Tensors only; no model in this room."""

from ukemi.genetics.breeding import bred
from ukemi.genetics.population import first_population, packed, unpacked
from ukemi.genetics.selection import SELECTIONS, elitism, roulette, tournament

__all__ = ["SELECTIONS", "bred", "elitism", "first_population", "packed", "roulette", "tournament", "unpacked"]

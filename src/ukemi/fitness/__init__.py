"""Fitness: what a variant is searched for. A function of `Scored`, or a class where it learns from the training data.

Your own is one function, `def mine(scored: Scored) -> Tensor` with one number per variant, higher for what the search
should find; it is named as `package.module:mine` wherever a fitness is asked for.
"""

from ukemi.fitness.base import Fitness, Scored, Scorer, checked, wants
from ukemi.fitness.coverage import MultisectionCoverage, NeuronCoverage
from ukemi.fitness.learning import Learning
from ukemi.fitness.pointwise import binary_cross_entropy, cross_entropy, divergence, margin, misclassified_first
from ukemi.fitness.registry import FITNESS, fitness_of
from ukemi.fitness.surprise import DistanceSurprise, LikelihoodSurprise
from ukemi.fitness.uncertain import PredictiveEntropy, uncertainty

__all__ = [
    "FITNESS",
    "DistanceSurprise",
    "Fitness",
    "Learning",
    "LikelihoodSurprise",
    "MultisectionCoverage",
    "NeuronCoverage",
    "PredictiveEntropy",
    "Scored",
    "Scorer",
    "binary_cross_entropy",
    "checked",
    "cross_entropy",
    "divergence",
    "fitness_of",
    "margin",
    "misclassified_first",
    "uncertainty",
    "wants",
]

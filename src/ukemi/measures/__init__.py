"""Measures: numbers about a model."""

from ukemi.measures.accuracy import accuracy
from ukemi.measures.robustness import Robustness, robust_accuracy, robustness_of

__all__ = ["Robustness", "accuracy", "robust_accuracy", "robustness_of"]

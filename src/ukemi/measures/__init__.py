"""Measures: numbers about a model."""

from ukemi.measures.accuracy import accuracy
from ukemi.measures.inner import MethodQuality, SearchQuality, search_quality
from ukemi.measures.robustness import Robustness, robust_accuracy, robustness_of

__all__ = [
    "MethodQuality",
    "Robustness",
    "SearchQuality",
    "accuracy",
    "robust_accuracy",
    "robustness_of",
    "search_quality",
]

"""Measures: numbers about a model."""

from ukemi.measures.accuracy import accuracy, recognised
from ukemi.measures.inner import MethodQuality, SearchQuality, search_quality
from ukemi.measures.robustness import Robustness, robust_accuracy, robustness_of

__all__ = [
    "MethodQuality",
    "Robustness",
    "SearchQuality",
    "accuracy",
    "recognised",
    "robust_accuracy",
    "robustness_of",
    "search_quality",
]

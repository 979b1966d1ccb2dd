"""Uncertainty: what a model does not know, inputs of every kind of it, and how it tells attacked from benign ones."""

from ukemi.uncertainty.calibration import Reliability, expected_calibration_error, reliability
from ukemi.uncertainty.dropout import dropouts_of, insert_dropout, with_dropout
from ukemi.uncertainty.fuzzing import GUIDES, Fuzzed, FuzzSettings, fuzz
from ukemi.uncertainty.generation import Generated, SearchSettings, generate
from ukemi.uncertainty.metrics import (
    METRICS,
    Sampled,
    Uncertainty,
    measured,
    mutual_information,
    prediction_confidence,
    predictive_entropy,
    variation_ratio,
)
from ukemi.uncertainty.natural import natural
from ukemi.uncertainty.passes import DropoutPasses, Ensemble, Source, uncertainty_of
from ukemi.uncertainty.patterns import (
    PATTERNS,
    Shares,
    Thresholds,
    auroc,
    aurocs,
    found_thresholds,
    patterns_of,
    shares_of,
    unstable,
    youden,
)
from ukemi.uncertainty.targets import GOALS, Target

__all__ = [
    "GOALS",
    "GUIDES",
    "METRICS",
    "PATTERNS",
    "DropoutPasses",
    "Ensemble",
    "FuzzSettings",
    "Fuzzed",
    "Generated",
    "Reliability",
    "Sampled",
    "SearchSettings",
    "Shares",
    "Source",
    "Target",
    "Thresholds",
    "Uncertainty",
    "auroc",
    "aurocs",
    "dropouts_of",
    "expected_calibration_error",
    "found_thresholds",
    "fuzz",
    "generate",
    "insert_dropout",
    "measured",
    "mutual_information",
    "natural",
    "patterns_of",
    "prediction_confidence",
    "predictive_entropy",
    "reliability",
    "shares_of",
    "uncertainty_of",
    "unstable",
    "variation_ratio",
    "with_dropout",
    "youden",
]

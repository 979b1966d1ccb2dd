"""Defences that any model can wear: hardened models, detectors, and what gets past them."""

from ukemi.defences.base import FALSE_POSITIVES, Defence, Detector, key_of, passes
from ukemi.defences.classifier import Classifying
from ukemi.defences.detectors import Dropping, Mutating, Squeezing
from ukemi.defences.hardening import Several, Transformed, Variants
from ukemi.defences.registry import DEFENCES, TRAINING, Setting, defence_of
from ukemi.defences.slices import Slicing
from ukemi.defences.study import Judged, Study, study
from ukemi.defences.trained import distilled, smoothed

__all__ = [
    "DEFENCES",
    "FALSE_POSITIVES",
    "TRAINING",
    "Classifying",
    "Defence",
    "Detector",
    "Dropping",
    "Judged",
    "Mutating",
    "Setting",
    "Several",
    "Slicing",
    "Squeezing",
    "Study",
    "Transformed",
    "Variants",
    "defence_of",
    "distilled",
    "key_of",
    "passes",
    "smoothed",
    "study",
]

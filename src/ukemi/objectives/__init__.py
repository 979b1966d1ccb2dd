"""Objectives: how images and labels become a loss. One file each, two lines here."""

from ukemi.objectives.base import Objective, ObjectiveConfig, Outcome
from ukemi.objectives.consistency import Consistency
from ukemi.objectives.cross_entropy import CrossEntropy

OBJECTIVES: dict[str, type[ObjectiveConfig]] = {
    "cross-entropy": CrossEntropy.Config,
    "consistency": Consistency.Config,
}
"""The settings of every objective by the name that configs and the command line use."""

AnyObjective = CrossEntropy.Config | Consistency.Config

__all__ = ["OBJECTIVES", "AnyObjective", "Consistency", "CrossEntropy", "Objective", "ObjectiveConfig", "Outcome"]

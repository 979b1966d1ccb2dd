"""Objectives: how images and labels become a loss. One file each, two lines here."""

from ukemi.objectives.adversarial import Adversarial
from ukemi.objectives.base import Objective, ObjectiveConfig, Outcome
from ukemi.objectives.consistency import Consistency
from ukemi.objectives.cross_entropy import CrossEntropy
from ukemi.objectives.distillation import Distillation
from ukemi.objectives.grouped import GroupedMixup
from ukemi.objectives.mixup import ManifoldMixup, Mixup

OBJECTIVES: dict[str, type[ObjectiveConfig]] = {
    "cross-entropy": CrossEntropy.Config,
    "consistency": Consistency.Config,
    "mixup": Mixup.Config,
    "manifold-mixup": ManifoldMixup.Config,
    "adversarial": Adversarial.Config,
    "distillation": Distillation.Config,
    "grouped-mixup": GroupedMixup.Config,
}
"""The settings of every objective by the name that configs and the command line use."""

AnyObjective = (
    CrossEntropy.Config
    | Consistency.Config
    | Mixup.Config
    | ManifoldMixup.Config
    | Adversarial.Config
    | Distillation.Config
    | GroupedMixup.Config
)

__all__ = [
    "OBJECTIVES",
    "Adversarial",
    "AnyObjective",
    "Consistency",
    "CrossEntropy",
    "Distillation",
    "GroupedMixup",
    "ManifoldMixup",
    "Mixup",
    "Objective",
    "ObjectiveConfig",
    "Outcome",
]

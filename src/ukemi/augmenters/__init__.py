"""Augmenters: what replaces the images of a batch before a training step. One file each, two lines here."""

from ukemi.augmenters.base import Augmenter, AugmenterConfig
from ukemi.augmenters.own import OwnConfig
from ukemi.augmenters.presets import (
    PRESETS,
    AugmentationConfig,
    SenseiConfig,
    SenseiReleasedConfig,
    SenseiRWConfig,
    SenseiSAConfig,
    SenseiTConfig,
    UkemiConfig,
)
from ukemi.augmenters.random import Random
from ukemi.augmenters.sensei import Sensei
from ukemi.augmenters.standard import Standard
from ukemi.augmenters.styx import Styx, StyxConfig, mutated
from ukemi.augmenters.worst_of import WorstOf

AUGMENTERS: dict[str, type[AugmenterConfig]] = {
    "standard": Standard.Config,
    "random": Random.Config,
    "worst-of": WorstOf.Config,
    **PRESETS,
    "styx": StyxConfig,
    "own": OwnConfig,
}
"""The settings of every augmenter by the name that configs and the command line use."""

AnyAugmenter = (
    Standard.Config
    | Random.Config
    | WorstOf.Config
    | SenseiConfig
    | SenseiSAConfig
    | SenseiRWConfig
    | SenseiTConfig
    | SenseiReleasedConfig
    | AugmentationConfig
    | UkemiConfig
    | StyxConfig
    | OwnConfig
)

__all__ = [
    "AUGMENTERS",
    "PRESETS",
    "AnyAugmenter",
    "Augmenter",
    "AugmenterConfig",
    "Random",
    "Sensei",
    "Standard",
    "Styx",
    "WorstOf",
    "mutated",
]

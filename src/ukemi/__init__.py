"""ukemi: finds where an image classifier breaks and trains it until it holds."""

from ukemi.starting import stopped_in_a_line

with stopped_in_a_line():
    from ukemi.augmenters import AUGMENTERS, PRESETS, Augmenter, Random, Sensei, Standard, Styx, WorstOf
    from ukemi.errors import UserError
    from ukemi.fitness import FITNESS, Scored
    from ukemi.measures import Robustness, robust_accuracy
    from ukemi.models import Normalize
    from ukemi.objectives import OBJECTIVES
    from ukemi.spaces import GRIDS, T2, T3, T6, Gene, Space, named_grid
    from ukemi.variations import vary

__version__ = "0.1.0"

__all__ = [
    "AUGMENTERS",
    "FITNESS",
    "GRIDS",
    "OBJECTIVES",
    "PRESETS",
    "T2",
    "T3",
    "T6",
    "Augmenter",
    "Gene",
    "Normalize",
    "Random",
    "Robustness",
    "Scored",
    "Sensei",
    "Space",
    "Standard",
    "Styx",
    "UserError",
    "WorstOf",
    "named_grid",
    "robust_accuracy",
    "vary",
]

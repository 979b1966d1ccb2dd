"""Attacks: what moves pixels until a classifier errs. One function each, `(model, images, labels, …) -> Attacked`.

`fgsm`, `bim`, `pgd` and the black-box `square` have a fixed budget, epsilon; `minimal` turns such an attack into one of
minimal distance, which `deepfool`, `carlini_wagner` and `jsma` are by themselves. Any other attack comes in by
`from_callable`, `from_foolbox`, `from_art` or `from_torchattacks`.
"""

from ukemi.attacks.adapters import from_art, from_callable, from_foolbox, from_torchattacks
from ukemi.attacks.base import Attacked, Norm, Victim, admitted, attacking, log_odds, log_odds_for
from ukemi.attacks.carlini_wagner import carlini_wagner
from ukemi.attacks.deepfool import deepfool
from ukemi.attacks.fgsm import fgsm
from ukemi.attacks.iterative import bim, pgd
from ukemi.attacks.minimal import minimal
from ukemi.attacks.norms import NORMS, Ball, length, project, radius_of, random_points, steepest
from ukemi.attacks.registry import ATTACKS
from ukemi.attacks.saliency import jsma
from ukemi.attacks.square import square

__all__ = [
    "ATTACKS",
    "NORMS",
    "Attacked",
    "Ball",
    "Norm",
    "Victim",
    "admitted",
    "attacking",
    "bim",
    "carlini_wagner",
    "deepfool",
    "fgsm",
    "from_art",
    "from_callable",
    "from_foolbox",
    "from_torchattacks",
    "jsma",
    "length",
    "log_odds",
    "log_odds_for",
    "minimal",
    "pgd",
    "project",
    "radius_of",
    "random_points",
    "square",
    "steepest",
]

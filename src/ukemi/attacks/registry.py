"""Every attack by its name."""

from collections.abc import Callable

from ukemi.attacks.base import Attacked
from ukemi.attacks.carlini_wagner import carlini_wagner
from ukemi.attacks.deepfool import deepfool
from ukemi.attacks.fgsm import fgsm
from ukemi.attacks.iterative import bim, pgd
from ukemi.attacks.saliency import jsma
from ukemi.attacks.square import square

ATTACKS: dict[str, Callable[..., Attacked]] = {
    "fgsm": fgsm,
    "bim": bim,
    "pgd": pgd,
    "deepfool": deepfool,
    "carlini-wagner": carlini_wagner,
    "jsma": jsma,
    "square": square,
}
"""Functions `(model, images, labels, *, …) -> Attacked`, by the name that configs and the command line use."""

"""What a repair gained: one set of measures before and after, on images that the repair never saw."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import mean
from typing import Any

from torch import nn

from ukemi.attacks.config import AttackConfig
from ukemi.data import Data
from ukemi.measures import accuracy, robustness_of
from ukemi.measures.attacks import under_attack
from ukemi.models.inference import home_of
from ukemi.spaces import T3


@dataclass(frozen=True)
class Standing:
    """Where a model stands."""

    accuracy: float
    """on all test images"""
    robust_accuracy: float
    """under the 81 variants of T3, on `images` of them"""
    pgd_accuracy: float
    """under white-box PGD, on the same images"""
    images: int
    calibration: dict[str, float] = field(default_factory=dict)
    """attack -> accuracy on a frozen set that it made on the model before the repair (the calibration rate)"""
    calibration_images: dict[str, int] = field(default_factory=dict)
    """attack -> how many images that set has"""

    @property
    def mean_calibration(self) -> float:
        """Over the attacks; NaN without any."""
        return mean(self.calibration.values()) if self.calibration else float("nan")

    def as_json(self) -> dict[str, Any]:
        known = self.mean_calibration if self.calibration else None
        return asdict(self) | {"mean_calibration": known}


def standing_of(
    model: nn.Module,
    test: Data,
    few: Data,
    frozen: Mapping[str, Data],
    *,
    epsilon: float = 8 / 255,
    steps: int = 10,
    seed: int = 0,
) -> Standing:
    """Measures a model: accuracy on `test`, robust accuracy and PGD on `few` of it, accuracy on frozen sets."""
    device = home_of(model)
    attack = AttackConfig(attack="pgd", epsilon=epsilon, steps=steps).made(seed)
    known = {name: data for name, data in frozen.items() if len(data)}
    return Standing(
        accuracy=accuracy(model, test, device)[0],
        robust_accuracy=robustness_of(model, few, T3).robust_accuracy,
        pgd_accuracy=under_attack(model, few, attack).attacked_accuracy,
        images=len(few),
        calibration={name: accuracy(model, data, device)[0] for name, data in known.items()},
        calibration_images={name: len(data) for name, data in known.items()},
    )

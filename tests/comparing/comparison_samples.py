"""Outcomes made by hand."""

import torch

from ukemi.comparing.outcomes import Outcome
from ukemi.comparing.result import CaseResult, Comparison


def outcome(robust: float, accuracy: float = 0.9, images: int = 1000, passes: int = 1000) -> Outcome:
    """The first images are right and robust."""
    kept = {"accuracy": torch.arange(images) < accuracy * images, "robust": torch.arange(images) < robust * images}
    log = [{"epoch": at, "loss": 1 / (at + 1), "images": 100} for at in range(3)]
    measures = {"accuracy": accuracy, "robust": robust}
    return Outcome(measures, kept, dict.fromkeys(kept, torch.arange(images)), 3, 12.5, 1.5, passes, 300, log)


OUTCOMES = {
    "plain": {seed: outcome(0.01 * seed) for seed in range(3)},
    "luck": {seed: outcome(0.5 + 0.01 * seed, 0.85, passes=3000) for seed in range(3)},
    "search": {seed: outcome(0.6 + 0.008 * seed, 0.84, passes=3300) for seed in range(3)},
}
CASE = CaseResult("fashion t3", ("t3-81",), OUTCOMES, {})


def comparison() -> Comparison:
    settings = {"seeds": 3, "train": {"epochs": 3}}
    return Comparison("Luck or search?", ("plain", "luck", "search"), "luck", "robust", (0, 1, 2), (CASE,), 0, settings)

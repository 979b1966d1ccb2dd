"""Transfer: how a model does on adversarial images that were made for another one and frozen.

Two papers measure it under two names: *empirical robustness* (DARE, paper 4) and *calibration rate* (uncertainty-guided
testing, paper 3). Such images often sit just across the other model's boundary, so that any other model gets many of
them right: it says little about the attacks that would be made for the model itself. Show it beside those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from torch import nn

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures.accuracy import accuracy
from ukemi.models.inference import home_of
from ukemi.ranks import Ranks

NAMES = ("empirical robustness", "calibration rate")
"""what the papers call it"""


@dataclass(frozen=True)
class TransferAccuracy:
    """Accuracy on each of several frozen sets."""

    per_set: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the sets, each counting alike, as the papers report it."""
        return mean(self.per_set)


def transfer_accuracy(model: nn.Module, sets: Sequence[Data], ranks: Ranks | None = None) -> TransferAccuracy:
    """The share of the images of each frozen adversarial set that the model recognises."""
    if not sets:
        raise UserError("sets: at least one adversarial set is needed.")
    return TransferAccuracy(tuple(accuracy(model, one, home_of(model), ranks)[0] for one in sets))

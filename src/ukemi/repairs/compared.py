"""A repaired model beside its controls: on frozen sets, and under attacks on each model itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal

import torch
from torch import Tensor, nn

from ukemi.attacks.config import AttackConfig
from ukemi.data import Data
from ukemi.measures import recognised
from ukemi.measures.attacks import UnderAttack, under_attack

ERRORS = 2.0
"""A lead counts where it is more than so many of its standard errors."""
Kind = Literal["clean", "frozen", "white-box"]


@dataclass(frozen=True)
class Column:
    """One measure of a model, image by image; more is better."""

    kind: Kind
    values: Tensor
    """float64 `[n]` on the CPU: 1 where the image is recognised, else 0; or how far off the nearest error lies"""
    unit: Literal["share", "distance"] = "share"

    @property
    def mean(self) -> float:
        return float(self.values.mean())


Columns = dict[str, Column]
"""a model's columns by their titles"""


def columns_of(
    model: nn.Module, data: Data, frozen: Mapping[str, Data], attacks: Mapping[str, AttackConfig]
) -> Columns:
    """How the model recognises `data` as they are, the saved adversarial images `frozen`, and `data` under `attacks`
    made for this very model: an attack with a budget leaves recognised images, one without gives distances."""
    found = {"clean": Column("clean", _recognised(model, data))}
    found |= {f"frozen {name}": Column("frozen", _recognised(model, one)) for name, one in frozen.items()}
    for name, config in attacks.items():
        hit = under_attack(model, data, config.made(0))
        if config.epsilon is None:
            found[f"white-box {name}"] = Column("white-box", distances(hit), "distance")
        else:
            found[f"white-box {name}"] = Column("white-box", (hit.right & ~hit.fooled).double())
    return found


def _recognised(model: nn.Module, data: Data) -> Tensor:
    return recognised(model, data).cpu().double()


def distances(found: UnderAttack) -> Tensor:
    """How far the nearest error lies from each image, float64 `[N]`: 0 where the model errs already; where the attack
    found none, as far as the farthest that it found."""
    far = found.distance[found.fooled].double()
    most = far.max() if len(far) else torch.tensor(0.0, dtype=torch.float64)
    return torch.where(found.fooled, found.distance.double(), torch.where(found.right, most, 0.0))


def lead(own: Sequence[float] | Tensor, other: Sequence[float] | Tensor) -> tuple[float, float]:
    """How much more `own` is than `other`, pair by pair: the mean and its standard error (infinite for one pair).

    >>> lead([0.5, 0.7, 0.9], [0.4, 0.7, 0.7])  # doctest: +ELLIPSIS
    (0.1, 0.0577...)
    """
    more = torch.as_tensor(own, dtype=torch.float64) - torch.as_tensor(other, dtype=torch.float64)
    error = float(more.std()) / sqrt(len(more)) if len(more) > 1 else inf
    return round(float(more.mean()), 12), error


def beats(own: Column, controls: Sequence[Column]) -> bool:
    """The rule: ahead of every control, image by image, by more than two standard errors."""
    return all(mean > ERRORS * error for mean, error in (lead(own.values, one.values) for one in controls))


def verdict(name: str, own: Columns, controls: Mapping[str, Columns]) -> list[str]:
    """In sentences: does a repair beat its null controls, on frozen sets and under attacks on the model itself?"""
    said = []
    won: dict[str, bool] = {}
    for kind, where in (("frozen", "On frozen adversarial images"), ("white-box", "Attacked itself")):
        titles = [title for title, column in own.items() if column.kind == kind]
        better = [title for title in titles if beats(own[title], [one[title] for one in controls.values()])]
        won[kind] = bool(titles) and len(better) == len(titles)
        leads = [
            f"{title.removeprefix(kind).strip()} {_least(own[title], [one[title] for one in controls.values()])}"
            for title in titles
        ]
        said.append(
            f"{where}, {name} beats {' and '.join(controls)} in {len(better)} of {len(titles)} measures (lead over the"
            f" better control, ± its standard error: {'; '.join(leads)})."
        )
    ends = {
        (True, True): f"{name} does more than its null controls.",
        (True, False): f"{name} beats its null controls on frozen images only: attacked itself it is no stronger.",
        (False, True): f"{name} beats its null controls only when attacked itself.",
        (False, False): f"{name} does not beat its null controls.",
    }
    return [ends[won["frozen"], won["white-box"]], *said]


def _least(own: Column, controls: Sequence[Column]) -> str:
    mean, error = min(lead(own.values, one.values) for one in controls)
    if error == inf:
        return f"{mean:+.3f}" if own.unit == "distance" else f"{100 * mean:+.1f} points on one image"
    if own.unit == "distance":
        return f"{mean:+.3f} ± {error:.3f}"
    return f"{100 * mean:+.1f} ± {100 * error:.1f} points"

"""All that a report shows about one model on one data set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures.doubts import Doubts, doubts
from ukemi.measures.examples import Broken, Sweep, Terrain, broken_images, drawn, sweeps, terrains
from ukemi.measures.robustness import Robustness
from ukemi.measures.sensitivity import GeneFailures, failure_by_gene
from ukemi.models.inference import home_of
from ukemi.reports.attacks import AttackResult
from ukemi.reports.transfer import Transfer

MOST_SWEEPS = 3
"""of the images that landscapes are shown of, so many are shown over each of their genes"""


@dataclass(frozen=True)
class Evaluation:
    """What was found about a model, with the pictures that show it."""

    title: str
    """names this evaluation among others"""
    model: str
    data: str
    classes: tuple[str, ...]
    labels: Tensor
    """int64 `[N]`, in the order of `robustness`"""
    robustness: Robustness
    failures: tuple[GeneFailures, ...] = ()
    landscapes: tuple[Terrain, ...] = ()
    gallery: tuple[Broken, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    doubts: Doubts | None = None
    """how sure it is where it is right and where it breaks, where that can be asked"""
    log: tuple[Mapping[str, Any], ...] = ()
    """the epochs' lines of the training log; empty where it is not known"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    """how long measuring the variants took, where it is known"""
    device: str = "cpu"
    attacks: tuple[AttackResult, ...] = ()
    """white-box, where any was run"""
    transfer: tuple[Transfer, ...] = ()
    """saved adversarial sets, where any was measured"""
    limits: Mapping[str, float] = field(default_factory=dict)
    """what a release has to reach, by the names of `--fail-under`"""

    def all_seconds(self) -> float | None:
        """How long measuring took, attacks included."""
        attacks = (*self.attacks, *(one.white_box for one in self.transfer))
        return None if self.seconds is None else self.seconds + sum(one.seconds for one in attacks)


def examine(
    model: nn.Module,
    data: Data,
    found: Robustness,
    *,
    title: str,
    model_name: str,
    data_name: str,
    log: Sequence[Mapping[str, Any]] = (),
    settings: Mapping[str, Any] | None = None,
    gallery: int = 12,
    landscapes: int = 4,
    images: int = 300,
    seed: int = 0,
    seconds: float | None = None,
) -> Evaluation:
    """Adds to the robustness `found` on `data` what shows where and how the model breaks.

    The gallery shows broken images, landscapes and sweeps show recognised ones, spread over the classes and drawn by
    `seed`; failure rates per gene are taken over `images` recognised images, doubts over as many and as many broken
    variants. `seconds` is what measuring `found` took.
    """
    if len(found.correct) != len(data):
        raise UserError(f"found: it tells of {len(found.correct)} images, but the data has {len(data)}.")
    broken = drawn(data, found.correct & ~found.robust, gallery, seed)
    known = drawn(data, found.correct, landscapes, seed)
    return Evaluation(
        title=title,
        model=model_name,
        data=data_name,
        classes=data.classes,
        labels=data.labels.cpu(),
        robustness=found,
        failures=tuple(failure_by_gene(model, data, found.space, images=images, seed=seed)),
        landscapes=terrains(model, data, found.space, known),
        gallery=broken_images(model, data, found, broken),
        sweeps=sweeps(model, data, found.space, known[:MOST_SWEEPS]),
        doubts=doubts(model, data, found, images=images, seed=seed),
        log=tuple(log),
        settings=dict(settings or {}),
        seconds=seconds,
        device=str(home_of(model)),
    )

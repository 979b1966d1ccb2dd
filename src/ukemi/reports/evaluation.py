"""All that a report shows about one model on one data set."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ukemi import randomness
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures.robustness import Robustness
from ukemi.measures.sensitivity import (
    GeneFailures,
    Landscape,
    failure_by_gene,
    landscape,
    worst_variants,
)
from ukemi.models.inference import home_of
from ukemi.randomness import Stream
from ukemi.reports.attacks import AttackResult
from ukemi.reports.transfer import Transfer


@dataclass(frozen=True)
class Broken:
    """An image that is recognised unchanged, beside its variant that the model gets most wrong."""

    index: int
    """the sample's identity"""
    image: Tensor
    """`[C, H, W]`, in [0, 1]"""
    variant: Tensor
    label: int
    guess: int
    genes: tuple[float, ...]
    loss: float


@dataclass(frozen=True)
class Terrain:
    """An image that is recognised unchanged, and the loss around it."""

    index: int
    image: Tensor
    label: int
    landscape: Landscape


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
    log: tuple[Mapping[str, Any], ...] = ()
    """the epochs' lines of the training log; empty where it is not known"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    """how long measuring took, where it is known"""
    device: str = "cpu"
    attacks: tuple[AttackResult, ...] = ()
    """white-box, where any was run"""
    transfer: tuple[Transfer, ...] = ()
    """saved adversarial sets, where any was measured"""


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

    The gallery shows broken images and the landscapes recognised ones, spread over the classes and drawn by `seed`;
    failure rates per gene are taken over `images` recognised images. `seconds` is how long measuring `found` took.
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
        landscapes=_terrains(model, data, found, known),
        gallery=_worst(model, data, found, broken),
        log=tuple(log),
        settings=dict(settings or {}),
        seconds=seconds,
        device=str(home_of(model)),
    )


def drawn(data: Data, which: Tensor, count: int, seed: int) -> Tensor:
    """Positions of at most `count` samples of `which`, drawn by their identities, spread over classes, by class."""
    key = randomness.bits(data.index.cpu(), seed=seed, stream=Stream.SUBSET)
    order = key.argsort(stable=True)
    those = order[which[order]].tolist()
    labels = data.labels.tolist()
    seen: Counter[int] = Counter()
    turn = {}
    for at in those:
        turn[at] = seen[labels[at]]
        seen[labels[at]] += 1
    # the first of every class, then the second of every class; sorting is stable, so each turn keeps the drawn order
    chosen = sorted(those, key=lambda at: turn[at])[:count]
    return torch.tensor(sorted(chosen, key=lambda at: labels[at]), dtype=torch.long)


def _terrains(model: nn.Module, data: Data, found: Robustness, positions: Tensor) -> tuple[Terrain, ...]:
    batch = data.batch(positions, home_of(model))
    rows = zip(batch.index.tolist(), batch.images, batch.labels.tolist(), strict=True)
    return tuple(
        Terrain(index, image.cpu(), label, landscape(model, image, label, found.space)) for index, image, label in rows
    )


def _worst(model: nn.Module, data: Data, found: Robustness, positions: Tensor) -> tuple[Broken, ...]:
    if not len(positions):
        return ()
    batch = data.batch(positions, home_of(model))
    worst = worst_variants(model, batch.images, batch.labels, found.grid, found.space)
    return tuple(
        Broken(
            index=int(batch.index[at]),
            image=batch.images[at].cpu(),
            variant=worst.variants[at],
            label=int(batch.labels[at]),
            guess=int(worst.guesses[at]),
            genes=tuple(worst.genes[at].tolist()),
            loss=float(worst.losses[at]),
        )
        for at in range(len(positions))
    )

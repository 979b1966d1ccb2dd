"""What a model does not know, source by source: benign, varied, attacked, fuzzed (the study of section 2.2).

Adversarial examples are images turned from right to wrong; benign examples are the whole test part. Thresholds come
from validation data, never from the images that are profiled.
"""

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.attacks import ATTACKS
from ukemi.attacks.base import Attacked
from ukemi.attacks.config import Attack, AttackConfig
from ukemi.data import Data, in_a_row, shared
from ukemi.errors import UserError, field_called
from ukemi.measures.attacks import Report, under_attack
from ukemi.models.inference import home_of
from ukemi.ranks import Ranks
from ukemi.schema import chosen
from ukemi.spaces import T3, Space
from ukemi.uncertainty import (
    Reliability,
    Shares,
    Source,
    Thresholds,
    Uncertainty,
    aurocs,
    found_thresholds,
    reliability,
    shares_of,
    uncertainty_of,
)
from ukemi.uncertainty.metrics import Against, Confidence, joined
from ukemi.variations import vary

BENIGN = "benign"
"""the source that the others are compared with"""
FASTER: dict[str, dict[str, Any]] = {"carlini-wagner": {"steps": 200, "searches": 5}}
"""settings of attacks that would otherwise take longer than everything else"""
_BLOCK = 1024


def attack_of(name: str, epsilon: float) -> AttackConfig:
    """An attack by its name, with the budget where it takes one, and fast enough for a study."""
    settings = dict[str, Any](FASTER.get(name, {}))
    if "epsilon" in inspect.signature(chosen(name, ATTACKS, "attacks")).parameters:
        settings["epsilon"] = epsilon
    with field_called("attacks", "attack"):
        return AttackConfig(attack=name, **settings)


@dataclass(frozen=True)
class Profiled:
    """One source of images."""

    name: str
    data: Data
    metrics: Uncertainty

    @property
    def right(self) -> Tensor:
        """bool `[N]`: the certain answer is the label."""
        return self.metrics.prediction == self.data.labels.cpu()

    @property
    def accuracy(self) -> float:
        return float(self.right.double().mean()) if len(self.data) else float("nan")


@dataclass(frozen=True)
class Profile:
    """All sources under one pair of thresholds."""

    thresholds: Thresholds
    sources: tuple[Profiled, ...]
    empty: tuple[str, ...] = ()
    """sources without any image: attacks that turned nothing"""

    @property
    def benign(self) -> Profiled:
        return next(one for one in self.sources if one.name == BENIGN)

    def shares(self) -> dict[str, Shares]:
        """The pattern table: a row per source."""
        return {one.name: shares_of(one.metrics, self.thresholds) for one in self.sources}

    def aurocs(self) -> dict[str, dict[str, float]]:
        """How well PCS, VR, PE and MI tell each source from the benign images."""
        benign = self.benign.metrics
        return {one.name: aurocs(benign, one.metrics) for one in self.sources if one.name != BENIGN}

    def reliability(self) -> Reliability:
        """Of the benign images."""
        return reliability(self.benign.metrics.confidence, self.benign.right)


def profile(
    source: Source,
    groups: Mapping[str, Data],
    thresholds: Thresholds,
    *,
    confidence: Confidence = "margin",
    against: Against = "prediction",
    turned: Collection[str] = (),
    report: Report | None = None,
    ranks: Ranks | None = None,
) -> Profile:
    """The metrics of every image of every group; one of them is `benign`. A group without images is only named
    (`empty`). Of the groups that are `turned`, from right to wrong, only what the certain answer still has wrong
    counts. Each rank asks about its share of every group."""
    if BENIGN not in groups or not len(groups[BENIGN]):
        raise UserError(f"groups: one is needed that is called {BENIGN!r} and has images.")
    total, found, before = sum(map(len, groups.values())), [], 0
    for name, data in groups.items():
        if len(data):

            def told(done: int, of: int, before: int = before) -> None:
                if report is not None:
                    report(before + done, total)

            with field_called(f"model on {name}", "model"):  # a fuzzer may have found what has no answer
                metrics = uncertainty_of(source, data, confidence=confidence, against=against, report=told, ranks=ranks)
            data, metrics = _still_wrong(data, metrics) if name in turned else (data, metrics)
            found += [Profiled(name, data, metrics)] * bool(len(data))
        before += len(groups[name])
    kept = {one.name for one in found}
    return Profile(thresholds, tuple(found), tuple(name for name in groups if name not in kept))


def _still_wrong(data: Data, metrics: Uncertainty) -> tuple[Data, Uncertainty]:
    """An input at the very border may be right again where it is asked about beside others: a GPU rounds by the shape
    of the batch."""
    rows = (metrics.prediction != data.labels.cpu()).nonzero().flatten()
    return (data, metrics) if len(rows) == len(data) else (data.take(rows.to(data.labels.device)), metrics.take(rows))


def validation_thresholds(
    source: Source,
    benign: Data,
    attacked: Sequence[Data],
    *,
    confidence: Confidence = "margin",
    against: Against = "prediction",
    ranks: Ranks | None = None,
) -> Thresholds:
    """The limits that part benign from attacked validation images best, PCS and VR each by itself (Youden's J)."""
    kinds = {"confidence": confidence, "against": against, "ranks": ranks}
    turned = [_still_wrong(data, uncertainty_of(source, data, **kinds))[1] for data in attacked if len(data)]  # type: ignore[arg-type]
    if not any(map(len, turned)):
        raise UserError("attacks: none of them turned a validation image, so there is nothing to find thresholds by.")
    return found_thresholds(uncertainty_of(source, benign, **kinds), joined(turned))  # type: ignore[arg-type]


def turned_by(
    model: nn.Module, data: Data, attack: Attack, report: Report | None = None, ranks: Ranks | None = None
) -> Data:
    """The images of `data` that the model recognises and the attack turns, as labelled images with their identities.
    Each rank attacks its share, and all have the whole."""
    return shared(data, ranks, lambda part: _turned_by(model, part, attack, report), in_a_row)


def _turned_by(model: nn.Module, data: Data, attack: Attack, report: Report | None) -> Data:
    kept: list[tuple[Tensor, Tensor, Tensor]] = []

    def noting(model: nn.Module, images: Tensor, labels: Tensor, *, index: Tensor) -> Attacked:
        found = attack(model, images, labels, index=index)
        kept.append((found.images[found.success].cpu(), labels[found.success].cpu(), index[found.success].cpu()))
        return found

    under_attack(model, data, noting, report=report)
    none = torch.empty(0, dtype=torch.int64)
    parts = kept or [(torch.empty(0, data.channels, *data.size), none, none)]
    images, labels, index = (torch.cat(column) for column in zip(*parts, strict=True))
    return Data(images, labels, data.classes, index, data.identities)


def natural_variants(model: nn.Module, data: Data, space: Space = T3, *, seed: int = 0) -> Data:
    """One random variant of every image, labels kept."""
    device, parts = home_of(model), []
    for batch in data.batches(torch.arange(len(data)).split(_BLOCK), device):
        genes = space.sample(batch.index, seed=seed)[:, 0]
        parts.append(vary(batch.images, genes, space).cpu())
    return Data(torch.cat(parts), data.labels.cpu(), data.classes, data.index.cpu(), data.identities)

"""Do they slip through? How many inputs of every source and pattern get past every defence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ukemi.data import Data
from ukemi.defences.base import Defence, Detector, passes
from ukemi.errors import UserError
from ukemi.measures.uncertainty import BENIGN, Profile
from ukemi.models.inference import FEW, default_chunk, home_of, logits, right
from ukemi.uncertainty import PATTERNS, patterns_of

COMMON = "LH"
"""the pattern that attacked inputs mostly have; misclassified inputs of the others are uncommon"""
_BLOCK = 1024
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Judged:
    """One defence."""

    name: str
    kind: str
    """hardening or detector"""
    accuracy: float
    """of the benign images: right, and for a detector also not flagged"""
    false_positives: float
    """the share of recognised benign images that it gets wrong, or flags"""
    passed: dict[str, Tensor]
    """source -> bool `[N]`: misclassified by the bare model, and past the defence"""


@dataclass(frozen=True)
class Study:
    """All defences on all sources but the benign one."""

    profile: Profile
    judged: tuple[Judged, ...]

    def fooling(self) -> dict[str, Tensor]:
        """Source -> bool `[N]`: misclassified without any defence; only these can pass one."""
        return {one.name: ~one.right for one in self.profile.sources if one.name != BENIGN}

    def share(self, judged: Judged, *sources: str) -> float:
        """The share of these sources' fooling inputs that pass (of all where none is named); NaN without any."""
        fooling = self.fooling()
        names = sources or tuple(fooling)
        return _share(_cat(judged.passed[name] for name in names), _cat(fooling[name] for name in names))

    def patterns(self) -> Tensor:
        """The pattern's number of every input of every source, int64 `[all]`."""
        limits = self.profile.thresholds
        own = [one.metrics for one in self.profile.sources if one.name != BENIGN]
        none = [torch.empty(0, dtype=torch.int64)]
        return torch.cat(none + [patterns_of(found.pcs, found.vr, limits).cpu() for found in own])

    def by_pattern(self, judged: Judged) -> dict[str, float]:
        """The share of each pattern's fooling inputs, of all sources, that pass."""
        numbers, fooling, passed = self._pooled(judged)
        return {name: _share(passed, fooling & (numbers == at)) for at, name in enumerate(PATTERNS)}

    def counts(self) -> dict[str, int]:
        """How many fooling inputs have each pattern."""
        numbers, fooling = self.patterns(), _cat(self.fooling().values())
        return {name: int((fooling & (numbers == at)).sum()) for at, name in enumerate(PATTERNS)}

    def ratio(self, judged: Judged) -> float:
        """The share of fooling inputs of uncommon patterns that pass, over that of the common pattern: above 1 the
        uncommon ones reveal more. NaN where no input of one kind fools, infinite where no common one passes."""
        common, uncommon = self.halves(judged)
        return uncommon / common if common else (float("inf") if uncommon > 0 else float("nan"))

    def halves(self, judged: Judged) -> tuple[float, float]:
        """The share of fooling inputs that pass: of the common pattern, and of the uncommon ones together."""
        numbers, fooling, passed = self._pooled(judged)
        common = numbers == PATTERNS.index(COMMON)
        return _share(passed, fooling & common), _share(passed, fooling & (numbers >= 0) & ~common)

    def _pooled(self, judged: Judged) -> tuple[Tensor, Tensor, Tensor]:
        fooling = self.fooling()
        return self.patterns(), _cat(fooling.values()), _cat(judged.passed[name] for name in fooling)


def study(profile: Profile, defences: Mapping[str, Callable[[], Defence]], report: Report | None = None) -> Study:
    """Judges defences, each made when its turn comes, on the sources of a profile."""
    if not defences:
        raise UserError("defences: at least one is needed.")
    judged: list[Judged] = []
    for name, make in defences.items():
        judged.append(_judged(name, make(), profile))
        if report is not None:
            report(len(judged), len(defences))
    return Study(profile, tuple(judged))


def _judged(name: str, defence: Defence, profile: Profile) -> Judged:
    benign = profile.benign
    known = benign.right
    held = _each(benign.data, defence, _held)
    passed = {one.name: ~one.right & _each(one.data, defence, passes) for one in profile.sources if one.name != BENIGN}
    return Judged(
        name=name,
        kind="detector" if isinstance(defence, Detector) else "hardening",
        accuracy=float(held.double().mean()),
        false_positives=_share(~held, known),
        passed=passed,
    )


def _held(defence: Defence, images: Tensor, labels: Tensor) -> Tensor:
    """Right, and not flagged."""
    model = defence.model if isinstance(defence, Detector) else defence
    fine = right(logits(model, images, default_chunk(tuple(images.shape[1:]), images.device, FEW)), labels)
    return fine & ~defence.flags(images) if isinstance(defence, Detector) else fine


def _each(data: Data, defence: Defence, ask: Callable[[Defence, Tensor, Tensor], Tensor]) -> Tensor:
    device = home_of(defence.model if isinstance(defence, Detector) else defence)
    order: Sequence[Tensor] = torch.arange(len(data)).split(_BLOCK) if len(data) else []
    parts = [ask(defence, batch.images, batch.labels).cpu() for batch in data.batches(order, device)]
    return torch.cat([torch.empty(0, dtype=torch.bool), *parts])


def _share(hits: Tensor, among: Tensor) -> float:
    count = int(among.sum())
    return int((hits & among).sum()) / count if count else float("nan")


def _cat(parts: object) -> Tensor:
    return torch.cat([torch.empty(0, dtype=torch.bool), *parts])  # type: ignore[misc]

"""Adversarial sets: what an attack found, kept in one sealed file with all that is needed to judge it later."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from ukemi import randomness
from ukemi.attacks.base import Attacked, Norm
from ukemi.attacks.config import Attack, AttackConfig
from ukemi.attacks.norms import length
from ukemi.data import Data, as_float
from ukemi.errors import UserError, field_called
from ukemi.randomness import Stream
from ukemi.training.checkpoints import read_checkpoint, write_checkpoint
from ukemi.training.setup import in_classes
from ukemi.uncertainty import METRICS, Fuzzed, Generated, Uncertainty

KIND = "adversarial set"
SCHEMA = 1
"""Version of the fields: raised when one changes its meaning or goes."""
NO_ATTACK = {"generate": "ukemi generate", "fuzz": "ukemi.uncertainty.fuzzing"}
"""What else makes sets, under the name that stands in for an attack's."""
_TENSORS = ("images", "labels", "index", "success", "distance")
_LATER = ("extras", "notes")
"""fields that older files lack"""
_EXTRA = "extra."
_BLOCK = 1024


@dataclass(frozen=True)
class AdversarialSet:
    """The images that an attack made of those that a model recognises, N of them; tensors on the CPU."""

    images: Tensor
    """float32 `[N, C, H, W]` in [0, 1]; also of images that the model withstood"""
    labels: Tensor
    """int64 `[N]`"""
    index: Tensor
    """int64 `[N]`: the identities of the images in their data"""
    success: Tensor
    """bool `[N]`: the origin model is fooled; in a set of `ukemi generate`: pattern and goal are reached"""
    distance: Tensor
    """`[N]` from the unchanged image, in `norm`"""
    attack: str
    """the attack's name"""
    settings: dict[str, Any] = field(default_factory=dict)
    """what was set of its settings"""
    norm: Norm = "linf"
    seed: int = 0
    """of the attack's random starts"""
    data: str = "data"
    split: str = "test"
    classes: tuple[str, ...] = ()
    identities: int = 0
    """how many samples the whole data set has"""
    model: str = ""
    """SHA-256 of the origin model's weights (`weights_hash`)"""
    extras: dict[str, Tensor] = field(default_factory=dict)
    """more about every image, each `[N, …]`: pcs, vr, pe, mi"""
    notes: dict[str, Any] = field(default_factory=dict)
    """more about the set, as JSON knows it: success rate, thresholds"""

    def __len__(self) -> int:
        return len(self.labels)

    def config(self) -> AttackConfig:
        """The attack that made it."""
        if self.attack in NO_ATTACK:
            raise UserError(
                f"adversarial-set: it was made by {NO_ATTACK[self.attack]}, not by an attack that could be run again."
            )
        return AttackConfig(attack=self.attack, **self.settings)


class Recorder:
    """An attack that keeps what it finds: hand it to a measure, then ask for the `set`."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._parts: list[tuple[Tensor, ...]] = []
        self._norm: Norm = "linf"

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, *, index: Tensor) -> Attacked:
        found = self._attack(model, images, labels, index=index)
        # taken here, not as the attack says: a set is checked by it
        distance = length(found.images - images, found.norm)
        self._parts.append(tuple(kept.cpu() for kept in (found.images, labels, index, found.success, distance)))
        self._norm = found.norm
        return found

    def set(
        self, model: nn.Module, source: Data, config: AttackConfig, *, data: str, split: str, seed: int = 0
    ) -> AdversarialSet:
        """What was found so far for images of `source`, which is the part `split` of the data named `data`."""
        whole = torch.empty(0, dtype=torch.int64)
        nothing = (torch.empty(0, source.channels, *source.size), whole, whole, whole.bool(), torch.empty(0))
        images, labels, index, success, distance = map(torch.cat, zip(*(self._parts or [nothing]), strict=True))
        return AdversarialSet(
            images=images,
            labels=labels,
            index=index,
            success=success,
            distance=distance,
            attack=config.name(),
            settings=config.settings(),
            norm=self._norm,
            seed=seed,
            data=data,
            split=split,
            classes=source.classes,
            identities=source.identities,
            model=weights_hash(model),
        )


def generated_set(
    model: nn.Module,
    seeds: Data,
    found: Generated,
    notes: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    data: str,
    split: str,
    seed: int = 0,
) -> AdversarialSet:
    """What a search for a pattern made of `seeds`, with its metrics; `success` is that pattern and goal are reached."""
    return AdversarialSet(
        images=found.images,
        labels=found.labels,
        index=found.index,
        success=found.success,
        distance=found.distance,
        attack="generate",
        settings=dict(settings),
        seed=seed,
        data=data,
        split=split,
        classes=seeds.classes,
        identities=seeds.identities,
        model=weights_hash(model),
        extras=_metrics(found.metrics) | {"fitness": found.fitness, "generations": found.generations},
        notes=dict(notes),
    )


def fuzzed_set(
    model: nn.Module,
    source: Data,
    found: Fuzzed,
    metrics: Uncertainty | None = None,
    *,
    data: str,
    split: str,
    seed: int = 0,
) -> AdversarialSet:
    """All that a fuzzer kept of `source`; `success` is that the model is fooled, the others are new and recognised."""
    return AdversarialSet(
        images=found.images,
        labels=found.labels,
        index=found.index,
        success=found.turned,
        distance=found.distance,
        attack="fuzz",
        seed=seed,
        data=data,
        split=split,
        classes=source.classes,
        identities=source.identities,
        model=weights_hash(model),
        extras={"genes": found.genes} | ({} if metrics is None else _metrics(metrics)),
        notes={"coverage": list(found.coverage), "evaluations": found.evaluations},
    )


def in_one(parts: list[AdversarialSet]) -> AdversarialSet:
    """What several ranks made of their shares of one data set, in a row."""
    told = next((part for part in parts if len(part)), parts[0])  # only an attack says its norm
    columns: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in _TENSORS}
    extras = {name: torch.cat([part.extras[name] for part in parts]) for name in told.extras}
    return replace(told, extras=extras, **columns)


def _metrics(found: Uncertainty) -> dict[str, Tensor]:
    return {name: getattr(found, name) for name in ("prediction", *METRICS)}


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over the names, types, shapes and values of a model's state dictionary, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous()
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_set(path: Path, found: AdversarialSet) -> None:
    """Writes the file whole or not at all."""
    apart = (*_TENSORS, "extras")
    values = {each.name: getattr(found, each.name) for each in fields(found) if each.name not in apart}
    values |= {"kind": KIND, "set_schema": SCHEMA, "classes": list(found.classes)}
    extras = {_EXTRA + name: tensor for name, tensor in found.extras.items()}
    write_checkpoint(path, {name: getattr(found, name) for name in _TENSORS} | extras, values)


def read_set(path: Path) -> AdversarialSet:
    """Reads and verifies; a damaged file, or one that is no adversarial set, is refused in one sentence."""
    with field_called("adversarial-set", "checkpoint"):
        read = read_checkpoint(path)
    values = dict(read.values)
    if values.pop("kind", None) != KIND:
        raise UserError(f"adversarial-set: {path} is no adversarial set; `ukemi attack` writes one.")
    if values.pop("set_schema", SCHEMA) > SCHEMA:
        raise UserError(f"adversarial-set: {path} was written by a newer ukemi; this one reads schemas up to {SCHEMA}.")
    return _made(path, read.tensors, values)


def _made(path: Path, tensors: Mapping[str, Tensor], values: dict[str, Any]) -> AdversarialSet:
    """A sealed file may still have been sealed by another program: what is missing is named."""
    wanted = {each.name for each in fields(AdversarialSet) if each.name not in _LATER}
    for name in sorted(wanted - tensors.keys() - values.keys()):
        raise UserError(f"adversarial-set: {path} has no {name}.")
    given = {name: tensors[name] for name in _TENSORS} | {name: values[name] for name in wanted - set(_TENSORS)}
    extras = {name.removeprefix(_EXTRA): tensor for name, tensor in tensors.items() if name.startswith(_EXTRA)}
    later = {"extras": extras, "notes": values.get("notes", {}), "classes": tuple(values["classes"])}
    found = AdversarialSet(**given | later)
    counts = {len(tensor) for tensor in (*(getattr(found, name) for name in _TENSORS), *extras.values())}
    if len(counts) > 1 or found.images.ndim != 4 or found.norm not in get_args(Norm):
        raise UserError(f"adversarial-set: {path} doesn't hold together (its tensors tell of {sorted(counts)} images).")
    return found


def some_inputs(made: Data, count: int, seed: int) -> Data:
    """At most `count` inputs, the same for a seed. There may be several of one image, so the choice goes by identity
    and place."""
    places = torch.arange(len(made))
    rank = randomness.bits(made.index.cpu() * 1_000_003 + places, seed=seed, stream=Stream.SUBSET)
    return made.take(rank.argsort(stable=True)[:count].sort().values)


def as_data(found: AdversarialSet, *, fooling: bool = True) -> Data:
    """The set as labelled images, with their identities: those that succeeded, which mostly is to fool the origin
    model, or all."""
    rows = found.success.nonzero().flatten() if fooling else torch.arange(len(found))
    if not len(rows):
        aim = "reached its pattern and goal" if found.attack == "generate" else "fools its model"
        raise UserError("adversarial-set: there is no image in it" + (f" that {aim}." if fooling else "."))
    return Data(found.images[rows], found.labels[rows], found.classes, found.index[rows], found.identities)


def originals(found: Data, data: Data) -> Data:
    """The unchanged images of an adversarial set's data, in the same order; an identity that `data` lacks is named."""
    order = data.index.cpu().argsort(stable=True)
    place = torch.searchsorted(data.index.cpu()[order], found.index.cpu()).clamp(max=len(data) - 1)
    positions = order[place]
    missing = (data.index.cpu()[positions] != found.index.cpu()).nonzero().flatten()
    if len(missing):
        raise _other(f"they have no image {int(found.index[missing[0]])}")
    return data.take(positions.to(data.index.device))


def check_set(found: AdversarialSet, data: Data | None = None, model: nn.Module | None = None) -> None:
    """Refuses, in one sentence, a set that was made for another model or from other data than these."""
    if model is not None and (here := weights_hash(model)) != found.model:
        raise UserError(
            f"adversarial-set: it was made for another model (weights {found.model[:12]}…, here {here[:12]}…)."
        )
    if data is not None and len(found):
        _check_data(found, data)


def _check_data(found: AdversarialSet, data: Data) -> None:
    """Classes, sizes, labels, and the pixels: how far each adversarial image is from its original is known."""
    for name in found.classes:
        if name not in data.classes:
            raise _other(f"class {name!r} is not among theirs")
    shape = (data.channels, *data.size)
    if tuple(found.images.shape[1:]) != shape:
        raise _other(f"their images are {list(shape)}, those of the set {list(found.images.shape[1:])}")
    made = in_classes(as_data(found, fooling=False), data.classes)
    own = originals(made, data)
    labels = own.labels.cpu()
    wrong = (labels != made.labels).nonzero().flatten()
    if len(wrong):
        at = int(wrong[0])
        was, now = data.classes[int(made.labels[at])], data.classes[int(labels[at])]
        raise _other(f"image {int(found.index[at])} was {was!r} and is {now!r} here")
    for rows in torch.arange(len(made)).split(_BLOCK):
        unchanged = as_float(own.images[rows.to(own.labels.device)].cpu())
        far = length(found.images[rows] - unchanged, found.norm)
        off = ((far - found.distance[rows]).abs() > 1e-3 * found.distance[rows] + 1e-4).nonzero().flatten()
        if len(off):
            raise _other(f"image {int(found.index[rows[off[0]]])} has other pixels here")


def check_once(field: str, paths: Sequence[Path]) -> None:
    """Refuses a file that is given twice, however it is written: its images would count double."""
    for path in paths:
        if [each.resolve() for each in paths].count(path.resolve()) > 1:
            raise UserError(f"{field}: {path} is given twice.")


def read_set_for(
    field: str, path: Path, model: nn.Module | None = None, data: Data | None = None
) -> tuple[AdversarialSet, Data]:
    """A set that `field` names and what succeeded in it; refused where nothing did, or where it was made for another
    model or from other data than these."""
    with field_called(field, "adversarial-set"):
        found = read_set(path)
    with field_called(f"{field}: {path}", "adversarial-set"):
        check_set(found, data, model)
        return found, as_data(found)


def _other(why: str) -> UserError:
    return UserError(f"adversarial-set: it was made from other data than these ({why}).")

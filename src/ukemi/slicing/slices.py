"""Slices: which synapses and neurons matter to which class, and the file that keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.errors import UserError, field_called
from ukemi.training.checkpoints import read_checkpoint, write_checkpoint
from ukemi.training.sets import weights_hash

KIND = "slices"
SCHEMA = 1
"""Version of the fields: raised when one changes its meaning or goes."""
_TENSORS = ("synapses", "neurons", "contributions")
_BLOCK = 2**20


@dataclass(frozen=True)
class Slices:
    """One slice per class. A synapse of a Linear is a weight, one of a Conv2d a whole kernel: an (out, in) pair of
    channels. A neuron is a unit of a Linear or a channel of a Conv2d."""

    classes: tuple[str, ...]
    synapses: dict[str, Tensor]
    """parameter (`features.0.weight`) -> bool `[classes, out, in / groups]`: what each class keeps"""
    neurons: dict[str, Tensor]
    """layer (`features.0`) -> bool `[classes, out]`: neurons at either end of a kept synapse (DARE, section 3.1.1),
    through activations, pools, additions and whatever else lies between two layers"""
    contributions: dict[str, Tensor] = field(default_factory=dict)
    """parameter -> `[classes, out, in / groups]`: what was ranked; empty where a file was written without"""
    reading: str = "paper"
    q: float = 95.0
    theta: float = 0.2
    model_hash: str = ""
    """SHA-256 of the model's weights (`training.sets.weights_hash`)"""

    def mask(self, name: str, klass: int, like: Tensor) -> Tensor:
        """Which weights of the parameter `name` the class keeps, bool in the shape and on the device of `like`;
        `klass` counts in `classes`."""
        if name not in self.synapses:
            raise UserError(f"slices: {name!r} is not among the sliced weights; there are {', '.join(self.synapses)}.")
        kept_OI = self.synapses[name][klass].to(like.device)
        if like.shape[:2] != kept_OI.shape:
            raise UserError(f"slices: {name!r} is {list(like.shape)}, but its slice {list(kept_OI.shape)}.")
        return kept_OI.reshape(*kept_OI.shape, *[1] * (like.ndim - 2)).expand(like.shape)

    def shares(self) -> dict[str, Tensor]:
        """Parameter -> the share of its synapses that each class keeps, `[classes]`."""
        return {name: kept_KOI.double().mean((1, 2)) for name, kept_KOI in self.synapses.items()}

    def overlap(self) -> Tensor:
        """How alike the classes' slices are, `[classes, classes]`: the synapses that both keep as a share of those that
        one of them keeps (Jaccard), over all layers."""
        both_KK = torch.zeros(len(self.classes), len(self.classes), dtype=torch.float64)
        for kept_KOI in self.synapses.values():
            for kept_KS in kept_KOI.flatten(1).split(_BLOCK, 1):
                wide_KS = kept_KS.float()  # counts up to 2^20 are exact
                both_KK += (wide_KS @ wide_KS.T).cpu()
        own_K = both_KK.diagonal()
        return both_KK / (own_K + own_K[:, None] - both_KK).clamp(min=1)

    def to(self, device: torch.device | str) -> "Slices":
        """The same with its tensors on `device`."""

        def moved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: one.to(device) for name, one in tensors.items()}

        parts = moved(self.synapses), moved(self.neurons), moved(self.contributions)
        return replace(self, synapses=parts[0], neurons=parts[1], contributions=parts[2])


def check_slices(slices: Slices, model: nn.Module) -> None:
    """Refuses, in one sentence, slices that were made for another model."""
    here = weights_hash(model)
    if here != slices.model_hash:
        raise UserError(
            f"slices: they were made for another model (weights {slices.model_hash[:12]}…, here {here[:12]}…)."
        )


def write_slices(path: Path, slices: Slices, *, contributions: bool = True) -> None:
    """Writes the file whole or not at all; without `contributions` it is a fifth as large."""
    parts = _TENSORS if contributions else _TENSORS[:2]
    tensors = {f"{part}.{name}": one for part in parts for name, one in getattr(slices, part).items()}
    values = {each.name: getattr(slices, each.name) for each in fields(slices) if each.name not in _TENSORS}
    values |= {"kind": KIND, "slices_schema": SCHEMA, "classes": list(slices.classes)}
    values["layers"] = list(slices.neurons)  # safetensors sorts names, but layers have the order of execution
    write_checkpoint(path, tensors, values)


def read_slices(path: Path, model: nn.Module | None = None) -> Slices:
    """Reads and verifies, onto the CPU; a damaged file, one that holds no slices, or (where `model` is given) those of
    another model is refused in one sentence."""
    with field_called("slices", "checkpoint"):
        read = read_checkpoint(path)
    values = dict(read.values)
    if values.pop("kind", None) != KIND:
        raise UserError(f"slices: {path} holds no slices; `ukemi slice` writes them.")
    if values.pop("slices_schema", SCHEMA) > SCHEMA:
        raise UserError(f"slices: {path} was written by a newer ukemi; this one reads schemas up to {SCHEMA}.")
    found = _made(path, {part: read.part(part) for part in _TENSORS}, values)
    if model is not None:
        check_slices(found, model)
    return found


def _made(path: Path, tensors: Mapping[str, dict[str, Tensor]], values: dict[str, Any]) -> Slices:
    """A sealed file may still have been sealed by another program: what is missing is named."""
    wanted = [each.name for each in fields(Slices) if each.name not in _TENSORS]
    for name in (*wanted, "layers"):
        if name not in values:
            raise UserError(f"slices: {path} has no {name}.")
    layers, classes = values["layers"], tuple(values["classes"])
    weights = [f"{layer}.weight" for layer in layers]
    masks = [*tensors["synapses"].values(), *tensors["neurons"].values()]
    whole = bool(layers) and all(len(one) == len(classes) and one.dtype == torch.bool for one in masks)
    if not whole or {*weights} != {*tensors["synapses"]} or {*layers} != {*tensors["neurons"]}:
        raise UserError(f"slices: {path} doesn't hold together.")
    return Slices(
        **{name: values[name] for name in wanted} | {"classes": classes},
        synapses={name: tensors["synapses"][name] for name in weights},
        neurons={name: tensors["neurons"][name] for name in layers},
        contributions={name: tensors["contributions"][name] for name in weights if name in tensors["contributions"]},
    )

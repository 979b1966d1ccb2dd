"""Slices as a table, a page with heat maps, and JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup
from rich.table import Table
from rich.text import Text
from torch import Tensor

from ukemi.reports import maps, words
from ukemi.reports.terminal import captioned
from ukemi.reports.writing import ran, versions, write_html, write_numbers
from ukemi.slicing import Slices

SCHEMA = 1
"""Version of the summary's fields: raised when one changes its meaning or goes."""
COLUMNS = ("synapses", "kept, %", "by every class, %", "by none, %", "neurons", "key, %", "key to every class, %")


@dataclass(frozen=True)
class Layer:
    """What the classes keep of one layer; tensors are `[classes]`, on the CPU."""

    name: str
    synapses: int
    kept: Tensor
    """share of the synapses that each class keeps"""
    by_every: float
    """share that every class keeps"""
    by_none: float
    neurons: int
    key: Tensor
    """share of the neurons that are key for each class"""
    key_to_every: float


def slices_table(found: Slices) -> Table:
    """One row per layer, in 80 columns."""
    table = captioned(" ".join(slices_glance(found)))
    table.add_column("layer", overflow="fold")
    for name in ("synapses", "kept\n%", "by every\nclass, %", "by none\n%", "neurons", "key\n%", "key to\nevery, %"):
        table.add_column(name, justify="right", no_wrap=True)
    for layer in layers_of(found):
        table.add_row(Text(layer.name), *_cells(layer))
    return table


def slices_summary(found: Slices, **about: Any) -> dict[str, Any]:
    """All numbers as JSON knows them, behind whatever `about` says."""
    return {
        "schema": SCHEMA,
        **about,
        "reading": found.reading,
        "q": found.q,
        "theta": found.theta,
        "model_hash": found.model_hash,
        "classes": list(found.classes),
        "layers": {layer.name: _numbers(layer) for layer in layers_of(found)},
        "overlap": found.overlap().tolist(),
        "versions": versions(),
    }


def write_slices_report(
    folder: Path, found: Slices, *, title: str, settings: Mapping[str, Any], seconds: float, device: str
) -> None:
    """Writes slices.json and slices.html; `settings` are plain values that JSON knows."""
    about = {"title": title, "settings": dict(settings), "seconds": seconds, "device": device}
    write_numbers(folder / "slices.json", slices_summary(found, **about))
    layers = layers_of(found)
    write_html(
        folder / "slices.html",
        "slices.html",
        heading=f"What matters to which class: {title}",
        glance=slices_glance(found),
        columns=COLUMNS,
        rows=[(layer.name, _cells(layer)) for layer in layers],
        kept=_map(found, layers, [layer.kept for layer in layers], "Share of synapses kept"),
        key=_map(found, layers, [layer.key for layer in layers], "Share of neurons that are key"),
        overlap=_overlap(found),
        ramp=maps.ramp(),
        settings=ran(seconds, device, settings),
    )


def slices_glance(found: Slices) -> list[str]:
    """What was found, in sentences."""
    layers = layers_of(found)
    neurons = sum(layer.neurons for layer in layers)
    key = sum(float(layer.key.mean()) * layer.neurons for layer in layers)
    cut = f"At theta = {words.plain(found.theta)}" if found.reading == "nnslicer" else f"At q = {words.plain(found.q)}"
    stay = f"{cut} on average {key:,.1f} of {words.count(neurons)} neurons stay key for a class"
    nearly = ""
    if key >= 0.95 * neurons:
        nearly = f"; a loss over key neurons is then {'almost ' * (key < neurons)}one over all"
    said = [f"{stay} ({words.percent(key / neurons)}){nearly}."]
    synapses = sum(layer.synapses for layer in layers)
    none, every = (sum(getattr(layer, part) * layer.synapses for layer in layers) for part in ("by_none", "by_every"))
    said.append(
        f"Of {words.count(synapses)} synapses {words.percent(every / synapses)} are in every class's slice and"
        f" {words.percent(none / synapses)} in none."
    )
    if len(found.classes) > 1:
        both_KK = found.overlap()
        others = both_KK[~torch.eye(len(both_KK)).bool()]
        said.append(
            f"Two classes share {words.percent(float(others.mean()))} of what either keeps, on average; at least"
            f" {words.percent(float(others.min()))}, at most {words.percent(float(others.max()))}."
        )
    return said


def layers_of(found: Slices) -> list[Layer]:
    """The layers in the order of execution."""
    layers = []
    shares = found.shares()
    for name, key_KO in found.neurons.items():
        kept_KOI = found.synapses[f"{name}.weight"]
        layers.append(
            Layer(
                name,
                kept_KOI[0].numel(),
                shares[f"{name}.weight"].cpu(),
                float(kept_KOI.all(0).double().mean()),
                1 - float(kept_KOI.any(0).double().mean()),
                key_KO.shape[1],
                key_KO.double().mean(1).cpu(),
                float(key_KO.all(0).double().mean()),
            )
        )
    return layers


def _cells(layer: Layer) -> tuple[str, ...]:
    shares = (float(layer.kept.mean()), layer.by_every, layer.by_none)
    keys = (float(layer.key.mean()), layer.key_to_every)
    kept, key = ([f"{100 * share:.1f}" for share in part] for part in (shares, keys))
    return (words.count(layer.synapses), *kept, words.count(layer.neurons), *key)


def _numbers(layer: Layer) -> dict[str, Any]:
    plain = {name: value for name, value in vars(layer).items() if name not in ("name", "kept", "key")}
    return {**plain, "kept": layer.kept.tolist(), "key": layer.key.tolist()}


def _map(found: Slices, layers: list[Layer], shares: list[Tensor], title: str) -> dict[str, Any]:
    """A heat map of layers by classes; where classes don't differ one sentence says as much."""
    values_LK = torch.stack(shares)
    low, high = float(values_LK.min()), float(values_LK.max())
    if float((values_LK - values_LK[:, :1]).abs().max()) < 5e-4:
        alike = words.percent(low) + (f" to {words.percent(high)}" if high - low >= 5e-4 else "")
        return {"title": title, "svg": Markup(""), "low": "", "high": alike}
    svg = maps.cells(values_LK, [layer.name for layer in layers], found.classes, (low, high), title=title)
    return {"title": title, "svg": svg, "low": words.percent(low), "high": words.percent(high)}


def _overlap(found: Slices) -> dict[str, Any]:
    """A heat map of classes by classes; colours go from the least to the most alike pair."""
    both_KK = found.overlap()
    others = both_KK[~torch.eye(len(both_KK)).bool()]
    if len(others) < 2 or float(others.max() - others.min()) < 5e-4:
        same = float(others.min()) if len(others) else 1.0
        return {"title": "Overlap", "svg": Markup(""), "low": "", "high": words.percent(same)}
    ends = float(others.min()), float(others.max())
    svg = maps.cells(both_KK, found.classes, found.classes, ends, title="Overlap of classes")
    return {"title": "Overlap", "svg": svg, "low": words.percent(ends[0]), "high": f"{words.percent(ends[1])} or more"}

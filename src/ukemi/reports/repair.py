"""A repair as a page: what was tried and what it cost, where the network looks, and whether noise does the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.activations import grad_cam
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.models.inference import home_of, logits
from ukemi.repairs.compared import Column, Columns
from ukemi.reports import words
from ukemi.reports.gallery import name_of
from ukemi.reports.pictures import evidence, picture, side_for
from ukemi.reports.writing import flat, write_html

PAGE = "repair.html"
MOST_MAPS = 8


@dataclass(frozen=True)
class Compared:
    """A repaired model beside its null controls."""

    models: Mapping[str, Columns]
    """by name, in the order of the table"""
    said: Sequence[str]
    """in sentences, whether the repair beats the controls (`repairs.verdict`)"""


def write_repair(
    folder: Path, about: Mapping[str, Any], models: Sequence[nn.Module], data: Data, found: Compared | None = None
) -> Path:
    """Writes repair.html: `about` is what repair.json says, `models` are those before and after the repair, `data` are
    images to show heat maps of."""
    before, after = models
    write_html(
        folder / PAGE,
        "repair.html",
        heading=f"Repair of {Path(about['origin']).name}",
        glance=_glance(about, found),
        tiles=_tiles(about),
        maps=_maps(before, after, data),
        verdict=list(found.said[1:]) if found else [],
        columns=_titles(found),
        rows=_rows(found),
        trials=[_trial(one, about) for one in about["trials"]],
        settings=flat({name: about[name] for name in about if name not in ("trials", "seconds", "schema")}),
    )
    return folder / PAGE


def _glance(about: Mapping[str, Any], found: Compared | None) -> list[str]:
    change = 100 * (about["accuracy_after"] - about["accuracy_before"])
    moved = (
        "stayed as it was" if abs(change) < 0.05 else f"{'rose' if change > 0 else 'fell'} by {abs(change):.1f} points"
    )
    said = [
        f"{words.count(about['samples'])} images tuned {_reach(about)}; accuracy on"
        f" {words.count(about['selection_images'])} images that only select {moved}."
    ]
    if found:
        return [found.said[0], *said]
    return [*said, "Whether any other change of this size would do the same was not measured; --controls does."]


def _tiles(about: Mapping[str, Any]) -> list[dict[str, str]]:
    seconds = about["seconds"]
    tiles = [
        (
            "accuracy after",
            words.percent(about["accuracy_after"]),
            f"{words.percent(about['accuracy_before'])} before, on the selection images",
        ),
        (
            "images mined",
            words.count(about["mined"]),
            f"of {words.count(about['searched'])}: {_why_mined(about)}",
        ),
        (
            "key neurons",
            words.percent(about["key_neurons"]),
            f"of the target layer; {words.percent(about['key_synapses'])} of the synapses",
        ),
        (
            "time",
            words.duration(sum(seconds.values())),
            ", ".join(f"{name} {words.duration(value)}" for name, value in seconds.items()),
        ),
    ]
    return [{"name": name, "value": value, "note": note} for name, value, note in tiles]


def _reach(about: Mapping[str, Any]) -> str:
    last = about["target_layer"]
    return "every layer of the network" if _variant(about) == "dare-sl" else f"the network up to layer {last}"


def _why_mined(about: Mapping[str, Any]) -> str:
    return "each with a random epoch's targets" if _variant(about) == "rand" else "history knew them better"


def _variant(about: Mapping[str, Any]) -> str:
    return str(about["settings"]["variant"])


def _trial(trial: Mapping[str, Any], about: Mapping[str, Any]) -> tuple[str, list[str]]:
    kept = (trial["learning_rate"], trial["epoch"]) == (about["learning_rate"], about["epochs"])
    fate = "kept" if kept else "" if trial["allowed"] else "too much accuracy lost"
    if trial["score"] is None and not trial["allowed"]:
        fate = "not finite"
    numbers = [words.plain(trial[name]) if trial[name] is not None else "not finite" for name in ("loss", "score")]
    return f"{trial['learning_rate']:g}", [
        str(trial["epoch"]),
        numbers[0],
        words.percent(trial["accuracy"]),
        numbers[1],
        fate,
    ]


def _maps(before: nn.Module, after: nn.Module, data: Data) -> list[dict[str, Any]]:
    """The first image of each class with Grad-CAM for its own class in both models; none for a network without maps."""
    labels = data.labels.cpu()
    first = [int((labels == label).nonzero()[0]) for label in labels.unique().tolist()][:MOST_MAPS]
    batch = data.batch(torch.tensor(first), home_of(before))
    try:
        maps = [grad_cam(model, batch.images, batch.labels).cpu() for model in (before, after)]
    except UserError:
        return []
    answers = [logits(model, batch.images, len(first)).argmax(1).tolist() for model in (before, after)]
    side, images = side_for(3 * len(first), 3), batch.images.cpu()
    return [
        _one_map(images[at], [m[at] for m in maps], data, label, [a[at] for a in answers], side)
        for at, label in enumerate(batch.labels.tolist())
    ]


def _one_map(
    image: Tensor, maps: Sequence[Tensor], data: Data, label: int, answers: Sequence[int], side: int
) -> dict[str, Any]:
    return {
        "image": picture(image, side),
        "before": evidence(image, maps[0], side),
        "after": evidence(image, maps[1], side),
        "smooth": max(image.shape[1:]) > side,
        "label": data.classes[label],
        "answers": [(name_of(data.classes, one), one == label) for one in answers],
    }


def _titles(found: Compared | None) -> list[str]:
    return list(next(iter(found.models.values()))) if found else []


def _rows(found: Compared | None) -> list[tuple[str, list[str]]]:
    if found is None:
        return []
    images = [words.count(len(one.values)) for one in next(iter(found.models.values())).values()]
    return [*((name, [_cell(one) for one in own.values()]) for name, own in found.models.items()), ("images", images)]


def _cell(column: Column) -> str:
    return words.percent(column.mean) if column.unit == "share" else words.plain(column.mean)

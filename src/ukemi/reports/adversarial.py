"""What one attack did to a model: a page with the images that fool it, and JSON."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.measures.examples import drawn
from ukemi.models.inference import default_chunk, home_of, logits
from ukemi.reports import charts, words
from ukemi.reports.attacks import (
    NORMS,
    AttackResult,
    attack_row,
    distance_said,
    share_said,
    sight_of,
    sight_said,
    title_of,
)
from ukemi.reports.gallery import gallery, name_of
from ukemi.reports.notes import notes
from ukemi.reports.pictures import picture, side_for
from ukemi.reports.writing import flat, versions, write_html, write_numbers
from ukemi.training.sets import AdversarialSet, as_data, originals

SCHEMA = 1
"""Version of the summary's fields: raised when one changes its meaning or goes."""
SET = "adversarial.safetensors"
"""the set's file, beside attack.json and page.html"""
NUMBERS = (
    *("norm", "images", "recognised", "fooled", "accuracy", "attacked_accuracy", "robustness", "median_distance"),
    *("forwards", "backwards", "seconds"),
)
"""What attack.json says of the fields of `attack_row`."""


@dataclass(frozen=True)
class Fooling:
    """An image that is recognised unchanged, beside what the attack made of it."""

    index: int
    image: Tensor
    """`[C, H, W]`, in [0, 1]"""
    adversarial: Tensor
    label: int
    guess: int
    distance: float


@dataclass(frozen=True)
class AttackReport:
    """All that is shown about one attack on one model."""

    title: str
    result: AttackResult
    made: AdversarialSet
    guesses: Tensor
    """int64 `[N]`: what the model takes the set's images for"""
    gallery: tuple[Fooling, ...]
    settings: Mapping[str, Any]
    device: str


def examine_attack(
    model: nn.Module,
    data: Data,
    result: AttackResult,
    made: AdversarialSet,
    *,
    title: str,
    settings: Mapping[str, Any],
    gallery: int = 12,
    seed: int = 0,
) -> AttackReport:
    """Adds to an attack on `data` what shows it: guesses, and images that fool, spread over the classes."""
    device = home_of(model)
    guesses = torch.empty(0, dtype=torch.int64)
    chosen: list[Fooling] = []
    if len(made):
        chunk = default_chunk(tuple(made.images.shape[1:]), device)
        parts = [logits(model, part.to(device), chunk).argmax(1).cpu() for part in made.images.split(16 * chunk)]
        guesses = torch.cat(parts)
        every = as_data(made, fooling=False)
        rows = drawn(every, made.success, gallery, seed)
        unchanged = originals(every.take(rows), data).batch(torch.arange(len(rows)), device).images.cpu()
        chosen = [
            Fooling(
                int(made.index[at]),
                image,
                made.images[at],
                int(made.labels[at]),
                int(guesses[at]),
                float(made.distance[at]),
            )
            for at, image in zip(rows.tolist(), unchanged, strict=True)
        ]
    return AttackReport(title, result, made, guesses, tuple(chosen), dict(settings), str(device))


def attack_summary(report: AttackReport) -> dict[str, Any]:
    """All numbers as JSON knows them."""
    found, made = report.result.found, report.made
    images, stay = len(found.right), int((found.right & ~found.fooled).sum())
    row = attack_row(report.result)
    return {
        "schema": SCHEMA,
        "title": report.title,
        "data": made.data,
        "split": made.split,
        "attack": {"name": made.attack, **made.settings, "seed": made.seed},
        **{name: row[name] for name in NUMBERS},
        "attacked_accuracy_interval_95": list(words.wilson(stay, images)),
        "not_finite": found.not_finite,
        "notes": attack_notes(report),
        "classes": _classes(report),
        "set": {"file": SET, "images": len(made), "fooling": int(made.success.sum()), "norm": made.norm},
        "model_sha256": made.model,
        "settings": dict(report.settings),
        "device": report.device,
        "versions": versions(),
    }


def write_attack(folder: Path, report: AttackReport) -> None:
    """Writes attack.json and page.html."""
    write_numbers(folder / "attack.json", attack_summary(report))
    shown = [picture for one in report.gallery for picture in (one.image,) * 3]
    side = side_for(len(shown), max(map(len, shown), default=1))
    write_html(
        folder / "page.html",
        "attack.html",
        heading=f"{report.title} under {report.made.attack}",
        glance=attack_glance(report),
        sight=sight_said([report.result]),
        tiles=_tiles(report.result),
        gallery=gallery(
            [_card(one, report.made, side) for one in report.gallery], {"label": "class", "guess": "taken for"}
        ),
        histogram=_histogram(report.made),
        classes=[
            (row["class"], (row["recognised"], row["fooled"], _share(row), row["taken_for"] or ""))
            for row in _classes(report)
        ],
        settings=[
            ("attack", title_of(report.result.config)),
            ("time", words.duration(report.result.seconds)),
            ("device", report.device),
            ("weights (SHA-256)", report.made.model),
            *flat({name: value for name, value in report.settings.items() if name != "attack"}),
        ],
    )


def attack_glance(report: AttackReport) -> list[str]:
    """What was found, in sentences."""
    found = report.result.found
    images, known, fooled = len(found.right), int(found.right.sum()), int(found.fooled.sum())
    said = [
        f"Of {words.plural(images, 'image')} of {report.made.data}, {words.count(known)}"
        f" {'is' if known == 1 else 'are'} recognised"
        + f"; {title_of(report.result.config)} fools the model on {words.count(fooled)} of these" * bool(known)
        + "."
    ]
    if isfinite(found.median_distance):
        said.append(f"Half of them are no further than {distance_said(found)} from the image they were made of.")
    return [*said, *attack_notes(report)]


def attack_notes(report: AttackReport) -> list[str]:
    """What has to be said beside its numbers, in sentences."""
    found = report.result.found
    return notes(len(found.right), found.not_finite, [report.result], report.settings)


def _tiles(result: AttackResult) -> list[dict[str, Any]]:
    found = result.found
    images, stay = len(found.right), int((found.right & ~found.fooled).sum())
    low, high = words.wilson(stay, images)
    known = int(found.right.sum())
    tiles = [
        ("accuracy", words.percent(found.accuracy), f"{words.count(known)} of {words.count(images)} images"),
        (
            "accuracy under attack",
            words.percent(found.attacked_accuracy),
            f"{sight_of(result.config)}; 95 % interval {100 * low:.1f} to {100 * high:.1f}",
        ),
        ("robustness", share_said(found.robustness), "1 − fooled / recognised (STYX)"),
        (
            "median distance",
            words.plain(found.median_distance) if isfinite(found.median_distance) else "none",
            f"{NORMS[found.norm]}, over the fooled images",
        ),
        (
            "forward passes",
            words.count(found.forwards),
            f"{words.count(found.backwards)} backward, {words.duration(result.seconds)}",
        ),
    ]
    return [{"name": name, "value": value, "note": note, "key": "under" in name} for name, value, note in tiles]


def _card(one: Fooling, made: AdversarialSet, side: int) -> dict[str, Any]:
    change, scale = visible(one.adversarial - one.image)
    label, guess = made.classes[one.label], name_of(made.classes, one.guess)
    return {
        "image": picture(one.image, side),
        "adversarial": picture(one.adversarial, side),
        "change": picture(change, side),
        "scale": f"{scale:.0f}" if scale >= 10 else words.plain(scale, 2),
        "smooth": max(one.image.shape[1:]) > side,
        "label": label,
        "guess": guess,
        "fields": {"label": [label], "guess": [guess]},
        "distance": f"{NORMS[made.norm]} {words.plain(one.distance)}",
        "index": one.index,
    }


def visible(change_CHW: Tensor) -> tuple[Tensor, float]:
    """A perturbation around grey, so large that its largest change is black or white; and the factor."""
    largest = float(change_CHW.abs().max())
    scale = 0.5 / largest if largest else 1.0
    return 0.5 + change_CHW * scale, scale


def _histogram(made: AdversarialSet) -> Any:
    far = made.distance[made.success].tolist()
    if not far:
        return None
    return charts.histogram(
        far,
        title="How far the fooling images are from the unchanged ones",
        x_label=f"distance ({NORMS[made.norm]})",
        y_label="images",
    )


def _classes(report: AttackReport) -> list[dict[str, Any]]:
    """Of every class that is recognised: how many of its images, how many fool, and what they are mostly taken for."""
    made, rows = report.made, []
    for number, name in enumerate(made.classes):
        own = made.labels == number
        fooled = own & made.success
        if not bool(own.any()):
            continue
        taken = Counter(report.guesses[fooled].tolist()).most_common(1)
        rows.append(
            {
                "class": name,
                "recognised": int(own.sum()),
                "fooled": int(fooled.sum()),
                "taken_for": name_of(made.classes, taken[0][0]) if taken else None,
            }
        )
    return rows


def _share(row: Mapping[str, Any]) -> str:
    return words.percent(1 - row["fooled"] / row["recognised"])

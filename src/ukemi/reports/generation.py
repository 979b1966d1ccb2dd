"""What a search for a pattern of uncertainty found: a table, a page with pictures, and JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from ukemi.data import Data, as_float
from ukemi.measures.examples import drawn
from ukemi.reports import charts, words
from ukemi.reports.adversarial import visible
from ukemi.reports.pictures import picture, side_for
from ukemi.reports.terminal import captioned
from ukemi.reports.uncertainty import SAID, thresholds_row
from ukemi.reports.writing import finite, ran, versions, write_html, write_numbers
from ukemi.uncertainty import METRICS, Generated

SCHEMA = 1
"""Version of the summary's fields: raised when one changes its meaning or goes."""
SET = "generated.safetensors"
"""the set's file, beside generation.json and page.html"""

REACHED = ("reached", "not reached")


@dataclass(frozen=True)
class GenerationReport:
    """All that is shown about one search."""

    title: str
    found: Generated
    seeds: Data
    """the images that it began with, in the same order"""
    found_by: str
    settings: Mapping[str, Any]
    device: str
    seconds: float
    gallery: int = 12
    seed: int = 0


def numbers_of(found: Generated) -> dict[str, Any]:
    """The numbers of a search as JSON knows them; they also stand in the set's notes."""
    hits = int(found.success.sum())
    return {
        "pattern": found.target.pattern,
        "goal": found.target.goal,
        "thresholds": thresholds_row(found.target.thresholds),
        "passes": found.metrics.passes,
        "seeds": len(found),
        "success": hits,
        "success_rate": found.success_rate,
        "success_rate_interval_95": list(words.wilson(hits, len(found))),
        "claimed": int(found.claimed.sum()),
        "best_fitness": float(found.fitness.max()),
        "median_fitness": float(found.fitness.median()),
        "mean_generations": float(found.generations.double().mean()),
        "evaluations": found.evaluations,
        "largest_distance": float(found.distance.max()),
        "mean": {name: finite(float(getattr(found.metrics, name).mean())) for name in METRICS},
    }


def generation_table(found: Generated) -> Table:
    """One row: how many seeds succeeded, after how many generations."""
    about = (
        "success: pattern and goal hold (with dropout under masks that the search never saw), with its 95 %"
        " interval; claimed: the search stopped on them; fitness: 1 and more is there, below 0 short of the pattern,"
        " below -2 short of the goal"
    )
    table = captioned(about)
    table.add_column("pattern", no_wrap=True)
    for name in ("seeds", "success", "95 %", "claimed", "best fitness", "generations"):
        table.add_column(name, justify="right")
    row = numbers_of(found)
    low, high = row["success_rate_interval_95"]
    table.add_row(
        f"{row['pattern']}, {row['goal']}",
        words.count(row["seeds"]),
        words.percent(row["success_rate"]),
        f"{100 * low:.0f}–{100 * high:.0f}",
        words.count(row["claimed"]),
        words.plain(row["best_fitness"]),
        f"{row['mean_generations']:.1f}",
    )
    return table


def write_generation(folder: Path, report: GenerationReport) -> None:
    """Writes generation.json and page.html."""
    summary = {
        "schema": SCHEMA,
        "title": report.title,
        **numbers_of(report.found),
        "found_by": report.found_by,
        "set": SET,
        "settings": dict(report.settings),
        "seconds": report.seconds,
        "device": report.device,
        "versions": versions(),
    }
    write_numbers(folder / "generation.json", summary)
    write_html(
        folder / "page.html",
        "generation.html",
        heading=f"Inputs of pattern {report.found.target.pattern} for {report.title}",
        glance=_glance(report.found),
        gallery=_gallery(report),
        scatter=_scatter(report.found),
        legend=[(name, charts.dot(at)) for at, name in enumerate(REACHED)],
        settings=ran(report.seconds, report.device, report.settings),
        found_by=report.found_by,
        reached=bool(report.found.success.any()),
    )


def _glance(found: Generated) -> list[str]:
    pattern, goal = found.target.pattern, found.target.goal
    said = [
        f"From {words.count(int(found.success.sum()))} of {words.plural(len(found), 'image')} the search made an input"
        f" that is {goal} and {pattern} ({SAID[pattern]})."
    ]
    if not bool(found.success.any()):
        best = words.plain(float(found.fitness.max()))
        said.append(f"None was found within the budget: the best fitness was {best}, and it takes 1.")
    return said


def _gallery(report: GenerationReport) -> list[dict[str, Any]]:
    found, names = report.found, report.seeds.classes
    rows = drawn(report.seeds, _shown(found, report.gallery), report.gallery, report.seed)
    if not len(rows):
        return []
    seeds = as_float(report.seeds.images[rows.to(report.seeds.labels.device)]).cpu()
    side = side_for(3 * len(rows), seeds.shape[1])
    cards = []
    for at, image in zip(rows.tolist(), seeds, strict=True):
        change, scale = visible(found.images[at] - image)
        guess = int(found.metrics.prediction[at])
        cards.append(
            {
                "image": picture(image, side),
                "made": picture(found.images[at], side),
                "change": picture(change, side),
                "scale": words.plain(scale, 2),
                "smooth": max(image.shape[1:]) > side,
                "label": names[int(found.labels[at])],
                "guess": names[guess] if guess < len(names) else f"class {guess}",
                "wrong": guess != int(found.labels[at]),
                "pcs": words.below_one(float(found.metrics.pcs[at]), 2),
                "vr": f"{float(found.metrics.vr[at]):.2f}",
                "index": int(found.index[at]),
            }
        )
    return cards


def _shown(found: Generated, count: int) -> Tensor:
    """Successes; where there are none, the `count` that came nearest."""
    if bool(found.success.any()):
        return found.success
    order = found.fitness.argsort(descending=True, stable=True)
    return torch.zeros_like(found.success).scatter(0, order[:count], True)


def _scatter(found: Generated) -> Any:
    rows_of = dict(zip(REACHED, (found.success, ~found.success), strict=True))
    series = [
        charts.Series(
            name, tuple(zip(found.metrics.pcs[rows].tolist(), found.metrics.vr[rows].tolist(), strict=True)), at
        )
        for at, (name, rows) in enumerate(rows_of.items())
    ]
    limits = found.target.thresholds
    return charts.scatter(
        series,
        title="Every generated input by its PCS and VR",
        x_label="PCS",
        y_label="VR",
        x_rules=sorted(set(limits.pcs)),
        y_rules=sorted(set(limits.vr)),
    )

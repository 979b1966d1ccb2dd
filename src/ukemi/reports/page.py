"""Evaluations as one page that carries its charts and pictures inside itself."""

from collections.abc import Mapping, Sequence
from math import log as ln
from pathlib import Path
from typing import Any

from torch import Tensor

from ukemi.reports import charts, maps, words
from ukemi.reports.attacks import attack_section, worst_of
from ukemi.reports.costs import cost, section
from ukemi.reports.curves import Log, curves, progress
from ukemi.reports.doubts import doubts_section
from ukemi.reports.evaluation import Evaluation
from ukemi.reports.gallery import Gallery, card, gallery
from ukemi.reports.genes import gene_figures, gene_histories
from ukemi.reports.junit import checks_of, limits_said
from ukemi.reports.measured import measured
from ukemi.reports.pictures import picture, side_for
from ukemi.reports.summary import evaluation_notes, per_class
from ukemi.reports.sweeps import BUDGET as SWEEPS
from ukemi.reports.sweeps import frames, sweep_card
from ukemi.reports.table import cells
from ukemi.reports.transfer import transfer_section
from ukemi.reports.writing import flat, write_html

MOST_CLASSES = 30
"""of more classes, those that hold least are shown"""
MOST_LEADS = 3
"""of more models, the first glance tells of the best and the worst"""


def write_page(path: Path, evaluations: Sequence[Evaluation], heading: str) -> None:
    """Writes one self-contained HTML file about the evaluations."""
    shown = [picture for one in evaluations for picture in _pictures(one)]
    channels = max(map(len, shown), default=1)
    swept = sum(frames(sweep) for one in evaluations for sweep in one.sweeps)
    sides = side_for(len(shown), channels), side_for(swept, channels, SWEEPS)
    write_html(
        path,
        "evaluation.html",
        heading=heading,
        several=len(evaluations) > 1,
        leads=leads(evaluations),
        models=[_model(one, *sides) | {"open": any(one is end for end in ends(evaluations))} for one in evaluations],
        overall=[_overall(one) for one in evaluations],
        rows=[(one.title, cells(one)) for one in evaluations],
        genes=gene_figures(evaluations),
        costs=section([cost(one.title, one.log, one.all_seconds()) for one in evaluations]),
        gene_legend=[(one.title, charts.swatch(at)) for at, one in enumerate(evaluations)],
        measured=measured(evaluations),
        ramp=maps.ramp(),
    )


def write_training_page(path: Path, heading: str, log: Log, settings: Mapping[str, Any]) -> None:
    """Writes the curves of a run, finished or not."""
    write_html(
        path,
        "training.html",
        heading=heading,
        glance=progress(log),
        curves=curves(log),
        histories=gene_histories(log),
        costs=section([cost("this run", log)]),
        ramp=maps.ramp(),
        settings=flat(settings),
    )


def glance(evaluation: Evaluation) -> list[str]:
    """What was found, in sentences."""
    found = evaluation.robustness
    images, correct, robust = len(found.correct), int(found.correct.sum()), int(found.robust.sum())
    under = f"all {words.count(len(found.grid))} variants" if len(found.grid) > 1 else "its variant"
    said = [
        f"Of {words.plural(images, 'image')} of {evaluation.data}, {words.count(correct)}"
        f" {'is' if correct == 1 else 'are'} recognised; {_staying(robust, correct)} recognised under {under}."
    ]
    rates = [
        (rate, one.gene, value)
        for one in evaluation.failures
        if one.images
        for value, rate in zip(one.values, one.rates, strict=True)
    ]
    if rates:
        rate, gene, value = max(rates, key=lambda item: item[0])
        said.append(
            f"The gene that does most harm alone is {words.gene_name(gene)}: at {words.gene_value(gene, value)}"
            f" it breaks {words.percent(rate, 0)} of the images that are recognised unchanged."
            if rate
            else "No gene alone breaks any of the images that were tried."
        )
    return [*said, *limits_said(checks_of(evaluation, evaluation.limits)), *evaluation_notes(evaluation)]


def _staying(robust: int, correct: int) -> str:
    if robust == 0:
        return "none stays"
    only = "only " if robust < correct / 2 else ""
    return f"{only}{words.count(robust)} {'stays' if robust == 1 else 'stay'}"


def leads(evaluations: Sequence[Evaluation]) -> list[tuple[str, str]]:
    """What stands above several models: a sentence on each, or on the ends where they are many."""
    if len(evaluations) <= MOST_LEADS:
        return [(one.title, glance(one)[0]) for one in evaluations]
    best, least = ends(evaluations)
    return [(f"Most robust: {best.title}", glance(best)[0]), (f"Least robust: {least.title}", glance(least)[0])]


def ends(evaluations: Sequence[Evaluation]) -> tuple[Evaluation, Evaluation]:
    """The most and the least robust: of many models, those whose pictures are not folded."""
    ranked = sorted(evaluations, key=lambda one: -one.robustness.robust_accuracy)
    return ranked[0], ranked[-1]


def _model(evaluation: Evaluation, side: int, swept: int) -> dict[str, Any]:
    """What the template shows about one model, with pictures of these sides in galleries and sweeps."""
    most = 2 * ln(len(evaluation.classes))
    return {
        "title": evaluation.title,
        "glance": glance(evaluation),
        "tiles": _tiles(evaluation),
        "attacks": attack_section(evaluation.attacks),
        "transfer": transfer_section(evaluation.transfer),
        "gallery": _gallery(evaluation, side),
        "sweeps": _sweeps(evaluation, swept),
        "doubts": doubts_section(evaluation.doubts, evaluation.classes),
        "histories": gene_histories(evaluation.log),
        "terrains": _terrains(evaluation, most, side),
        "moving": _moving(evaluation),
        "most": f"{words.plain(most, 2)} (twice that of a blind guess)",
        "classes": _classes(evaluation),
        "classes_said": _classes_said(evaluation),
        "curves": curves(evaluation.log),
    }


def _pictures(evaluation: Evaluation) -> list[Tensor]:
    return [
        *(ground.image for ground in evaluation.landscapes),
        *(image for pair in evaluation.gallery for image in (pair.image, pair.variant)),
    ]


def _tiles(evaluation: Evaluation) -> list[dict[str, Any]]:
    found = evaluation.robustness
    images, correct, robust = len(found.correct), int(found.correct.sum()), int(found.robust.sum())
    low, high = words.wilson(robust, images)
    interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f}"
    took = "" if evaluation.seconds is None else f", {words.duration(evaluation.seconds)}"
    tiles = [
        ("accuracy", words.percent(found.accuracy), f"{words.count(correct)} of {words.count(images)} images"),
        ("robust accuracy", words.percent(found.robust_accuracy), interval),
        ("variants per image", words.count(len(found.grid)), f"space {found.space.name}"),
        (
            "forward passes",
            words.count(found.forwards),
            f"{words.percent(found.share_evaluated)} of all variants{took}",
        ),
    ]
    if found.mean_accuracy is not None:
        tiles.insert(2, ("mean accuracy", words.percent(found.mean_accuracy), "over all images and variants"))
    worst = worst_of(evaluation.attacks)
    if worst is not None:
        note = f"the hardest of {words.plural(len(evaluation.attacks), 'attack')}"
        tiles.insert(2, ("accuracy under attack", words.percent(worst), note))
    return [
        {"name": name, "value": value, "note": note, "key": name == "robust accuracy"} for name, value, note in tiles
    ]


def _overall(evaluation: Evaluation) -> dict[str, Any]:
    found = evaluation.robustness
    return _bar(evaluation.title, found.accuracy, found.robust_accuracy, len(found.correct))


def _bar(name: str, accuracy: float, robust: float, images: int) -> dict[str, Any]:
    title = f"{name}: accuracy {words.percent(accuracy)}, robust accuracy {words.percent(robust)}"
    svg = charts.bar(accuracy, robust, words.wilson(round(robust * images), images), title)
    return {"name": name, "accuracy": words.percent(accuracy), "robust": words.percent(robust), "svg": svg}


def _classes(evaluation: Evaluation) -> list[dict[str, Any]]:
    rows = [row for row in per_class(evaluation) if row["images"]]
    if len(rows) > MOST_CLASSES:
        rows = sorted(rows, key=lambda row: row["robust_accuracy"])[:MOST_CLASSES]
    return [_bar(row["class"], row["accuracy"], row["robust_accuracy"], row["images"]) for row in rows]


def _classes_said(evaluation: Evaluation) -> str:
    shown = len(set(evaluation.labels.tolist()))
    said = "For every class" if shown <= MOST_CLASSES else f"For the {MOST_CLASSES} classes that hold least"
    return f"{said}: how many of its images are recognised, and how many stay recognised under every variant."


def _gallery(evaluation: Evaluation, side: int) -> Gallery:
    space = evaluation.robustness.space
    cards = [card(pair, evaluation.classes, space, side) for pair in evaluation.gallery]
    return gallery(cards, {"label": "class", "guess": "taken for", "gene": "gene"})


def _sweeps(evaluation: Evaluation, side: int) -> list[dict[str, Any]]:
    space = evaluation.robustness.space
    return [sweep_card({evaluation.title: one}, evaluation.classes, space, side) for one in evaluation.sweeps]


def _terrains(evaluation: Evaluation, most: float, side: int) -> list[dict[str, Any]]:
    grounds = []
    for ground in evaluation.landscapes:
        name = evaluation.classes[ground.label]
        share = float(ground.landscape.wrong.double().mean())
        wrong = f"misclassified in {words.percent(share, 0)} of the region" if share else "holds in the whole region"
        svg = maps.heat_map(ground.landscape, most, title=f"Loss around one image: {name}")
        smooth = max(ground.image.shape[1:]) > side
        grounds.append(
            {"image": picture(ground.image, side), "smooth": smooth, "label": name, "wrong": wrong, "svg": svg}
        )
    return grounds


def _moving(evaluation: Evaluation) -> str:
    """Which genes the landscapes move, as part of a sentence."""
    if not evaluation.landscapes:
        return ""
    ground = evaluation.landscapes[0].landscape
    names = [words.gene_name(axis.gene) for axis in (ground.down, ground.across) if axis]
    return f"{' and '.join(names)} {'change' if len(names) > 1 else 'changes'} and all else rests"

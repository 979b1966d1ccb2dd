"""An evaluation as plain values, for programs."""

from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ukemi.measures.outputs import guessing
from ukemi.measures.robustness import Robustness
from ukemi.reports import words
from ukemi.reports.attacks import attack_row, group_rows
from ukemi.reports.doubts import doubts_summary
from ukemi.reports.evaluation import Evaluation
from ukemi.reports.junit import checks_of
from ukemi.reports.notes import notes
from ukemi.reports.transfer import transfer_summary
from ukemi.reports.words import wilson
from ukemi.reports.writing import versions, write_numbers

SCHEMA = 1
"""Version of the summary's fields: raised when one changes its meaning or goes."""


def summary(evaluation: Evaluation, *, details: bool = False) -> dict[str, Any]:
    """All numbers of an evaluation as JSON knows them; `details` adds what became of every single image."""
    found = evaluation.robustness
    images, robust = len(found.correct), int(found.robust.sum())
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "title": evaluation.title,
        "model": evaluation.model,
        "data": evaluation.data,
        "images": images,
        "variants": len(found.grid),
        "accuracy": found.accuracy,
        "robust_accuracy": found.robust_accuracy,
        "robust_accuracy_interval_95": list(wilson(robust, images)),
        "mean_accuracy": found.mean_accuracy,
        "not_finite": found.not_finite,
        "forwards": found.forwards,
        "share_evaluated": found.share_evaluated,
        "seconds": evaluation.seconds,
        "space": _space(found),
        "failure_by_gene": [
            {"gene": one.gene, "values": list(one.values), "rates": list(one.rates), "images": one.images}
            for one in evaluation.failures
        ],
        "broken_at": broken_at(found),
        "doubts": doubts_summary(evaluation.doubts),
        "classes": [one for one in per_class(evaluation) if one["images"]],
        "attacks": [attack_row(one) for one in evaluation.attacks],
        "attack_groups": group_rows(evaluation.attacks),
        "transfer": transfer_summary(evaluation.transfer),
        "limits": [
            {"name": one.name, "limit": one.limit, "value": one.value, "passed": one.passed}
            for one in checks_of(evaluation, evaluation.limits)
        ],
        "notes": evaluation_notes(evaluation),
        "settings": _jsonable(evaluation.settings),
        "device": evaluation.device,
        "versions": versions(),
    }
    return values | ({"images_detail": _details(evaluation)} if details else {})


def evaluation_notes(evaluation: Evaluation) -> list[str]:
    """What has to be said beside its numbers, in sentences."""
    found = evaluation.robustness
    seen = evaluation.settings.get("seen")
    said = [f"Measured on {seen}, at least in part: on others it may do worse."] if seen else []
    if not found.not_finite:
        said += _guessed(evaluation, int(found.correct.sum()))
    return said + notes(len(found.correct), found.not_finite, evaluation.attacks, evaluation.settings)


BEHIND = {
    "weights": "no weights (--weights)",
    "classes": "classes in another order (--classes)",
    "mean": "pixels that it wants normalised (--mean, --std)",
}
"""what mostly lies behind a model that is no better than guessing, where these settings are not given"""


def _guessed(evaluation: Evaluation, right: int) -> list[str]:
    """What is said of a model that is no better than guessing; of one from elsewhere, what may lie behind it."""
    images, classes = len(evaluation.robustness.correct), len(evaluation.classes)
    guessed = guessing(images, classes)
    if not right <= guessed < images:
        return []
    own = "run" in evaluation.settings
    behind = ", ".join(about for name, about in BEHIND.items() if not (own or evaluation.settings.get(name)))
    return [
        f"{right} of {words.plural(images, 'image')} are recognised; guessing among {classes} classes gets up to"
        f" {int(guessed)}." + f" What may lie behind it: {behind}." * bool(behind) + f" {words.SAME_ANSWER}" * own
    ]


def write_json(path: Path, evaluation: Evaluation, *, details: bool = False) -> None:
    """Writes an evaluation's summary."""
    write_numbers(path, summary(evaluation, details=details))


def per_class(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Images, recognised and robust ones of every class, in the order of the classes."""
    count = len(evaluation.classes)
    found, labels = evaluation.robustness, evaluation.labels
    images, correct, robust = (
        labels[which].bincount(minlength=count).tolist()
        for which in (torch.ones_like(found.correct), found.correct, found.robust)
    )
    return [
        {
            "class": name,
            "images": images[at],
            "accuracy": correct[at] / max(1, images[at]),
            "robust_accuracy": robust[at] / max(1, images[at]),
        }
        for at, name in enumerate(evaluation.classes)
    ]


def broken_at(found: Robustness) -> list[dict[str, Any]]:
    """How often each value of each gene stands in the chromosome that broke an image first."""
    by = found.broken_by[found.broken_by >= 0]
    counted = []
    for at, gene in enumerate(found.space.genes):
        values = found.grid[:, at].unique()
        hits = torch.searchsorted(values, found.grid[by, at].contiguous()).bincount(minlength=len(values))
        counted.append({"gene": gene.name, "values": _rounded(values), "images": hits.tolist()})
    return counted


def _space(found: Robustness) -> dict[str, Any]:
    fields = ("name", "low", "high", "identity", "step")
    genes = [{name: getattr(gene, name) for name in fields} for gene in found.space.genes]
    space = found.space
    return {"name": space.name, "protocol": space.protocol, "discrete": space.discrete, "genes": genes}


def _details(evaluation: Evaluation) -> dict[str, Any]:
    found = evaluation.robustness
    return {
        "label": evaluation.labels.tolist(),
        "correct": found.correct.tolist(),
        "robust": found.robust.tolist(),
        "broken_by": found.broken_by.tolist(),
        "grid": [_rounded(row) for row in found.grid],
    }


def _rounded(values: Tensor) -> list[float]:
    """float32 values as people wrote them: 0.1, not 0.10000000149011612."""
    return [float(f"{value:.7g}") for value in values.tolist()]


def _jsonable(value: Any) -> Any:
    """Settings hold paths and the like: what JSON does not know becomes text."""
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)

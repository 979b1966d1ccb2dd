"""How models were measured: in which space, and with which settings; what they share is told once."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ukemi.reports import words
from ukemi.reports.evaluation import Evaluation
from ukemi.reports.writing import flat

ABSENT = "–"


def measured(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """The spaces, each with the models that were searched in it where there are several; the settings in which models
    differ, and those that all share."""
    told = [dict(_settings(one)) for one in evaluations]
    names = list(dict.fromkeys(name for own in told for name in own))
    values = {name: [own.get(name, ABSENT) for own in told] for name in names}
    return {
        "spaces": _spaces(evaluations),
        "apart": [(name, own) for name, own in values.items() if len(set(own)) > 1],
        "shared": [(name, own[0]) for name, own in values.items() if len(set(own)) == 1],
    }


def _spaces(evaluations: Sequence[Evaluation]) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """What stands above each, and its rows; neighbours with one space share it."""
    found = []
    for (said, rows), members in groupby(evaluations, key=lambda one: (_grid(one), _space(one))):
        titles = [one.title for one in members]
        whose = f" ({words.listed(titles)})" if len(titles) < len(evaluations) else ""
        found.append((f"The space that was searched, {said}{whose}", rows))
    return found


def _grid(evaluation: Evaluation) -> str:
    return f"{words.plural(len(evaluation.robustness.grid), 'variant')} per image"


def _space(evaluation: Evaluation) -> list[tuple[str, list[str]]]:
    found = evaluation.robustness
    rows = []
    for at, gene in enumerate(found.space.genes):
        ends = [words.gene_value(gene.name, value) for value in (gene.low, gene.identity, gene.high)]
        rows.append((words.gene_name(gene.name), [*ends, words.count(len(found.grid[:, at].unique()))]))
    return rows


def _settings(evaluation: Evaluation) -> list[tuple[str, str]]:
    own = [("model", evaluation.model), ("data", evaluation.data), ("device", evaluation.device)]
    given = flat(evaluation.settings)
    return [row for row in own if row[0] not in dict(given)] + given

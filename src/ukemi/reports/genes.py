"""One chart per gene: how often images break as it moves, and where a training's search went."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from markupsafe import Markup
from torch import Tensor

from ukemi.measures.sensitivity import GeneFailures
from ukemi.reports import charts, maps, words
from ukemi.reports.charts import Series
from ukemi.reports.curves import Curves, Log
from ukemi.reports.evaluation import Evaluation

MOST_TIMES = 3.0
"""chosen so many times as often as by chance, or more, is darkest"""
MOST_COLUMNS = 40
"""of more epochs several share a column"""


@dataclass(frozen=True)
class GeneFigure:
    """A chart and the same numbers as a table."""

    title: str
    svg: Markup
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def gene_figures(evaluations: Sequence[Evaluation]) -> list[GeneFigure]:
    """In the order in which the genes first appear; models without a gene, or that recognised no image, are left out of
    its chart."""
    genes = dict.fromkeys(one.gene for evaluation in evaluations for one in evaluation.failures if one.images)
    return [_figure(gene, evaluations) for gene in genes]


def _figure(gene: str, evaluations: Sequence[Evaluation]) -> GeneFigure:
    given = [
        (style, evaluation.title, failures)
        for style, evaluation in enumerate(evaluations)
        for failures in evaluation.failures
        if failures.gene == gene and failures.images
    ]
    series = [Series(title, _points(failures), style) for style, title, failures in given]
    values = sorted({value for _, _, failures in given for value in failures.values})
    name = words.gene_name(gene)
    svg = charts.lines(
        series,
        title=f"Share of images broken by {name}",
        x_label=words.directions(gene),
        x_said=lambda value: words.gene_value(gene, value),
        y_said=lambda share: words.percent(share, 0),
        y_tip=words.percent,
        x_ticks=sorted({values[0], _identity(gene, evaluations), values[-1]}),
        y_limits=(0.0, 1.0),
    )
    rows = tuple((title, _cells(failures, values)) for _, title, failures in given)
    return GeneFigure(name[:1].upper() + name[1:], svg, tuple(words.gene_value(gene, value) for value in values), rows)


def _identity(name: str, evaluations: Sequence[Evaluation]) -> float:
    return next(gene.identity for one in evaluations for gene in one.robustness.space.genes if gene.name == name)


def _points(failures: GeneFailures) -> tuple[tuple[float, float], ...]:
    return tuple(zip(failures.values, failures.rates, strict=True))


def _cells(failures: GeneFailures, values: Sequence[float]) -> tuple[str, ...]:
    known = dict(_points(failures))
    return tuple(words.percent(known[value], 0) if value in known else "" for value in values)


def gene_histories(log: Log) -> list[Curves]:
    """Per gene, which values were trained on in every epoch, beside chance; empty where the log has none."""
    lines = [line for line in log if line.get("genes")]
    if not lines:
        return []
    names = [one["gene"] for one in lines[0]["genes"]]
    return [_history([line["genes"][at] for line in lines], lines) for at in range(len(names))]


def _history(genes: Sequence[dict[str, Any]], lines: Log) -> Curves:
    first, size = genes[0], -(-len(lines) // MOST_COLUMNS)
    pooled = [range(at, min(at + size, len(lines))) for at in range(0, len(lines), size)]
    ends = [[lines[at]["epoch"] + 1 for at in (part[0], part[-1])] for part in pooled]
    epochs = [str(low) if low == high else f"{low}–{high}" for low, high in ends]
    values_BE = torch.stack([_beside_chance(first, [genes[at]["counts"] for at in part]) for part in pooled], 1)
    name, (ticks, rows) = words.gene_name(first["gene"]), _parts(first)
    title = name[:1].upper() + name[1:]
    svg = maps.over_epochs(values_BE, epochs, rows, ticks, MOST_TIMES, title=f"Where the search went: {name}")
    return Curves(title, svg, ())


def _beside_chance(one: dict[str, Any], counted: Sequence[Sequence[int]]) -> Tensor:
    """Counts of some epochs as multiples of what uniform draws over the gene's levels would give, float64 `[B]`."""
    counts = torch.tensor(counted, dtype=torch.float64).sum(0)
    own = (torch.arange(one["levels"]) * len(counts) // one["levels"]).bincount(minlength=len(counts))
    return counts / max(1.0, float(counts.sum())) / (own / one["levels"])


def _parts(one: dict[str, Any]) -> tuple[list[tuple[float, str]], list[str]]:
    """A gene's range: where along it its ends and its middle lie, and from where to where every part of it goes."""
    count, levels = len(one["counts"]), one["levels"]
    own = torch.arange(levels) * count // levels
    parts = [torch.nonzero(own == at).flatten()[[0, -1]].tolist() for at in range(count)]

    def said(level: int) -> str:
        share = level / (levels - 1)
        return words.gene_value(one["gene"], round(one["low"] * (1 - share) + one["high"] * share, 6))

    ticks = [((level + 0.5) / levels, said(level)) for level in sorted({0, levels // 2, levels - 1})]
    return ticks, [" to ".join(dict.fromkeys(map(said, part))) for part in parts]

"""One chart per gene: how often images break as it moves, all models in the same chart."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ukemi.measures.sensitivity import GeneFailures
from ukemi.reports import charts, words
from ukemi.reports.charts import Series
from ukemi.reports.evaluation import Evaluation


@dataclass(frozen=True)
class GeneFigure:
    """A chart and the same numbers as a table."""

    title: str
    svg: Markup
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def gene_figures(evaluations: Sequence[Evaluation]) -> list[GeneFigure]:
    """In the order in which the genes first appear; models without a gene are left out of its chart."""
    genes = dict.fromkeys(one.gene for evaluation in evaluations for one in evaluation.failures)
    return [_figure(gene, evaluations) for gene in genes]


def _figure(gene: str, evaluations: Sequence[Evaluation]) -> GeneFigure:
    given = [
        (style, evaluation.title, failures)
        for style, evaluation in enumerate(evaluations)
        for failures in evaluation.failures
        if failures.gene == gene
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

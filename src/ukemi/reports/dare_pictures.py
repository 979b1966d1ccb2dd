"""DARE (paper 4) as pictures over seeds: its figures 3 and 4, frozen sets by method, and seconds by part."""

from collections.abc import Mapping, Sequence

from ukemi.experiments.frozen import MINIMAL
from ukemi.measures.statistics import spread
from ukemi.reports import charts, words
from ukemi.reports.bars import bars
from ukemi.reports.charts import Series
from ukemi.reports.curves import Curves
from ukemi.reports.dare_tables import MEASURES, NAMES, VARIANTS, held, of, relative
from ukemi.reports.sections import Lines, seeded

FROZEN = {"minimal": "frozen, minimal", "8/255": "frozen, 8/255"}
CLEAN = 5
"""the style of clean accuracy, beside five attacks"""


def signed(share: float) -> str:
    return ("+" if share > 0 else "") + words.percent(share).replace("-", words.MINUS)


def frozen(lines: Lines, methods: Sequence[str]) -> Curves | None:
    """Accuracy on frozen sets, mean over the attacks, of those that kept the accuracy limit."""
    groups = {
        method: {name: [MEASURES[measure](line) for line in held(lines, method)] for name, measure in FROZEN.items()}
        for method in methods
    }
    return bars(groups, title="Accuracy on frozen sets, mean over the attacks", at_least=(0.0, 1.0))


def variants(name: str, lines: Lines) -> Curves | None:
    """The paper's Figure 3: accuracy above DARE's own, as a share of DARE's."""
    base = seeded(held(lines, "dare"))
    groups = {}
    for variant in VARIANTS:
        kept = [line for line in held(lines, variant) if line["seed"] in base]
        groups[variant] = {NAMES[attack]: relative(kept, base, attack) for attack in MINIMAL}
    return bars(groups, title=f"Relative to DARE: {name}", said=signed)


def over_share(lines: Lines, methods: Sequence[str]) -> Curves | None:
    """The paper's Figure 4: one line per attack over the share q."""
    shares = [method for method in methods if method.startswith("q ")]
    kept = {float(method.removeprefix("q ")): held(lines, method) for method in shares}
    values = {NAMES[attack]: _frozen_by(kept, attack) for attack in MINIMAL}
    values["clean"] = {q: [line["clean"] for line in found] for q, found in kept.items() if found}
    styles = {name: at for at, name in enumerate(values)} | {"clean": CLEAN}
    series = [_line(name, by_q, styles[name]) for name, by_q in values.items() if by_q]
    if not series:
        return None
    svg = charts.lines(
        series,
        title="Accuracy over the share q",
        x_label="q, percent",
        x_ticks=[q for q, found in kept.items() if found],
        y_said=lambda share: words.percent(share, 0),
    )
    return Curves("Accuracy over q", svg, tuple((one.name, charts.swatch(one.style)) for one in series))


def _frozen_by(kept: Mapping[float, Lines], attack: str) -> dict[float, list[float]]:
    found = {q: [line["frozen"]["minimal"].get(attack) for line in lines] for q, lines in kept.items()}
    known = {q: [value for value in values if value is not None] for q, values in found.items()}
    return {q: values for q, values in known.items() if values}


def _line(name: str, by_q: Mapping[float, Sequence[float]], style: int) -> Series:
    spreads = {q: spread(values) for q, values in by_q.items()}
    said = {
        q: words.percent(one.mean) + (f" ± {100 * one.deviation:.1f}" if one.deviation is not None else "")
        for q, one in spreads.items()
    }
    tips = tuple(f"{name}, q {q:g}: {text}" for q, text in said.items())
    whiskers = tuple(one.deviation or 0.0 for one in spreads.values())
    return Series(name, tuple((q, one.mean) for q, one in spreads.items()), style, tips, whiskers)


def seconds(lines: Lines, methods: Sequence[str]) -> Curves | None:
    """The paper's Table 5, without the training of the base model, which all share."""
    groups: dict[str, dict[str, list[float]]] = {}
    for method in methods:
        own = of(lines, method)
        if own and method != "original":
            groups[method] = {part: [line["seconds"][part] for line in own] for part in own[0]["seconds"]}
    return bars(groups, title="Time by part", said=words.duration, stacked=True)

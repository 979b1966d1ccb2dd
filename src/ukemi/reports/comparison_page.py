"""A comparison as a page that gives the answer first, then what it rests on, then pictures."""

from collections.abc import Sequence
from math import log10
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ukemi.comparing import Comparison, summary
from ukemi.comparing.outcomes import Outcome
from ukemi.comparing.result import CaseResult
from ukemi.measures.statistics import FEWEST, Interval, paired
from ukemi.reports import charts, maps, words
from ukemi.reports.charts import Series
from ukemi.reports.comparison import (
    NAMES,
    about_measures,
    comparison_answer,
    comparison_texts,
    difference_rows,
    measure_rows,
    reasons,
    sentence,
    short,
)
from ukemi.reports.costs import PARTS, Cost, section, spent
from ukemi.reports.curves import Curves
from ukemi.reports.doubts import doubts_compared, legend
from ukemi.reports.genes import gene_histories
from ukemi.reports.method_settings import over_setting
from ukemi.reports.side_by_side import gallery_of, near_images
from ukemi.reports.texts import in_markdown
from ukemi.reports.writing import flat, versions, write_html, write_numbers
from ukemi.training.checkpoints import write_whole

INSIDE = {"robust": "recognised under every variant", "attacked": "still under attack (both of the attacked images)"}
"""measures that are parts of accuracy, and what they mean"""


def write_comparison(folder: Path, found: Comparison, *, command: str, notes: Sequence[str] = ()) -> None:
    """Writes comparison.json, table.csv, table.md, table.tex and page.html."""
    values = summary(found, command=command, versions=versions())
    write_numbers(folder / "comparison.json", values)
    texts = comparison_texts(found)
    texts["md"] = "".join(f"{in_markdown(note)}\n\n" for note in (*notes, *reasons(found))) + texts["md"]
    for name, text in texts.items():
        write_whole(folder / f"table.{name}", text.encode())
    measures = measure_rows(found)
    finished = [one for case in found.run_cases() for runs in case.outcomes.values() for one in runs.values()]
    drawn = {method for case in found.run_cases() for method in case.outcomes}
    write_html(
        folder / "page.html",
        "comparison.html",
        heading=found.title,
        answer=comparison_answer(found),
        notes=list(notes),
        bars=[{"name": case.name, "bars": _bars(found, case)} for case in found.run_cases()],
        inside=INSIDE.get(found.decides, ""),
        over=over_setting(found, NAMES[found.decides]),
        reasons=reasons(found),
        measures=measures,
        about=sentence(about_measures(found, measures)),
        differences=difference_rows(found),
        baseline=found.baseline,
        decides=NAMES[found.decides],
        seeds=words.plural(len(found.seeds), "seed") if len(found.seeds) >= FEWEST else "",
        near=near_images(found),
        gallery=gallery_of(found),
        noticed=doubts_compared(found),
        asked_legend=legend(),
        ramp=maps.ramp(),
        histories=_histories(found),
        curves=_curves(found),
        repaired=any(one.base_log for one in finished),
        costs=_costs(found),
        spent=section(_spent(found)),
        legend=[(method, charts.swatch(at)) for at, method in enumerate(found.methods) if method in drawn],
        every_run=texts["csv"].removeprefix("\ufeff"),
        command=command,
        settings=flat({**found.settings, "baseline": found.baseline}),
    )


def _bars(found: Comparison, case: CaseResult) -> list[dict[str, Any]]:
    """The measure that decides, on accuracy where it is a part of that."""
    bars, inside = [], found.decides in INSIDE
    for method in found.methods:
        decided = case.spread(method, found.decides)
        if decided is not None:
            runs = case.outcomes[method].values()
            below = fmean(_recognised(one, found.decides) for one in runs) if inside else decided.mean
            interval = _of_mean(list(case.values(method, found.decides).values()))
            said = words.percent(decided.mean)
            before = words.percent(below) if inside else ""
            title = f"{method}: " + f"accuracy {before}, " * inside + f"{NAMES[found.decides]} {said}"
            svg = charts.bar(below, decided.mean, interval, title)
            bars.append({"name": method, "accuracy": before, "robust": said, "svg": svg})
    return bars


def _recognised(one: Outcome, measure: str) -> float:
    """Accuracy on the images that have this measure: few may be attacked."""
    among = torch.isin(one.index["accuracy"], one.index[measure])
    return float(one.images["accuracy"][among].double().mean())


def _of_mean(values: Sequence[float]) -> Interval:
    """The t interval of a mean, inside 0..1; where there is none, the mean alone."""
    found = paired(values, [0.0] * len(values))
    low, high = found.interval or (found.mean, found.mean)
    return max(0.0, low), min(1.0, high)


def _curves(found: Comparison) -> list[Curves]:
    """The loss of what was trained on, per epoch (SENSEI, Figure 4), on a logarithmic axis."""
    drawn = []
    for case in found.run_cases():
        series = [Series(method, _loss(case, method), at) for at, method in enumerate(found.methods)]
        # the longest at the back: a repair's curve begins as that of the training that it went on from
        svg = charts.lines(
            sorted((one for one in series if one.points), key=lambda one: -len(one.points)),
            title=f"Training loss: {case.name}",
            x_label="epoch",
            y_said=lambda power: words.plain(10**power, 2),
        )
        drawn.append(Curves(case.name, svg, ()))
    return drawn


def _loss(case: CaseResult, method: str) -> tuple[tuple[float, float], ...]:
    seeds = [one.losses() for one in case.outcomes.get(method, {}).values()]
    means = [sum(losses) / len(losses) for losses in zip(*seeds, strict=False)]  # epochs that all seeds have
    return tuple((at + 1.0, log10(mean)) for at, mean in enumerate(means) if mean > 0)


def _costs(found: Comparison) -> list[Curves]:
    """What decides, over the passes that it took."""
    drawn = []
    for case in found.run_cases():
        series = []
        for at, method in enumerate(found.methods):
            names = (found.decides, "forwards", "backwards")
            value, forwards, backwards = (case.spread(method, name) for name in names)
            if value and forwards and backwards:
                series.append(Series(method, ((log10(forwards.mean + backwards.mean), value.mean),), at))
        powers = sorted(point[0] for one in series for point in one.points)
        svg = charts.lines(
            series,
            title=f"{NAMES[found.decides].capitalize()} over passes: {case.name}",
            x_label="passes of the training",
            x_said=lambda power: short(10**power),
            x_ticks=sorted({powers[0], powers[-1]}),
            y_said=lambda share: words.percent(share, 0),
            y_tip=words.percent,
            y_limits=(0.0,),
        )
        drawn.append(Curves(case.name, svg, ()))
    return drawn


def _histories(found: Comparison) -> list[tuple[str, list[Curves]]]:
    """Where the search of each method went, in its first seed."""
    several = len(found.run_cases()) > 1
    shown = [
        (f"{case.name}, {method}" if several else method, gene_histories(one.log))
        for case in found.run_cases()
        for method in found.methods
        for one in list(case.outcomes.get(method, {}).values())[:1]
    ]
    return [(name, figures) for name, figures in shown if figures]


def _spent(found: Comparison) -> list[Cost | None]:
    """Per case and method, means over the seeds."""
    several = len(found.run_cases()) > 1
    return [
        _cost(f"{case.name}, {method}" if several else method, list(case.outcomes.get(method, {}).values()))
        for case in found.run_cases()
        for method in found.methods
    ]


def _cost(name: str, outcomes: Sequence[Outcome]) -> Cost | None:
    if not outcomes:
        return None
    means: dict[str, float] = {}
    for one in outcomes:
        parts = [*spent(one.base_log).items(), *spent(one.log).items()]
        # no log of a retraining knows of its search for variants; an old log of nothing but the whole
        rest = max(0.0, one.seconds - sum(took for _, took in parts))
        parts += [(PARTS[1] if one.base_log else PARTS[2], rest), ("measuring", one.measuring_seconds)]
        for part, took in parts:
            means[part] = means.get(part, 0.0) + took / len(outcomes)
    return Cost(name, {part: means[part] for part in PARTS if means.get(part, 0.0) >= 0.0005})

"""A comparison as tables for the terminal and for papers, and as a page that gives the answer first."""

import json
from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ukemi.comparing import Comparison, summary
from ukemi.comparing.result import COSTS, CaseResult, Pair
from ukemi.measures.attacks import as_csv
from ukemi.measures.statistics import Interval, Spread, paired
from ukemi.reports import charts, words
from ukemi.reports.charts import Series
from ukemi.reports.curves import Curves
from ukemi.reports.page import flat, template
from ukemi.reports.summary import versions
from ukemi.reports.texts import Rows, as_latex, as_markdown
from ukemi.training.checkpoints import write_whole

NAMES = {
    "robust": "robust accuracy",
    "accuracy": "accuracy",
    "attacked": "accuracy under attack",
    "robustness": "robustness under attack",
}
"""how the measures that may decide are called"""
FEW_SEEDS = 5
"""with fewer, the differences are shown seed by seed too"""


def comparison_answer(found: Comparison) -> list[str]:
    """Which method, by how much, how sure: in sentences."""
    ranked, pair = found.ranked(), found.answer()
    if not ranked:
        return ["No run is finished yet."]
    cases = found.run_cases()
    where = f"on {cases[0].name}" if len(cases) == 1 else f"on average over {len(cases)} cases"
    best = found.mean(ranked[0])
    assert best is not None
    said = [f"{ranked[0]} holds best: {words.percent(best)} {NAMES[found.decides]} {where}"]
    if pair is None:
        return [said[0] + "."]
    said[0] += f", {100 * pair.over_seeds.mean:.1f} points above {pair.second}."
    said.append(_how_sure(pair))
    if found.open:
        said.append(f"{words.plural(found.open, 'run')} not finished yet.")
    return said


def _how_sure(pair: Pair) -> str:
    seeds = pair.over_seeds
    many = len(seeds.differences)
    if seeds.interval is None:
        sure = "With one seed nothing is known about other seeds"
    elif seeds.verdict == "tie":
        sure = f"{many} seeds don't tell the two apart: the 95 % interval is {_range(seeds.interval)} points"
    else:
        sure = f"{many} seeds tell the two apart: the 95 % interval is {_range(seeds.interval)} points"
    if pair.over_images is None:
        return sure + "."
    return f"{sure}; for these very models on other images it is {_range(pair.over_images)}."


def measure_rows(found: Comparison, *, short: bool = False) -> Rows:
    """One row per case and method: n, the measures, and what they cost; `short` leaves out the groups of attacks, and
    the epochs where all methods have the same."""
    several, measures = len(found.cases) > 1, found.measures()
    measures = [name for name in measures if not (short and name.startswith(("attacked ", "robustness ")))]
    alike = short and len(_epochs(found)) <= len(found.run_cases())
    names = [*(["case"] if several else []), "method", "n", *measures, *([] if alike else ["epochs"]), "time", "passes"]
    rows = []
    for case in found.cases:
        for method in found.methods:
            cells = _method_cells(case, method, measures)
            rows.append([*([case.name] if several else []), method, *(cells[:-3] + cells[-2:] if alike else cells)])
    return Rows(names, rows)


def _epochs(found: Comparison) -> set[tuple[str, int]]:
    runs = [(case, one) for case in found.run_cases() for seeds in case.outcomes.values() for one in seeds.values()]
    return {(case.name, one.epochs) for case, one in runs}


def _method_cells(case: CaseResult, method: str, measures: Sequence[str]) -> list[str]:
    count = len(case.outcomes.get(method, {}))
    stopped = len(case.stopped.get(method, {}))
    if not count:
        why = "not run" if case.missing else f"{stopped} stopped" if stopped else "open"
        return [why, *[""] * (len(measures) + 3)]
    known = case.measures()
    cells = [_share(case.spread(method, name)) if name in known else "" for name in measures]
    means = {name: case.spread(method, name) for name in COSTS}
    mean = {name: one.mean for name, one in means.items() if one is not None}
    n = f"{count}, {stopped} stopped" if stopped else str(count)
    passes = _short(mean["forwards"] + mean["backwards"])
    return [n, *cells, f"{mean['epochs']:.0f}", words.duration(mean["seconds"]), passes]


def difference_rows(found: Comparison, *, per_seed: bool = True) -> Rows:
    """One row per case and method against the baseline, and where there are several cases one over all of them."""
    several = len(found.run_cases()) > 1
    per_seed = per_seed and 1 < len(found.seeds) < FEW_SEEDS
    names = [*(["case"] if several else []), "method", "points", "95 % over seeds", "95 % over images"]
    names += ["d", "win/tie/loss", *(["per seed"] if per_seed else [])]
    rows: list[list[str]] = []
    for case in found.run_cases():
        for method in found.methods:
            pair = None if method == found.baseline else case.pair(method, found.baseline, found.decides)
            if pair is not None:
                rows.append([*([case.name] if several else []), method, *_pair_cells(pair, per_seed)])
    if several:
        rows += _overall_rows(found, per_seed)
    return Rows(names, rows)


def _overall_rows(found: Comparison, per_seed: bool) -> list[list[str]]:
    rows = []
    for method in found.methods:
        pair = None if method == found.baseline else found.overall(method, found.baseline, found.decides)
        if pair is not None:
            cells = _pair_cells(pair, per_seed)
            cells[4] = (
                ""
                if pair.over_seeds.interval is None
                else "/".join(map(str, found.tally(method, found.baseline, found.decides))) + " cases"
            )
            rows.append(["all cases", method, *cells])
    return rows


def _pair_cells(pair: Pair, per_seed: bool) -> list[str]:
    seeds = pair.over_seeds
    cells = [
        _points(seeds.mean),
        "" if seeds.interval is None else _range(seeds.interval),
        "" if pair.over_images is None else _range(pair.over_images),
        "" if seeds.effect is None else words.plain(seeds.effect, 2),
        f"{seeds.wins}/{seeds.ties}/{seeds.losses}",
    ]
    return [*cells, *([", ".join(map(_points, seeds.differences))] if per_seed else [])]


def comparison_tables(found: Comparison) -> list[Table]:
    """For the terminal: the measures, and the differences where there is something to compare with."""
    shares = "in %, mean ± standard deviation over the seeds; robust: right on the image and on every variant; passes:"
    shares += " forwards and backwards of the training"
    about = f"points of {NAMES[found.decides]} above {found.baseline}; 95 % intervals: Student's t over seeds (would it"
    about += " happen again?), bootstrap over test images (these very models); d: Cohen's; seeds (over all: cases)"
    about += " won, tied, lost"
    differences = difference_rows(found, per_seed=False)
    return [
        _rich(measure_rows(found, short=True), shares),
        *([_rich(differences, about)] if differences.rows else []),
    ]


def _rich(rows: Rows, caption: str) -> Table:
    found = Table(caption=caption, box=box.SIMPLE_HEAD, caption_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for name in rows.names:
        text = name in ("case", "method")
        shown = name.replace(" over ", "\nover ").replace("/loss", "\n/loss")
        found.add_column(shown, justify="left" if text else "right", no_wrap=not text, overflow="fold")
    for cells in rows.rows:
        found.add_row(*map(Text, cells))
    return found


def numbers(found: Comparison) -> list[dict[str, Any]]:
    """One row per run, for a spreadsheet."""
    measures = found.measures()
    return [
        {"case": case.name, "method": method, "seed": seed}
        | {name: one.measures.get(name, "") for name in measures}
        | {name: getattr(one, name) for name in COSTS}
        for case in found.cases
        for method, seeds in case.outcomes.items()
        for seed, one in seeds.items()
    ]


def write_comparison(folder: Path, found: Comparison, *, command: str, notes: Sequence[str] = ()) -> None:
    """Writes comparison.json, table.csv, table.md, table.tex and page.html."""
    values = summary(found, command=command, versions=versions())
    write_whole(folder / "comparison.json", (json.dumps(values, indent=2, allow_nan=False) + "\n").encode())
    texts = comparison_texts(found)
    texts["md"] = "".join(f"{note}\n\n" for note in notes) + texts["md"]
    for name, text in texts.items():
        write_whole(folder / f"table.{name}", text.encode())
    page = template("comparison.html").render(
        heading=found.title,
        versions=versions(),
        answer=comparison_answer(found),
        notes=list(notes),
        bars=[{"name": case.name, "bars": _bars(found, case)} for case in found.run_cases()],
        not_run=[(case.name, case.missing) for case in found.cases if case.missing],
        stopped=_stopped(found),
        measures=measure_rows(found),
        differences=difference_rows(found),
        baseline=found.baseline,
        decides=NAMES[found.decides],
        seeds=words.plural(len(found.seeds), "seed"),
        curves=_curves(found),
        costs=_costs(found),
        legend=[(method, charts.swatch(at)) for at, method in enumerate(found.methods)],
        texts=[("Markdown", texts["md"]), ("LaTeX", texts["tex"]), ("CSV, one row per run", texts["csv"])],
        command=command,
        settings=flat(found.settings),
    )
    write_whole(folder / "page.html", page.encode())


def comparison_texts(found: Comparison) -> dict[str, str]:
    """The tables as Markdown, LaTeX and CSV, by the ending of their file."""
    both = [measure_rows(found), difference_rows(found)]
    both = [rows for rows in both if rows.rows]
    return {
        "md": "\n".join(map(as_markdown, both)),
        "tex": "\n".join(map(as_latex, both)),
        "csv": as_csv(numbers(found)),
    }


def _bars(found: Comparison, case: CaseResult) -> list[dict[str, Any]]:
    bars = []
    for method in found.methods:
        accuracy, robust = (case.spread(method, name) for name in ("accuracy", "robust"))
        if accuracy is not None and robust is not None:
            interval = _of_mean(list(case.values(method, "robust").values()))
            title = f"{method}: accuracy {words.percent(accuracy.mean)}, robust accuracy {words.percent(robust.mean)}"
            svg = charts.bar(accuracy.mean, robust.mean, interval, title)
            said = (words.percent(accuracy.mean), words.percent(robust.mean))
            bars.append({"name": method, "accuracy": said[0], "robust": said[1], "svg": svg})
    return bars


def _of_mean(values: Sequence[float]) -> Interval:
    """The t interval of a mean, inside 0..1; a single value has none."""
    low, high = paired(values, [0.0] * len(values)).interval or (values[0], values[0])
    return max(0.0, low), min(1.0, high)


def _curves(found: Comparison) -> list[Curves]:
    """The loss of what was trained on, per epoch (SENSEI, Figure 4), on a logarithmic axis."""
    drawn = []
    for case in found.run_cases():
        series = [Series(method, _loss(case, method), at) for at, method in enumerate(found.methods)]
        svg = charts.lines(
            [one for one in series if one.points],
            title=f"Training loss: {case.name}",
            x_label="epoch",
            y_said=lambda power: words.plain(10**power, 2),
        )
        drawn.append(Curves(case.name, svg, ()))
    return drawn


def _loss(case: CaseResult, method: str) -> tuple[tuple[float, float], ...]:
    logs = [one.log for one in case.outcomes.get(method, {}).values()]
    epochs = min(map(len, logs), default=0)
    means = [sum(log[at]["loss"] for log in logs) / len(logs) for at in range(epochs)]
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
            x_said=lambda power: _short(10**power),
            x_ticks=sorted({powers[0], powers[-1]}),
            y_said=lambda share: words.percent(share, 0),
            y_limits=(0.0,),
        )
        drawn.append(Curves(case.name, svg, ()))
    return drawn


def _stopped(found: Comparison) -> list[str]:
    return [
        f"{case.name}, {method}, seed {seed}: {why}"
        for case in found.cases
        for method, seeds in case.stopped.items()
        for seed, why in seeds.items()
    ]


def _share(found: Spread | None) -> str:
    if found is None:
        return ""
    return f"{100 * found.mean:.1f}" + ("" if found.deviation is None else f" ± {100 * found.deviation:.1f}")


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", words.MINUS)


def _range(interval: Interval) -> str:
    return f"{_points(interval[0])} to {_points(interval[1])}"


def _short(count: float) -> str:
    """12.3 M."""
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{words.THIN}{name}"
    return f"{count:.0f}"

"""A comparison as sentences, and as tables for the terminal and for papers."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.table import Table

from ukemi.comparing import Comparison
from ukemi.comparing.result import COSTS, CaseResult, Pair
from ukemi.measures.attacks import as_csv
from ukemi.measures.outputs import guessing
from ukemi.measures.statistics import FEWEST, Interval, Paired, Spread
from ukemi.reports import words
from ukemi.reports.comparison_costs import cost_said, loss_said
from ukemi.reports.terminal import deviates, fitted, terminal_table
from ukemi.reports.texts import Rows, as_latex, as_markdown

NAMES = {
    "robust": "robust accuracy",
    "accuracy": "accuracy",
    "attacked": "accuracy under attack",
    "robustness": "robustness under attack",
}
"""how the measures that may decide are called"""
PAPER = "paper"
COLUMNS = {
    "robust": "right on the image and on every variant of {grids}",
    PAPER: "the robust accuracy that the paper prints",
    "attacked": "right, and still under attack",
    "robustness": "1 \N{MINUS SIGN} fooled / recognised",
    "time": "that of the training",
    "passes": "its forwards and backwards",
}
"""what has to be said of columns"""
DIFFERENCES = {
    "95 % over seeds": "interval by Student's t (would it happen again?)",
    "95 % over images": "by bootstrap (these very models)",
    "d": f"Cohen's ({words.INFINITE}: neither method varies)",
    "win/tie/loss": "seeds (over all: cases)",
}
_BUDGET = re.compile(r"epsilon ([0-9.e-]+)")
FEW_SEEDS = 5
"""with fewer, the differences are shown seed by seed too"""


def comparison_answer(found: Comparison) -> list[str]:
    """Which method, by how much, how sure, and at what cost: in sentences."""
    ranked = found.ranked()
    parts = [_ranking(found, ranked), cost_said(found)] if ranked else [[_nothing(found)]]
    said = [one for part in (parts[::-1] if found.settings.get("cost_first") else parts) for one in part]
    said += [*loss_said(found), *_guessed(found)] if ranked else []
    stopped, failed = (_many([getattr(case, what) for case in found.cases]) for what in ("stopped", "failed"))
    left = {"stopped before the end": stopped, "failed; the same command tries again": failed}
    for what, many in (left | {"not finished yet": found.open - failed}).items():
        said += [f"{words.plural(many, 'run')} {what}."] * bool(ranked and many)
    return said


def _guessed(found: Comparison) -> list[str]:
    """Methods that learnt nothing: what they hold says nothing of how well they hold."""
    said = []
    for case in found.run_cases():
        classes = next((len(one.classes) for shown in case.shown.values() for one in shown.values()), 1)
        images = max(map(len, case.tested()), default=0)
        most = guessing(images, classes)
        means = {name: case.spread(name, "accuracy") for name in found.methods}
        names = [name for name, one in means.items() if one and one.mean * images <= most < images]
        knows = "recognises" if len(names) == 1 else "recognise"
        if names:
            said.append(f"On {case.name} {words.listed(names)} {knows} no more than guessing does. {words.SAME_ANSWER}")
    return said


def _many(cases: Sequence[Mapping[str, Mapping[int, str]]]) -> int:
    """Runs that have a reason."""
    return sum(len(seeds) for methods in cases for seeds in methods.values())


def reasons(found: Comparison) -> list[str]:
    """What keeps cases and runs from having numbers; once for all seeds with the same reason."""
    return [f"{case.name} was not run: {case.missing}." for case in found.cases if case.missing] + [
        f"{case.name}, {method}, {_seeds(seeds, why)} {what}: {why.rstrip('.')}."
        for case in found.cases
        for what, methods in (("stopped", case.stopped), ("failed", case.failed))
        for method, seeds in methods.items()
        for why in dict.fromkeys(seeds.values())
    ]


def _seeds(reasons: Mapping[int, str], why: str) -> str:
    seeds = [str(seed) for seed, said in reasons.items() if said == why]
    return f"seed{'s' * (len(seeds) > 1)} {words.listed(seeds)}"


def _ranking(found: Comparison, ranked: Sequence[str]) -> list[str]:
    cases, pair = found.shared() or found.run_cases(), found.answer()
    where = f"on {cases[0].name}" if len(cases) == 1 else f"on average over {len(cases)} cases"
    if len(cases) < len(found.run_cases()):
        only = ", the only one" if len(cases) == 1 else ", those"
        where += f"{only} of {len(found.run_cases())} that every method finished"
    best = found.mean(ranked[0])
    assert best is not None
    figure = f"{words.percent(best)} {NAMES[found.decides]} {where}"
    if len(ranked) == 1:
        only = ", the only method that finished," if len(found.methods) > 1 else ""
        return [f"{ranked[0]}{only} has {figure}."]
    if pair is None:
        return [f"{words.listed(ranked)} can't be ranked: there is no seed with which all of them finished every case."]
    if _tied(pair.over_seeds.mean):
        alike = [one for one in ranked if _tied(best - (found.mean(one) or 0))]
        return [f"{words.listed(alike)} hold equally well: {figure}.", *([_how_sure(pair)] if len(alike) == 2 else [])]
    return [
        f"{ranked[0]} holds best: {figure}, {100 * pair.over_seeds.mean:.1f} points above {pair.second}.",
        _how_sure(pair),
    ]


def _tied(difference: float) -> bool:
    """0.0 points, as they are shown."""
    return abs(100 * difference) < 0.05


def _nothing(found: Comparison) -> str:
    """Why there is no answer: the reason of the first training that stopped, where one did."""
    for case in found.cases:
        for method, seeds in case.stopped.items():
            for seed, why in seeds.items():
                return f"No run finished: {method} with seed {seed} on {case.name} stopped: {why.rstrip('.')}."
    return "No run is finished yet."


def _how_sure(pair: Pair) -> str:
    seeds = pair.over_seeds
    many = len(seeds.differences)
    if seeds.interval is None:
        sure = _not_known(seeds)
    elif seeds.verdict == "tie":
        sure = f"{many} seeds don't tell the two apart: the 95 % interval is {_range(seeds.interval)} points"
    else:
        sure = f"{many} seeds tell the two apart: the 95 % interval is {_range(seeds.interval)} points"
    if pair.over_images is None:
        return sure + "."
    it = "the 95 % interval" if seeds.interval is None else "it"
    return f"{sure}; for these very models on other images {it} is {_range(pair.over_images)} points."


def _not_known(seeds: Paired) -> str:
    """Why there is no interval over seeds."""
    many = len(seeds.differences)
    if many == 1:
        return "With one seed nothing is known about other seeds"
    if seeds.verdict == "tie":
        return f"The {many} seeds don't tell the two apart: each has the same for both"
    if many < FEWEST:
        return f"With {many} seeds no interval over other seeds is known: it takes {FEWEST}"
    return f"All {many} seeds have the same difference, so no interval over other seeds is known"


def measure_rows(found: Comparison, *, short: bool = False) -> Rows:
    """One row per case and method: n, the measures, what a paper prints beside them, and what they cost; `short` leaves
    out the groups of attacks, and the epochs where all methods have the same."""
    several, measures = len(found.cases) > 1, found.measures()
    measures = [name for name in measures if not (short and name.startswith(("attacked ", "robustness ")))]
    if any(case.printed for case in found.cases):
        measures.insert(measures.index("robust") + 1 if "robust" in measures else 0, PAPER)
    alike = short and len(_epochs(found)) <= len(found.run_cases())
    heads = [_BUDGET.sub(_in_levels, name) for name in measures]
    names = [*(["case"] if several else []), "method", "n", *heads, *([] if alike else ["epochs"]), "time", "passes"]
    if not found.run_cases():
        names = names[: names.index("n") + 1]
    rows: list[list[str]] = []
    for case in found.cases:
        for method in found.methods:
            cells = _method_cells(case, method, measures)
            rows.append([*([case.name] if several else []), method, *(cells[:-3] + cells[-2:] if alike else cells)])
    return Rows(names, [cells[: len(names)] for cells in rows])


def _in_levels(budget: re.Match[str]) -> str:
    """The name of a measure keeps six digits of 8/255, enough to know it by."""
    given = float(budget[1])
    near = round(given * 255) / 255
    return f"epsilon {words.budget(near if abs(near - given) < 1e-6 else given)}"


def _epochs(found: Comparison) -> set[tuple[str, int]]:
    runs = [(case, one) for case in found.run_cases() for seeds in case.outcomes.values() for one in seeds.values()]
    return {(case.name, one.epochs) for case, one in runs}


def _method_cells(case: CaseResult, method: str, measures: Sequence[str]) -> list[str]:
    count = len(case.outcomes.get(method, {}))
    unable = [(len(one.get(method, {})), what) for one, what in ((case.stopped, "stopped"), (case.failed, "failed"))]
    why = [f"{many} {what}" for many, what in unable if many]
    cells = [_measure_cell(case, method, name) for name in measures]
    if not count:
        return ["not run" if case.missing else ", ".join(why) or "open", *cells, *[""] * 3]
    means = {name: case.spread(method, name) for name in COSTS}
    mean = {name: one.mean for name, one in means.items() if one is not None}
    passes = short(mean["forwards"] + mean["backwards"])
    return [", ".join([str(count), *why]), *cells, f"{mean['epochs']:.0f}", words.duration(mean["seconds"]), passes]


def _measure_cell(case: CaseResult, method: str, name: str) -> str:
    if name == PAPER:
        return f"{case.printed[method]:g}" if method in case.printed else ""
    return _share(case.spread(method, name)) if name in case.measures() else ""


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
                "not known"
                if pair.over_seeds.interval is None
                else "/".join(map(str, found.tally(method, found.baseline, found.decides))) + " cases"
            )
            rows.append(["all cases", method, *cells])
    return rows


def _pair_cells(pair: Pair, per_seed: bool) -> list[str]:
    seeds, many = pair.over_seeds, len(pair.over_seeds.differences)
    cells = [
        _points(seeds.mean),
        "" if many == 1 else "not known" if seeds.interval is None else _range(seeds.interval),
        "" if pair.over_images is None else _range(pair.over_images),
        "" if many == 1 else _effect(seeds.effect, seeds.mean),
        f"{seeds.wins}/{seeds.ties}/{seeds.losses}",
    ]
    return [*cells, *([", ".join(map(_points, seeds.differences))] if per_seed else [])]


def comparison_tables(found: Comparison, width: int = 80) -> list[Table]:
    """For a terminal of this width, one per case: the measures, and differences where there is something to compare."""
    differences = difference_rows(found, per_seed=False)
    return [
        *_by_case(measure_rows(found, short=True), width, partial(about_measures, found)),
        *(_by_case(differences, width, partial(_about_differences, found)) if differences.rows else []),
    ]


def _about_differences(found: Comparison, rows: Rows) -> str:
    """What the columns mean that are there."""
    columns = (f"{name}: {about}" for name, about in DIFFERENCES.items() if name in rows.names)
    return "; ".join([f"points of {NAMES[found.decides]} above {found.baseline}", *columns])


def about_measures(found: Comparison, rows: Rows) -> str:
    """What the columns mean that are there."""
    if "accuracy" not in rows.names:
        return ""
    over = f", mean{' ± standard deviation' * deviates(rows)} over the seeds" if len(found.seeds) > 1 else ""
    over += _tested(found)
    first = dict.fromkeys(case.grids[0] for case in found.run_cases())
    grids = " or ".join(first) + ", as its case has it" * (len(first) > 1)
    columns = (f"{name}: {about.format(grids=grids)}" for name, about in COLUMNS.items() if name in rows.names)
    return "; ".join([f"in %{over}", *columns])


def sentence(said: str) -> str:
    return f"{said[0].upper()}{said[1:]}." if said else ""


def _tested(found: Comparison) -> str:
    """On how many test images, and whether every seed has its own: data without a test part are split by the seed."""
    cases = found.run_cases()
    many = _counts(cases, "accuracy")
    if not many:
        return ""
    attacked = _counts(cases, "attacked")
    fewer = f" ({attacked} under attack)" if attacked not in ("", many) else ""
    own = ", others with every seed" if any(len(case.tested()) > 1 for case in cases) else ""
    return f", on {many}{' test image' + 's' * (many != '1')}{fewer}{own}"


def _counts(cases: Sequence[CaseResult], measure: str) -> str:
    """60, or of several cases 60 to 1,000."""
    counts = sorted({len(images) for case in cases for images in case.tested(measure)})
    return " to ".join(dict.fromkeys(words.count(end) for end in (counts[0], counts[-1]))) if counts else ""


def _by_case(rows: Rows, width: int, caption: Callable[[Rows], str]) -> list[Table]:
    """Where there are several cases each is a heading: a column for them would leave none for the methods. The caption
    is of what fits."""
    if rows.names[0] != "case":
        return [terminal_table(rows, width, caption=caption(fitted(rows, width)))]
    cases = list(dict.fromkeys(cells[0] for cells in rows.rows))
    parts = [Rows(rows.names[1:], [cells[1:] for cells in rows.rows if cells[0] == case]) for case in cases]
    return [
        terminal_table(part, width, case, caption(fitted(part, width)) if case == cases[-1] else "")
        for case, part in zip(cases, parts, strict=True)
    ]


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


def comparison_texts(found: Comparison) -> dict[str, str]:
    """The tables as Markdown, LaTeX and CSV, by the ending of their file; the first two say what their columns mean."""
    both = ((measure_rows(found), about_measures), (difference_rows(found), _about_differences))
    told = [(" ".join(sentence(about(found, rows)).split()), rows) for rows, about in both if rows.rows]
    return {
        "md": "\n".join(f"{said}\n\n" * bool(said) + as_markdown(rows) for said, rows in told),
        "tex": "\n".join(f"% {said}\n" * bool(said) + as_latex(rows) for said, rows in told),
        "csv": as_csv(numbers(found)),
    }


def _share(found: Spread | None) -> str:
    if found is None:
        return ""
    return f"{100 * found.mean:.1f}" + ("" if found.deviation is None else f" ± {100 * found.deviation:.1f}")


def _points(share: float) -> str:
    return words.signed(100 * share)


def _effect(size: float | None, difference: float) -> str:
    if size is None:  # neither method varies
        return words.INFINITE if difference > 0 else words.MINUS + words.INFINITE
    said = f"{size:#.2g}".removesuffix(".") if abs(size) < 99.5 else f"{size:,.0f}"  # 3.0 stands beside 2.7
    return said.replace("-", words.MINUS)


def _range(interval: Interval) -> str:
    return f"{_points(interval[0])} to {_points(interval[1])}"


def short(count: float) -> str:
    """12.3 M."""
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:  # 999.9 k in three digits is 1 M
            return f"{count / size:.3g}{words.THIN}{name}"
    return f"{count:.0f}"

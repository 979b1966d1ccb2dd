"""What gets past each defence: a table, a page, and JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table
from rich.text import Text

from ukemi.defences import FALSE_POSITIVES, Judged, Study
from ukemi.defences.study import COMMON
from ukemi.reports import words
from ukemi.reports.terminal import captioned
from ukemi.reports.uncertainty import thresholds_row
from ukemi.reports.writing import finite, ran, versions, write_html, write_numbers
from ukemi.uncertainty import PATTERNS

SCHEMA = 1
"""Version of the summary's fields: raised when one changes its meaning or goes."""


@dataclass(frozen=True)
class DefenceReport:
    """All that is shown about one study."""

    title: str
    study: Study
    found_by: str
    """where the thresholds of the patterns come from"""
    settings: Mapping[str, Any]
    device: str
    seconds: float
    left_out: Mapping[str, str] = field(default_factory=dict)
    """defences that this model can't wear, each with the reason"""


def defence_table(study: Study, kinds: Mapping[str, str]) -> Table:
    """One row per defence: benign images lost, the share of each kind of source that passes, and of the patterns.

    `kinds` says of every source whether it is attacked, fuzzed or generated.
    """
    common, uncommon = _inputs(study)
    about = (
        "benign: lost of the recognised ones; the rest: of the inputs that fool the bare model, how many pass; common:"
        f" pattern {COMMON} ({common}), uncommon: LL, HL, HH ({uncommon}); ×: uncommon over common"
    )
    sorts = list(dict.fromkeys(kinds.values()))
    room = 1 if len(sorts) < 3 else 0  # all three kinds, and names in one piece, in 80 columns
    found = captioned(about, padding=(0, room, 0, 0))
    found.add_column("passes %", overflow="fold")
    for name in ("benign", *sorts, "common", "uncommon", "×"):
        found.add_column(name, justify="right", no_wrap=True)
    for one in study.judged:
        sources = [[name for name in kinds if kinds[name] == sort] for sort in sorts]
        shares = [one.false_positives, *(study.share(one, *names) for names in sources)]
        cells = [_percent(share) for share in (*shares, *study.halves(one))]
        ratio = _times(study.ratio(one)).removeprefix("× ")
        found.add_row(Text(one.name), *(cell.removesuffix(f"{words.THIN}%") for cell in cells), ratio)
    return found


def _inputs(study: Study) -> tuple[str, str]:
    """How many inputs the shares of the common pattern and of the uncommon ones rest on."""
    counts = study.counts()
    common = counts.pop(COMMON)
    return words.plural(common, "input"), words.plural(sum(counts.values()), "input")


def columns(study: Study) -> list[str]:
    return ["benign", *study.fooling(), "uncommon"]


def rows_of(study: Study) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.name, _cells(study, one)) for one in study.judged]


def _cells(study: Study, one: Judged) -> tuple[str, ...]:
    shares = [one.false_positives, *(study.share(one, name) for name in study.fooling())]
    return (*(_percent(share) for share in shares), _times(study.ratio(one)))


def _percent(share: float) -> str:
    return words.percent(share) if isfinite(share) else "–"


def _times(ratio: float) -> str:
    if ratio == inf:
        return "× ∞"
    return f"× {ratio:.2f}" if isfinite(ratio) else "–"


def defence_summary(report: DefenceReport) -> dict[str, Any]:
    """All numbers as JSON knows them; what is not finite is None."""
    study = report.study
    return {
        "schema": SCHEMA,
        "title": report.title,
        "false_positives_allowed": FALSE_POSITIVES,
        "thresholds": thresholds_row(study.profile.thresholds) | {"found_by": report.found_by},
        "common_pattern": COMMON,
        "sources": {
            name: {"images": len(fooling), "fooling": int(fooling.sum())} for name, fooling in study.fooling().items()
        },
        "patterns": study.counts(),
        "defences": [_row(study, one) for one in study.judged],
        "mean_uncommon_ratio": mean(_ratios(study)) if _ratios(study) else None,
        "left_out": dict(report.left_out),
        "settings": dict(report.settings),
        "seconds": report.seconds,
        "device": report.device,
        "versions": versions(),
    }


def _row(study: Study, one: Judged) -> dict[str, Any]:
    return {
        "defence": one.name,
        "kind": one.kind,
        "accuracy": one.accuracy,
        "false_positives": finite(one.false_positives),
        "passes": {name: finite(study.share(one, name)) for name in study.fooling()},
        "passes_by_pattern": {name: finite(share) for name, share in study.by_pattern(one).items()},
        "uncommon_ratio": finite(study.ratio(one)),
    }


def _ratios(study: Study) -> list[float]:
    """Those that are a number."""
    return [ratio for ratio in map(study.ratio, study.judged) if isfinite(ratio)]


def write_defences(folder: Path, report: DefenceReport) -> None:
    """Writes defences.json and page.html."""
    write_numbers(folder / "defences.json", defence_summary(report))
    study = report.study
    write_html(
        folder / "page.html",
        "defences.html",
        heading=f"What gets past the defences of {report.title}",
        glance=_glance(report),
        columns=columns(study),
        rows=rows_of(study),
        patterns=PATTERNS,
        counts=[(name, (words.count(count),)) for name, count in study.counts().items()],
        by_pattern=[
            (one.name, (one.kind, *(_percent(share) for share in study.by_pattern(one).values())))
            for one in study.judged
        ],
        left_out=sorted(report.left_out.items()),
        common=COMMON,
        allowed=words.percent(FALSE_POSITIVES),
        settings=ran(report.seconds, report.device, report.settings),
    )


def _glance(report: DefenceReport) -> list[str]:
    study, said = report.study, []
    passing = {one.name: study.share(one) for one in study.judged}
    known = {name: share for name, share in passing.items() if isfinite(share)}
    if known:
        low, high = min(known.values()), max(known.values())
        ends = f"fewest pass {_names(known, low)}, most pass {_names(known, high)}"
        told = ends if low < high else f"{words.percent(low)} pass {words.listed(list(known))}"
        said.append(f"Of the inputs that fool the bare model, {told}.")
    if study.profile.empty:
        said.append(f"No image came of {words.listed(list(study.profile.empty))}.")
    if ratios := _ratios(study):
        more = f"{words.percent(abs(mean(ratios) - 1), 0)} {'more' if mean(ratios) >= 1 else 'less'} often"
        some = f"{len(ratios)} of {len(study.judged)} defences that some of {COMMON} pass"
        over = "the defences" if len(ratios) == len(study.judged) else some
        common, uncommon = _inputs(study)
        said.append(
            f"Inputs of uncommon patterns ({uncommon}) pass {more} than those of {COMMON} ({common}), over {over}."
        )
    return said


def _names(shares: Mapping[str, float], share: float) -> str:
    return f"{words.listed([name for name, one in shares.items() if one == share])} ({words.percent(share)})"

"""Whether a model notices that it breaks: the scatter of PCS and VR, and what it says."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from ukemi.comparing import Comparison
from ukemi.comparing.result import CaseResult
from ukemi.measures.doubts import PASSES, RATE, Doubted, Doubts
from ukemi.reports import charts, words
from ukemi.reports.charts import Series
from ukemi.reports.curves import Curves
from ukemi.reports.gallery import name_of
from ukemi.reports.side_by_side import same_seed

NAMES = ("recognised unchanged", "the variant that broke it")


def doubts_section(found: Doubts | None, classes: tuple[str, ...]) -> dict[str, Any] | None:
    """What the template shows; nothing where nothing was asked."""
    if found is None:
        return None
    return {"said": _said(found), "legend": legend(), "svg": _scatter(found, classes, "Images and broken variants")}


def doubts_compared(found: Comparison) -> list[dict[str, Any]]:
    """The same of every method, per case: numbers over all seeds, the scatter of one seed that most methods have."""
    cases = [one for one in map(_compared, found.run_cases()) if one["rows"]]
    masks = _masks(inserted for one in cases for inserted in one["inserted"])
    return [{**one, "masks": masks, "passes": PASSES} for one in cases]


def legend() -> list[tuple[str, Any]]:
    return [(name, charts.dot(at)) for at, name in enumerate(NAMES)]


def _compared(case: CaseResult) -> dict[str, Any]:
    asked = {method: [one.doubts for one in seeds.values() if one.doubts] for method, seeds in case.shown.items()}
    rows = [
        (
            method,
            len(some),
            words.percent(fmean(one.unnoticed / len(one.broken.found) for one in some)),
            *(words.percent(fmean(one.auroc[name] for one in some)) for name in ("pcs", "vr")),
        )
        for method, some in asked.items()
        if some
    ]
    figures = [
        Curves(method, _scatter(one.doubts, one.classes, f"{method}: images and broken variants"), ())
        for method, one in same_seed(case).items()
        if one.doubts
    ]
    inserted = {one.inserted for some in asked.values() for one in some}
    return {"name": case.name, "rows": rows, "figures": figures, "inserted": inserted}


def _scatter(found: Doubts, classes: tuple[str, ...], title: str) -> Any:
    sources = zip(NAMES, (found.recognised, found.broken), strict=True)
    series = [_series(name, one, at, classes) for at, (name, one) in enumerate(sources)]
    return charts.scatter(series, title=f"{title} by PCS and VR", x_label="PCS", y_label="VR", x_rules=[found.limit])


def _masks(inserted: Iterable[bool]) -> str:
    """By whether a dropout was put into each of some networks."""
    kinds, new = set(inserted), f"dropout of {RATE:g} before its classifier"
    if len(kinds) > 1:
        return f"its own dropout (where it has none: {new})"
    return new if kinds == {True} else "its own dropout"


def doubts_summary(found: Doubts | None) -> dict[str, Any] | None:
    """The same as numbers."""
    if found is None:
        return None
    return {
        "passes": PASSES,
        "dropout_inserted": RATE if found.inserted else None,
        "recognised": len(found.recognised.found),
        "broken": len(found.broken.found),
        "limit": found.limit,
        "unnoticed": found.unnoticed,
        "auroc": found.auroc,
    }


def _said(found: Doubts) -> list[str]:
    broken, share = len(found.broken.found), found.unnoticed / len(found.broken.found)
    return [
        f"Of {words.plural(broken, 'variant')} that break it, it is as sure of {words.count(found.unnoticed)}"
        f" ({words.percent(share, 0)}) as of three quarters of the images that it recognises: right of the"
        f" dashed line, PCS {words.below_one(found.limit, 2)} or more.",
        f"PCS is the lead of the first class over the second; VR is the share of {PASSES} passes with"
        f" {_masks([found.inserted])} that change the answer. A broken variant has the lower PCS in"
        f" {words.percent(found.auroc['pcs'], 0)} of all pairs (50 % is chance), and the higher VR in"
        f" {words.percent(found.auroc['vr'], 0)}.",
    ]


def _series(name: str, one: Doubted, at: int, classes: tuple[str, ...]) -> Series:
    columns = (one.found.pcs, one.found.vr, one.index, one.labels, one.found.prediction)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    tips = tuple(
        f"image {index}, {name_of(classes, label)}: {_taken(classes, label, guess)}; PCS {words.below_one(pcs, 2)},"
        f" VR {vr:.2f}"
        for pcs, vr, index, label, guess in rows
    )
    return Series(name, tuple((pcs, vr) for pcs, vr, *_ in rows), at, tips)


def _taken(classes: tuple[str, ...], label: int, guess: int) -> str:
    return "recognised" if guess == label else f"taken for {name_of(classes, guess)}"

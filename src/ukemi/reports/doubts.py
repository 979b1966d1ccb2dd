"""Whether a model notices that it breaks: the scatter of PCS and VR, and what it says."""

from typing import Any

from ukemi.measures.doubts import PASSES, RATE, Doubted, Doubts
from ukemi.reports import charts, words
from ukemi.reports.charts import Series
from ukemi.reports.gallery import name_of

NAMES = ("recognised unchanged", "the variant that broke it")


def doubts_section(found: Doubts | None, classes: tuple[str, ...]) -> dict[str, Any] | None:
    """What the template shows; nothing where nothing was asked."""
    if found is None:
        return None
    sources = dict(zip(NAMES, (found.recognised, found.broken), strict=True))
    series = [_series(name, one, at, classes) for at, (name, one) in enumerate(sources.items())]
    return {
        "said": _said(found),
        "legend": [(one.name, charts.swatch(one.style)) for one in series],
        "svg": charts.scatter(
            series, title="Images and broken variants by PCS and VR", x_label="PCS", y_label="VR", x_rules=[found.limit]
        ),
    }


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
    masks = f"dropout of {RATE:g} before its classifier" if found.inserted else "its own dropout"
    return [
        f"Of {words.plural(broken, 'variant')} that break it, it is as sure of {words.count(found.unnoticed)}"
        f" ({words.percent(share, 0)}) as of three quarters of the images that it recognises: right of the"
        f" dashed line, PCS {words.plain(found.limit, 2)} or more.",
        f"PCS is the lead of the first class over the second; VR is the share of {PASSES} passes with {masks} that"
        f" change the answer. A broken variant has the lower PCS in {words.percent(found.auroc['pcs'], 0)} of all pairs"
        f" (50 % is chance), and the higher VR in {words.percent(found.auroc['vr'], 0)}.",
    ]


def _series(name: str, one: Doubted, at: int, classes: tuple[str, ...]) -> Series:
    columns = (one.found.pcs, one.found.vr, one.index, one.labels, one.found.prediction)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    tips = tuple(
        f"image {index}, {name_of(classes, label)}: {_taken(classes, label, guess)}; PCS {pcs:.2f}, VR {vr:.2f}"
        for pcs, vr, index, label, guess in rows
    )
    return Series(name, tuple((pcs, vr) for pcs, vr, *_ in rows), at, tips)


def _taken(classes: tuple[str, ...], label: int, guess: int) -> str:
    return "recognised" if guess == label else f"taken for {name_of(classes, guess)}"

"""How well each method searches: as a table, a page with curves, and JSON."""

import json
from collections.abc import Mapping
from math import isfinite, log10
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich import box
from rich.table import Table
from rich.text import Text
from torch import Tensor

from ukemi.measures.inner import MethodQuality, SearchQuality
from ukemi.reports import charts, words
from ukemi.reports.charts import COLOURS, Series
from ukemi.reports.curves import Curves
from ukemi.reports.page import _template, flat
from ukemi.reports.summary import versions
from ukemi.training.checkpoints import write_whole

SCHEMA = 1
"""Version of the summary's fields: raised when one changes its meaning or goes."""
GRID = COLOURS - 1
"""the style of the grid's line: the last colour, a grey, which no method gets"""
_TICKS = (1, 2, 5)


def search_table(quality: SearchQuality) -> Table:
    """One row per method and one for the grid; ± is the standard deviation over the seeds."""
    about = (
        f"{words.plural(len(quality.grid), 'image')}, weights at rest; loss: the highest found, mean over images"
        f" (unchanged {_plain(quality.clean)}); trained loss: that of the last generation's variant"
    )
    found = Table(caption=about, box=box.SIMPLE_HEAD, caption_justify="left")
    columns = _columns(quality)
    found.add_column(columns[0], overflow="fold")
    for name in columns[1:]:
        found.add_column(name, justify="right")
    for name, cells in _rows(quality):
        found.add_row(Text(name), *cells)
    return found


def search_summary(quality: SearchQuality, **about: Any) -> dict[str, Any]:
    """All numbers as JSON knows them, behind whatever `about` says; deviations are None for a single seed."""
    return {
        "schema": SCHEMA,
        **about,
        "images": len(quality.grid),
        "space": quality.space.name,
        "variants": len(quality.rows),
        "generations": quality.generations,
        "forwards_per_image": quality.budget,
        "seeds": list(quality.seeds),
        "clean_loss": _mean(quality.clean),
        "grid_loss": _mean(quality.grid),
        "methods": {name: _method(one, len(quality.rows)) for name, one in quality.methods.items()},
        "versions": versions(),
    }


def write_search(
    folder: Path, quality: SearchQuality, *, title: str, settings: Mapping[str, Any], seconds: float, device: str
) -> None:
    """Writes search.json and page.html; `settings` are plain values that JSON knows."""
    about = {"title": title, "settings": dict(settings), "seconds": seconds, "device": device}
    text = json.dumps(search_summary(quality, **about), indent=2, allow_nan=False) + "\n"
    write_whole(folder / "search.json", text.encode())
    page = _template("search.html").render(
        heading=f"How well {title} is searched",
        versions=versions(),
        glance=search_glance(quality),
        columns=_columns(quality),
        rows=_rows(quality),
        curves=_curves(quality),
        legend=_legend(quality),
        points=_points(quality),
        variants=words.count(len(quality.rows)),
        budget=words.count(quality.budget),
        seeds=words.plural(len(quality.seeds), "seed"),
        settings=[("time", words.duration(seconds)), ("device", device), *flat(settings)],
    )
    write_whole(folder / "page.html", page.encode())


def search_glance(quality: SearchQuality) -> list[str]:
    """What was found, in sentences."""
    ranked = sorted(quality.methods.values(), key=lambda one: -float(one.share().mean()))
    best = ranked[0]
    images = words.plural(len(quality.grid), "image")
    said = [
        f"The worst of {words.plural(len(quality.rows), 'variant')} of each of {images} has a mean loss of"
        f" {_plain(quality.grid)}; unchanged it is {_plain(quality.clean)}."
    ]
    if len(ranked) == 1:
        said.append(
            f"In {words.count(quality.budget)} forward passes per image {best.name} finds {_share(best)} of it."
        )
    else:
        said.append(
            f"In {words.count(quality.budget)} forward passes per image {best.name} finds {_share(best)} of it, the"
            f" most, and {ranked[-1].name} {_share(ranked[-1])}, the least."
        )
    return said


def _columns(quality: SearchQuality) -> tuple[str, ...]:
    """The last two shares say the same where the budget is no more than the grid's own number."""
    early = _early(quality)
    at = (f"of the grid's at {words.count(early)} passes",) if early else ()
    return ("method", "passes per image", "loss found", "of the grid's", *at, "images at the grid's", "trained loss")


def _early(quality: SearchQuality) -> int:
    """The grid's own number of passes, where methods had more; else 0."""
    return len(quality.rows) if len(quality.rows) < quality.budget else 0


def _rows(quality: SearchQuality) -> list[tuple[str, tuple[str, ...]]]:
    early = _early(quality)
    rows = []
    for name, one in quality.methods.items():
        shares = [one.share(), *([one.share(early)] if early else []), one.reached()]
        cells = [_passes(one), _spread(_means(one.best)[:, -1]), *map(_percent, shares)]
        rows.append((name, (*cells, _spread(_means(one.current)[:, -1]))))
    whole = words.percent(1.0)
    at = [whole] * bool(early)
    rows.append(("the grid", (words.count(len(quality.rows)), _plain(quality.grid), whole, *at, whole, "")))
    return rows


def _method(one: MethodQuality, variants: int) -> dict[str, Any]:
    best_ST, current_ST = _means(one.best), _means(one.current)
    return {
        "forwards_per_image": float(one.forwards[-1]),
        "generations": len(one.forwards),
        "best_loss": _both(best_ST[:, -1]),
        "share_of_grid": _both(one.share()),
        "share_of_grid_at_its_passes": _both(one.share(variants)),
        "reached": _both(one.reached()),
        "trained_loss": _both(current_ST[:, -1]),
        "trained_loss_over_generations": _both(current_ST.mean(1)),
        "curve": {
            "forwards_per_image": one.forwards.tolist(),
            "best_loss": best_ST.mean(0).tolist(),
            "trained_loss": current_ST.mean(0).tolist(),
        },
    }


def _curves(quality: SearchQuality) -> list[Curves]:
    """Two charts over the passes per image on a logarithmic axis, where equal distances are equal factors."""
    styles = _styles(quality)
    first = min(float(one.forwards[0]) for one in quality.methods.values())
    last = max(float(one.forwards[-1]) for one in quality.methods.values())
    level = _mean(quality.grid)
    line = Series("the grid", ((log10(first), level), (log10(last), level)), GRID)
    drawn = []
    for title, losses in (("Highest loss so far", "best"), ("Loss of the variant to train on", "current")):
        series = [
            Series(name, _line(one.forwards, _means(getattr(one, losses)).mean(0)), styles[name])
            for name, one in quality.methods.items()
        ]
        svg = charts.lines(
            [line, *series],
            title=title,
            x_label="forward passes per image",
            x_said=lambda power: words.count(round(10**power)),
            x_ticks=[log10(tick) for tick in _ticks(first, last)],
        )
        drawn.append(Curves(title, svg, ()))
    return drawn


def _ticks(first: float, last: float) -> list[float]:
    """The ends and the 1, 2 and 5 of every power of ten between them that keep clear of the ends."""
    between = [float(factor * 10**power) for power in range(7) for factor in _TICKS]
    return [first, *(tick for tick in between if 1.6 * first < tick < last / 1.6), last]


def _legend(quality: SearchQuality) -> list[tuple[str, Markup]]:
    named = [(name, charts.swatch(style)) for name, style in _styles(quality).items()]
    return [*named, ("the grid's highest loss", charts.swatch(GRID))]


def _styles(quality: SearchQuality) -> dict[str, int]:
    """Colours in turn without the grid's; from the second round on they are dashed."""
    free = [style for style in range(len(quality.methods) * 2 + COLOURS) if style % COLOURS != GRID]
    return dict(zip(quality.methods, free, strict=False))


def _points(quality: SearchQuality) -> dict[str, Any]:
    """The curve of the highest loss as numbers, at a few passes."""
    last = quality.budget
    at = [tick for tick in _ticks(1, last) if tick >= min(10, last)]
    rows = []
    for name, one in quality.methods.items():
        means_T = _means(one.best).mean(0)
        fitting = [int((one.forwards <= tick + 1e-6).sum()) - 1 for tick in at]
        rows.append((name, tuple("" if place < 0 else _said(float(means_T[place])) for place in fitting)))
    return {"columns": tuple(words.count(round(tick)) for tick in at), "rows": rows}


def _line(forwards_T: Tensor, losses_T: Tensor) -> tuple[tuple[float, float], ...]:
    return tuple((log10(x), y) for x, y in zip(forwards_T.tolist(), losses_T.tolist(), strict=True) if x > 0)


def _means(losses_STN: Tensor) -> Tensor:
    """Mean over the images, float64 `[S, T]`."""
    return losses_STN.double().mean(2)


def _mean(losses: Tensor) -> float:
    return float(losses.double().mean())


def _both(values_S: Tensor) -> dict[str, float | None]:
    """Mean and standard deviation over the seeds; what is not finite (a share of a grid without loss) is None."""
    mean = float(values_S.mean())
    deviation = float(values_S.std()) if len(values_S) > 1 else None
    return {
        "mean": mean if isfinite(mean) else None,
        "deviation": None if deviation is None or not isfinite(deviation) else deviation,
    }


def _passes(one: MethodQuality) -> str:
    return words.count(round(float(one.forwards[-1])))


def _said(loss: float) -> str:
    return f"{loss:.3f}"


def _plain(losses: Tensor) -> str:
    return _said(_mean(losses))


def _spread(values_S: Tensor) -> str:
    deviation = _both(values_S)["deviation"]
    return _said(float(values_S.mean())) + ("" if deviation is None else f" ± {deviation:.3f}")


def _percent(shares_S: Tensor) -> str:
    both = _both(shares_S)
    if both["mean"] is None:
        return "none"
    tail = "" if both["deviation"] is None else f" ± {100 * both['deviation']:.1f}"
    return f"{100 * both['mean']:.1f}{tail}{words.THIN}%"


def _share(one: MethodQuality) -> str:
    return words.percent(float(one.share().mean()))

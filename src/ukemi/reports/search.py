"""How well each method searches: as a table, a page with curves, and JSON."""

from collections.abc import Mapping
from math import log10
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.table import Table
from rich.text import Text
from torch import Tensor

from ukemi.measures.inner import MethodQuality, SearchQuality
from ukemi.reports import charts, words
from ukemi.reports.charts import COLOURS, Series
from ukemi.reports.curves import Curves
from ukemi.reports.terminal import captioned
from ukemi.reports.writing import finite, ran, versions, write_html, write_numbers

SCHEMA = 1
"""Version of the summary's fields: raised when one changes its meaning or goes."""
GRID = COLOURS - 1
"""the style of the grid's line: the last colour, a grey, which no method gets"""
APART = 1.25
"""a point of a curve is drawn where it has this many times the passes of the one before"""
_TICKS = (1, 2, 5)


def search_table(quality: SearchQuality) -> Table:
    """One row per method and one for the grid, in 80 columns."""
    early = _early(quality)
    alike = {_passes(one) for one in quality.methods.values()} == {words.count(quality.budget)}
    found = captioned(_caption(quality))
    found.add_column("method", overflow="fold")
    passes, at = ["passes"] * (not alike), [f"after\n{words.count(early)}"] * bool(early)
    for name in (*passes, "loss", "% of\ngrid", *at, "% at\ngrid", "trained"):
        found.add_column(name, justify="right", no_wrap=True)
    for name, cells in _rows(quality):
        found.add_row(Text(name), *(cell.replace(" ± ", "±") for cell in cells[alike:]))
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
    write_numbers(folder / "search.json", search_summary(quality, **about))
    write_html(
        folder / "page.html",
        "search.html",
        heading=f"How well each method searches: {title}",
        glance=search_glance(quality),
        columns=_columns(quality),
        rows=_rows(quality),
        curves=_curves(quality),
        legend=_legend(quality),
        points=_points(quality),
        variants=words.count(len(quality.rows)),
        budget=words.count(quality.budget),
        seeds=words.plural(len(quality.seeds), "seed"),
        settings=ran(seconds, device, settings),
    )


def search_glance(quality: SearchQuality) -> list[str]:
    """What was found, in sentences."""
    ranked = sorted(quality.methods.values(), key=lambda one: -float(one.share().mean()))
    images = words.plural(len(quality.grid), "image")
    rest = f", the most, and {ranked[-1].name} {_share(ranked[-1])}, the least" if len(ranked) > 1 else ""
    return [
        f"The worst of {words.plural(len(quality.rows), 'variant')} of each of {images} has a mean loss of"
        f" {_plain(quality.grid)}; unchanged it is {_plain(quality.clean)}.",
        f"In {words.count(quality.budget)} forward passes per image {ranked[0].name} finds {_share(ranked[0])} of the"
        f" grid's loss{rest}.",
    ]


def _caption(quality: SearchQuality) -> str:
    grid, early = words.count(len(quality.rows)), _early(quality)
    said = [
        f"{words.plural(len(quality.grid), 'image')}, weights at rest; {words.count(quality.budget)} forward passes per"
        f" image for a method, {grid} for the grid.",
        f"Loss: the highest that was found, mean over the images (unchanged: {_plain(quality.clean)}), and as a share"
        " of the grid's" + (f", also after {grid} passes." if early else "."),
        "At grid: images with a loss at least as high as the grid's.",
        "Trained: the loss of the last generation's variant.",
    ]
    if len(quality.seeds) > 1:
        said.append(f"±: standard deviation over {len(quality.seeds)} seeds.")
    return " ".join(said)


def _columns(quality: SearchQuality) -> tuple[str, ...]:
    early = _early(quality)
    shares = ["of the grid's, %", *[f"after {words.count(early)} passes, %"] * bool(early), "images at the grid's, %"]
    return ("method", "passes per image", "loss found", *shares, "trained loss")


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
    whole = ["100.0"] * (3 if early else 2)
    rows.append(("the grid", (words.count(len(quality.rows)), _plain(quality.grid), *whole, "")))
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
    return [first, *(tick for tick in between if 1.6 * first < tick < last / 1.6), *([last] if last > first else [])]


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
    """Points that stand apart on a logarithmic axis, the last among them."""
    kept: list[tuple[float, float]] = []
    for x, y in zip(reversed(forwards_T.tolist()), reversed(losses_T.tolist()), strict=True):
        if not kept or log10(APART * x) <= kept[-1][0]:
            kept.append((log10(x), y))
    return tuple(reversed(kept))


def _means(losses_STN: Tensor) -> Tensor:
    """Mean over the images, float64 `[S, T]`."""
    return losses_STN.double().mean(2)


def _mean(losses: Tensor) -> float:
    return float(losses.double().mean())


def _both(values_S: Tensor) -> dict[str, float | None]:
    """Mean and standard deviation over the seeds; what is not finite (a share of a grid without loss) is None."""
    deviation = finite(float(values_S.std())) if len(values_S) > 1 else None
    return {"mean": finite(float(values_S.mean())), "deviation": deviation}


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
    mean, deviation = _both(shares_S).values()
    if mean is None:
        return "none"
    return f"{100 * mean:.1f}" + ("" if deviation is None else f" ± {100 * deviation:.1f}")


def _share(one: MethodQuality) -> str:
    return words.percent(float(one.share().mean()))

"""How large a comparison's page is and how long it takes to open, in headless Chromium.

    OMP_NUM_THREADS=1 python benchmarks/page_load.py --side 32 --out results/page-load-cpu.md

The outcomes are synthetic: 4 methods x 5 seeds with ten broken images each, and all pictures are noise, which no PNG
can compress. The time is from the start of navigation to the end of the load event, scripts run and layout done.
"""

import argparse
import platform
from math import sin
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

import torch

import ukemi
from ukemi import named_grid, vary
from ukemi.comparing import Comparison
from ukemi.comparing.outcomes import Outcome
from ukemi.comparing.result import CaseResult
from ukemi.comparing.shown import ASKED, Shown
from ukemi.measures.doubts import Doubted, Doubts
from ukemi.measures.examples import Broken, Sweep, Terrain, swept_axes
from ukemi.measures.sensitivity import Landscape, landscape_axes
from ukemi.reports import write_comparison
from ukemi.uncertainty import Uncertainty

METHODS = ("standard", "random", "worst-of-10", "sensei")
SEEDS, EPOCHS, BROKEN, NEAR, TESTED = 5, 30, 10, 4, 1000
CLASSES = tuple(f"class {at}" for at in range(10))
CHROMIUM = "/usr/bin/chromium"


def comparison(side: int, grid: str = "t3-81", classes: tuple[str, ...] = CLASSES) -> Comparison:
    """20 runs with 200 broken images of 3 x side x side."""
    outcomes = {name: {seed: _outcome(at, seed) for seed in range(SEEDS)} for at, name in enumerate(METHODS)}
    shown = {name: {seed: _shown(side, grid, classes, seed) for seed in range(SEEDS)} for name in METHODS}
    case = CaseResult("noise", (grid,), outcomes, {}, "", shown)
    settings = {"seeds": SEEDS, "train": {"epochs": EPOCHS}}
    return Comparison("20 runs", METHODS, METHODS[0], "robust", tuple(range(SEEDS)), (case,), 0, settings)


def _outcome(method: int, seed: int) -> Outcome:
    robust = 0.2 * method + 0.01 * seed
    kept = {"accuracy": torch.arange(TESTED) < 0.9 * TESTED, "robust": torch.arange(TESTED) < robust * TESTED}
    log = [_line(epoch, method) for epoch in range(EPOCHS)]
    measures = {"accuracy": 0.9, "robust": robust}
    return Outcome(measures, kept, dict.fromkeys(kept, torch.arange(TESTED)), EPOCHS, 60.0, 3.0, 10**6, 10**6, log)


def _line(epoch: int, method: int) -> dict[str, Any]:
    line: dict[str, Any] = {"epoch": epoch, "loss": 2 / (epoch + 1), "images": 6000, "seconds": 2.0 * (epoch + 1)}
    if method:
        ends = {"low": -1.0, "high": 1.0, "levels": 61}
        counts = [round(400 + 200 * sin(at + epoch / 9)) for at in range(15)]
        line["genes"] = [{"gene": name, **ends, "counts": counts} for name in ("rotation", "translate_x", "shear")]
    return line


def _shown(side: int, grid: str, classes: tuple[str, ...], seed: int) -> Shown:
    space, rows = named_grid(grid, (side, side))
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(BROKEN, 3, side, side, generator=generator)
    genes = rows[torch.randint(len(rows), (BROKEN,), generator=generator)]
    variants = vary(images, genes, space)
    gallery = tuple(
        Broken(at, images[at], variants[at], at % len(classes), (at + 1) % len(classes), tuple(genes[at].tolist()), 3.0)
        for at in range(BROKEN)
    )
    ground, swept = landscape_axes(space), swept_axes(space)
    losses = torch.rand(len(ground[0].values), len(ground[-1].values), generator=generator) * 5
    scene = Landscape(ground[0], ground[-1], losses, losses > 2.5)
    guesses = tuple(tuple(at % 2 for at, _ in enumerate(axis.values)) for axis in swept)
    sure = tuple((0.5,) * len(axis.values) for axis in swept)
    return Shown(
        space,
        classes,
        gallery,
        tuple(Terrain(at, images[at], 0, scene) for at in range(NEAR)),
        tuple(Sweep(at, images[at], 0, swept, guesses, sure) for at in range(NEAR)),
        Doubts(_asked(classes, generator), _asked(classes, generator), inserted=True),
    )


def _asked(classes: tuple[str, ...], generator: torch.Generator) -> Doubted:
    confidence, pcs, vr, pe, mi = (torch.rand(ASKED, generator=generator) for _ in range(5))
    at = torch.arange(ASKED)
    asked = Uncertainty((at + 1) % len(classes), confidence, pcs, vr, pe, mi, passes=20)
    return Doubted(at, at % len(classes), asked)


def opened(page: Path, times: int, chromium: str = CHROMIUM) -> list[float]:
    """Seconds to open the page, in a fresh context each time."""
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(times):
            context = browser.new_context()
            tab = context.new_page()
            tab.goto(page.resolve().as_uri(), wait_until="load")
            tab.evaluate("document.body.getBoundingClientRect().height")
            taken.append(float(tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")) / 1000)
            context.close()
        browser.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--chromium", default=CHROMIUM)
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    lines = ["| images | page, MB | opens in, s (median) | slowest, s |", "| --- | --- | --- | --- |"]
    for side in sorted({told.side, 96}):
        folder = Path(mkdtemp())
        write_comparison(folder, comparison(side), command="ukemi compare")
        size = (folder / "page.html").stat().st_size / 1e6
        taken = opened(folder / "page.html", told.times, told.chromium)
        lines.append(f"| 200 of 3 x {side} x {side} | {size:.2f} | {median(taken):.2f} | {max(taken):.2f} |")
    made = f"ukemi {ukemi.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    asked = f"`python benchmarks/page_load.py --side {told.side} --times {told.times}`"
    said = f"{asked}: {made}; headless Chromium; the limits are 15 MB and 2 s."
    text = "\n".join(["# Opening a comparison's page: 20 runs, 200 broken images", "", *lines, "", said, ""])
    print(text)
    if told.out is not None:
        told.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Whether a robust accuracy can be trusted: as a table, a page, and JSON."""

from collections.abc import Mapping
from math import log10
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ukemi.measures.outputs import Flag
from ukemi.measures.reliability import Run, Selfcheck
from ukemi.reports import charts, words
from ukemi.reports.charts import Series
from ukemi.reports.curves import Curves
from ukemi.reports.terminal import captioned
from ukemi.reports.writing import finite, ran, versions, write_html, write_numbers

SCHEMA = 1
"""Version of the summary's fields: raised when one changes its meaning or goes."""
ADVICE = {
    "random-output": "Turn the randomness off, or attack the mean over many draws.",
    "batch-mates": "Let evaluation mode use stored statistics, then check again.",
    "probabilities": "Take the softmax off the model's end: near 1 a probability has no gradient left.",
    "chance-accuracy": "Look at the pixels' range, the normalisation, the weights and the order of the classes.",
    "zero-gradients": "Find what stops the gradient (rounding, detach, saturation); attack a smooth stand-in of it.",
    "steps-hurt": "Gradients mislead small steps: report the worst over several attacks and step sizes.",
    "steps-missing": "Raise the steps until the number rests.",
    "black-box-wins": "Gradients are masked: report the worst over both kinds of attack.",
    "unbounded-holds": "No image can hold here, so the attack fails: look for what misleads its gradient.",
    "not-monotone": "A larger budget holds the smaller one: count an image as fallen from the first on; add steps.",
}
"""What to do where a flag is raised."""
_STYLES = {"raised": "bold red", "clear": "green", "not judged": "yellow"}


def selfcheck_table(found: Selfcheck) -> Table:
    """One row per flag, in 80 columns."""
    table = captioned(" ".join(selfcheck_glance(found)))
    table.add_column("flag", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what was seen", overflow="fold", ratio=3)
    table.add_column("what to do", overflow="fold", ratio=2)
    for flag in found.flags:
        verdict = Text(flag.verdict, _STYLES[flag.verdict])
        table.add_row(flag.name, verdict, Text(flag.sentence), _advice(flag))
    return table


def selfcheck_summary(found: Selfcheck, **about: Any) -> dict[str, Any]:
    """All numbers as JSON knows them, behind whatever `about` says."""
    return {
        "schema": SCHEMA,
        **about,
        "trusted": not found.raised,
        "images": found.images,
        "recognised": found.recognised,
        "accuracy": found.recognised / found.images,
        "robust_accuracy": None if found.held is None else found.held / found.images,
        "worst_accuracy": None if found.held_by_all is None else found.held_by_all / found.images,
        "epsilon": found.epsilon,
        "flags": [_flag(flag) for flag in found.flags],
        "runs": [vars(run) for run in found.runs],
        "forwards": found.forwards,
        "backwards": found.backwards,
        "versions": versions(),
    }


def write_selfcheck(
    folder: Path, found: Selfcheck, *, title: str, settings: Mapping[str, Any], seconds: float, device: str
) -> None:
    """Writes selfcheck.json and page.html; `settings` are plain values that JSON knows."""
    about = {"title": title, "settings": dict(settings), "seconds": seconds, "device": device}
    write_numbers(folder / "selfcheck.json", selfcheck_summary(found, **about))
    order = sorted(found.flags, key=lambda flag: ("raised", "not judged", "clear").index(flag.verdict))
    write_html(
        folder / "page.html",
        "selfcheck.html",
        heading=f"Can the robust accuracy of {title} be trusted?",
        glance=selfcheck_glance(found),
        tiles=_tiles(found),
        flags=[(flag, _advice(flag)) for flag in order],
        runs=[_run(run) for run in found.runs],
        curve=_curve(found),
        settings=ran(seconds, device, settings),
    )


def selfcheck_glance(found: Selfcheck) -> list[str]:
    """What was found, in sentences."""
    count = len(found.raised)
    unjudged = sum(not flag.judged for flag in found.flags)
    said = [
        f"{count} of {len(found.flags)} flags {'is' if count == 1 else 'are'} raised."
        if count
        else "No flag is raised."
    ]
    if unjudged:
        said[0] = said[0][:-1] + f"; {unjudged} could not be judged."
    if found.held is None or found.held_by_all is None:
        return [*said, "No attack was run: it would have said nothing."]
    robust, worst = (words.percent(held / found.images) for held in (found.held, found.held_by_all))
    more = (
        "the other attacks add nothing" if found.held == found.held_by_all else f"the worst over all attacks is {worst}"
    )
    return [*said, f"At epsilon {words.budget(found.epsilon)} (L∞) {robust} hold under PGD; {more}."]


def _advice(flag: Flag) -> str:
    return ADVICE[flag.name] if flag.raised else ""


def _flag(flag: Flag) -> dict[str, Any]:
    return {
        "name": flag.name,
        "verdict": flag.verdict,
        "raised": flag.raised,
        "sentence": flag.sentence,
        "evidence": {name: finite(value) for name, value in flag.evidence.items()},
        "advice": _advice(flag),
    }


def _tiles(found: Selfcheck) -> list[tuple[str, str, str]]:
    images = f"of {words.count(found.images)} images"
    tiles = [
        ("recognised", words.percent(found.recognised / found.images), f"{words.count(found.recognised)} {images}")
    ]
    for name, held in (("hold under PGD", found.held), ("hold under all attacks", found.held_by_all)):
        if held is not None:
            tiles.append((name, words.percent(held / found.images), f"{words.count(held)} {images}"))
    passes = f"and {words.count(found.backwards)} backward"
    return [*tiles, ("forward passes", words.count(found.forwards), passes)]


def _run(run: Run) -> tuple[str, tuple[str, ...]]:
    passes = (words.count(run.forwards), words.count(run.backwards))
    return run.name, (words.budget(run.epsilon), words.count(run.attacked), words.count(run.fooled), *passes)


def _curve(found: Selfcheck) -> Curves | None:
    """What holds under the same PGD at several budgets, on a logarithmic axis."""
    runs = [run for run in found.runs if run.name == found.runs[0].name]
    points = sorted((log10(run.epsilon), 1 - run.fooled / run.attacked) for run in runs)
    said = {log10(run.epsilon): words.budget(run.epsilon) for run in runs}
    if len(points) < 2:
        return None
    svg = charts.lines(
        [Series("PGD", tuple(points), 0)],
        title="Share that holds, by budget",
        x_label="epsilon",
        x_said=lambda power: said[power],
        y_said=lambda share: words.percent(share, 0),
        x_ticks=[x for x, _ in (*points[1:-1:2], points[-1])],  # all of them would overlap
        y_limits=(0.0, 1.0),
    )
    return Curves(f"Share of the attacked images that hold: {runs[0].name}", svg, ())

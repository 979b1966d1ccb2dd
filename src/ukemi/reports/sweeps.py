"""An image over each of its genes, drawn before: a strip of pictures per gene, and what the models say to each."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ukemi.measures.examples import Sweep, swept_genes
from ukemi.reports import drawing, words
from ukemi.reports.gallery import name_of
from ukemi.reports.pictures import strip
from ukemi.spaces import Space
from ukemi.variations import vary

BUDGET = 500_000
"""bytes that the strips of a page may take, if none could be compressed"""


def frames(sweep: Sweep) -> int:
    """How many pictures its strips hold."""
    return sum(len(axis.values) for axis in sweep.axes)


def sweep_card(swept: Mapping[str, Sweep], classes: Sequence[str], space: Space, side: int) -> dict[str, Any]:
    """One image with the answers of one or several models, by name."""
    first = next(iter(swept.values()))
    rows_PG = swept_genes(space, first.axes)
    variants = vary(first.image[None].repeat(len(rows_PG), 1, 1, 1), rows_PG, space)
    lengths = [len(axis.values) for axis in first.axes]
    parts = zip(first.axes, variants.split(lengths), rows_PG.split(lengths), strict=True)
    genes = [
        {
            "name": words.gene_name(axis.gene),
            "strip": strip(images, side),
            "last": len(axis.values) - 1,
            "rest": axis.rest,
            "wide": 100 * len(axis.values),
            "half": f"{50 / len(axis.values):.3f}%",
            "said": json.dumps([words.in_words(row, space) for row in rows.tolist()], ensure_ascii=False),
            "answers": json.dumps([_answers(one, at, classes) for one in swept.values()], ensure_ascii=False),
            "tracks": Markup("").join(_track(one, at) for one in swept.values()),
        }
        for at, (axis, images, rows) in enumerate(parts)
    ]
    height, width = first.image.shape[1:]
    return {
        "label": name_of(classes, first.label),
        "models": list(swept),
        "genes": genes,
        "ratio": f"{width} / {height}",
        "smooth": max(height, width) > side,
    }


def _answers(sweep: Sweep, at: int, classes: Sequence[str]) -> list[tuple[str, bool]]:
    """Per value: what the model says, and whether it is right."""
    return [
        (f"{name_of(classes, guess)}, {words.percent(confidence, 0)}", guess == sweep.label)
        for guess, confidence in zip(sweep.guesses[at], sweep.confidences[at], strict=True)
    ]


def _track(sweep: Sweep, at: int) -> Markup:
    """Where along a slider the answer is right: a box per value."""
    wide = 100 / len(sweep.guesses[at])
    boxes = Markup("").join(
        Markup('<rect class="{}" x="{}%" width="{}%" height="5"/>').format(
            "held" if guess == sweep.label else "lost", drawing.n(wide * place), drawing.n(wide - 0.8)
        )
        for place, guess in enumerate(sweep.guesses[at])
    )
    return Markup('<svg class="track" width="100%" height="5" aria-hidden="true">{}</svg>').format(boxes)

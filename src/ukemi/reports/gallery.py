"""Broken images as cards, and the filters that choose among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ukemi.measures.examples import Broken
from ukemi.reports import words
from ukemi.reports.pictures import picture
from ukemi.spaces import Space


@dataclass(frozen=True)
class Filter:
    """One choice above a gallery: what it is about, and what can be chosen."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]
    """value and text"""


@dataclass(frozen=True)
class Gallery:
    """Cards and their filters; a card's `data` says by number which options it belongs to."""

    cards: list[dict[str, Any]]
    filters: tuple[Filter, ...]


def card(pair: Broken, classes: Sequence[str], space: Space, side: int, **about: str) -> dict[str, Any]:
    """What is shown of one image; `about` are further fields to choose by, such as the method."""
    own = space.protocol == "ukemi"
    sides = [words.side(gene, value, own) for gene, value in zip(space.genes, pair.genes, strict=True)]
    label, guess = name_of(classes, pair.label), name_of(classes, pair.guess)
    return {
        "image": picture(pair.image, side),
        "variant": picture(pair.variant, side),
        "smooth": max(pair.image.shape[1:]) > side,
        "label": label,
        "guess": guess,
        "how": words.in_words(pair.genes, space),
        "loss": words.plain(pair.loss),
        "about": about,
        "fields": {**{name: [text] for name, text in about.items()}, "label": [label], "guess": [guess]}
        | {"gene": [text for text in sides if text]},
    }


def gallery(cards: Sequence[dict[str, Any]], labels: Mapping[str, str]) -> Gallery:
    """Cards with a filter for each of `labels` (field: what the page calls it) in which they differ.

    Options go by number, so that no name from outside ever becomes part of a selector or script."""
    filters, data = [], [dict[str, str]() for _ in cards]
    for field, label in labels.items():
        texts = sorted({text for one in cards for text in one["fields"][field]})
        if len(texts) < 2:
            continue
        number = {text: str(at) for at, text in enumerate(texts)}
        filters.append(Filter(field, label, tuple((number[text], text) for text in texts)))
        for own, one in zip(data, cards, strict=True):
            own[field] = " ".join(number[text] for text in one["fields"][field])
    return Gallery([{**one, "data": own} for one, own in zip(cards, data, strict=True)], tuple(filters))


def name_of(names: Sequence[str], label: int) -> str:
    """A model's head may be wider than the data has classes."""
    return names[label] if label < len(names) else f"class {label}"

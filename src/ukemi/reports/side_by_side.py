"""One image under all methods (SENSEI, Figure 2), and the gallery of all runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import log as ln
from typing import Any

from markupsafe import Markup

from ukemi.comparing import Comparison
from ukemi.comparing.result import CaseResult
from ukemi.comparing.shown import Shown
from ukemi.reports import maps, words
from ukemi.reports.curves import Curves
from ukemi.reports.gallery import Gallery, card, gallery, name_of
from ukemi.reports.pictures import side_for
from ukemi.reports.sweeps import frames, sweep_card

MOST = 200
"""images in the gallery; of more runs each shows fewer"""
BUDGET, SWEPT = 6_000_000, 1_500_000
"""bytes that the gallery's pictures and the strips of all cases may take, if none could be compressed"""


@dataclass(frozen=True)
class Near:
    """One image: the loss around it under every method on one scale, and its genes one by one."""

    case: str
    label: str
    maps: list[Curves]
    moving: str
    sweep: dict[str, Any]


def near_images(found: Comparison) -> list[Near]:
    """Images drawn before any training, those first that every method recognises; of several cases one each."""
    cases = [(case, same_seed(case)) for case in found.run_cases()]
    known = [(case, methods) for case, methods in cases if methods and next(iter(methods.values())).terrains]
    several = len(known) > 1
    chosen = [(case, methods, at) for case, methods in known for at in _recognised(methods)[: 1 if several else None]]
    swept = sum(frames(next(iter(methods.values())).sweeps[at]) for _, methods, at in chosen)
    channels = max((len(next(iter(methods.values())).terrains[0].image) for _, methods in known), default=1)
    side = side_for(swept, channels, SWEPT)
    return [_near(case.name if several else "", methods, at, side) for case, methods, at in chosen]


def same_seed(case: CaseResult) -> dict[str, Shown]:
    """What each method shows with the first seed that most of them have: the same images for all."""
    seeds = [seed for shown in case.shown.values() for seed in shown]
    if not seeds:
        return {}
    seed = max(sorted(set(seeds)), key=seeds.count)
    return {method: shown[seed] for method, shown in case.shown.items() if seed in shown}


def _recognised(methods: Mapping[str, Shown]) -> list[int]:
    """Images that all methods recognise unchanged first; the order is the drawn one."""

    def missed(at: int) -> int:
        grounds = [one.terrains[at].landscape for one in methods.values()]
        return sum(bool(one.wrong[one.down.rest if one.down else 0, one.across.rest]) for one in grounds)

    return sorted(range(min(len(one.terrains) for one in methods.values())), key=missed)


def _near(case: str, methods: Mapping[str, Shown], at: int, side: int) -> Near:
    first = next(iter(methods.values()))
    ground, label = first.terrains[at], name_of(first.classes, first.terrains[at].label)
    most = 2 * ln(max(2, len(first.classes)))
    axes = [axis for axis in (ground.landscape.down, ground.landscape.across) if axis]
    return Near(
        case,
        label,
        [Curves(_headed(name, one, at), _map(name, one, at, most), ()) for name, one in methods.items()],
        " and ".join(words.gene_name(axis.gene) for axis in axes),
        sweep_card({name: one.sweeps[at] for name, one in methods.items()}, first.classes, first.space, side),
    )


def _headed(name: str, shown: Shown, at: int) -> str:
    """A map without a border would look as if the image held everywhere."""
    return f"{name}: misclassified everywhere" if shown.terrains[at].landscape.wrong.all() else name


def _map(name: str, shown: Shown, at: int, most: float) -> Markup:
    return maps.heat_map(shown.terrains[at].landscape, most, title=f"Loss around one image under {name}")


def gallery_of(found: Comparison) -> Gallery:
    """Broken images of all runs, at most `MOST`, evenly from each and one of each run in turn; of more runs, some."""
    several = len(found.run_cases()) > 1
    runs = [
        ({"case": case.name} if several else {}, method, seed, shown)
        for case in found.run_cases()
        for method, seeds in case.shown.items()
        for seed, shown in seeds.items()
        if shown.gallery
    ]
    runs = _even(runs, MOST)
    each = max(1, MOST // max(1, len(runs)))
    taken = [
        [(about | {"method": method, "seed": f"seed {seed}"}, shown, pair) for pair in _from(at, shown.gallery, each)]
        for at, (about, method, seed, shown) in enumerate(runs)
    ]
    chosen = [one for turn in zip_longest(*taken) for one in turn if one is not None]
    channels = max((len(pair.image) for _, _, pair in chosen), default=1)
    side = side_for(2 * len(chosen), channels, BUDGET)
    cards = [card(pair, shown.classes, shown.space, side, **about) for about, shown, pair in chosen]
    fields = {"case": "case"} if several else {}
    return gallery(cards, {**fields, "method": "method", "label": "class", "guess": "taken for", "gene": "gene"})


def _from(at: int, some: Sequence[Any], count: int) -> list[Any]:
    """`count` of some, every run beginning at another: else all would begin with the first class."""
    chosen = _even(some, count)
    at %= len(chosen)
    return chosen[at:] + chosen[:at]


def _even(some: Sequence[Any], count: int) -> list[Any]:
    """`count` of some, evenly spread: images are sorted by class, runs by case and method."""
    if len(some) <= count:
        return list(some)
    return [some[at * len(some) // count] for at in range(count)]

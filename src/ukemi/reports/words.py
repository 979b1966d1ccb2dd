"""Numbers and genes as people say them."""

from collections.abc import Sequence
from math import ceil, isfinite, log10, sqrt

from ukemi.spaces import Gene, Space

MINUS = "\N{MINUS SIGN}"
THIN = "\N{NARROW NO-BREAK SPACE}"
INFINITE = "\N{INFINITY}"
SAME_ANSWER = "A model that gives one answer to all images holds under every variant, too."
"""why the robust accuracy of a model that learnt nothing says nothing"""

NAMES = {
    "rotation": "rotation",
    "translate_x": "shift left or right",
    "translate_y": "shift up or down",
    "shear": "shear",
    "zoom": "zoom",
    "brightness": "brightness",
    "contrast": "contrast",
}
"""How a chart names a gene; a user's own gene keeps its name."""

_SIDES = {
    "rotation": ("clockwise", "counter-clockwise"),
    "translate_x": ("left", "right"),
    "translate_y": ("up", "down"),
    "shear": ("left", "right"),
    "zoom": ("smaller", "larger"),
    "brightness": ("darker", "brighter"),
    "contrast": ("less", "more"),
}

_VERBS = {
    "rotation": ("rotated {}° clockwise", "rotated {}° counter-clockwise"),
    "translate_x": ("moved left {} %", "moved right {} %"),
    "translate_y": ("moved up {} %", "moved down {} %"),
    "shear": ("sheared {} % to the left", "sheared {} % to the right"),
    "zoom": ("shrunk {} %", "enlarged {} %"),
    "brightness": ("darkened {} %", "brightened {} %"),
    "contrast": ("contrast lowered {} %", "contrast raised {} %"),
}
"""below and above the identity"""


def count(number: int) -> str:
    """1234567 as 1,234,567."""
    return f"{number:,}"


def plain(number: float, digits: int = 3) -> str:
    """A number in few digits, with a real minus sign: −0.1; thousands are written out: 2,500."""
    if not isfinite(number):
        return str(number)
    said = f"{number:.{digits}g}"
    return (f"{number:,.0f}" if "e+" in said and abs(number) < 1e7 else said).replace("-", MINUS)


def below_one(share: float, digits: int = 3) -> str:
    """A share in few digits, and in more near 1: only 1 is said as 1.

    >>> below_one(0.7025), below_one(0.99993), below_one(1.0)
    ('0.703', '0.99993', '1')
    """
    return plain(share, max(digits, ceil(-log10(1 - share)) + 1) if share < 1 else digits)


def budgets(epsilons: Sequence[float]) -> dict[float, str]:
    """How each budget of an attack is said: 8/255 where all are whole steps of a pixel and decimals would be long.

    >>> list(budgets([0.0, 8 / 255]).values()), list(budgets([0.1, 8 / 255]).values())
    (['0', '8/255'], ['0.1', '0.0314'])
    """
    steps = [epsilon * 255 for epsilon in epsilons]
    short = all(len(f"{epsilon:g}") <= 5 for epsilon in epsilons)
    if short or not all(abs(step - round(step)) < 1e-6 and step < 256 for step in steps):
        return {at: plain(at) for at in epsilons}
    return {at: f"{round(step)}/255" if step else "0" for at, step in zip(epsilons, steps, strict=True)}


def budget(epsilon: float) -> str:
    """The same of one."""
    return budgets([epsilon])[epsilon]


def signed(number: float) -> str:
    """A difference in one decimal, with a real minus sign; none is +0.0."""
    return f"{number:+z.1f}".replace("-", MINUS)


def percent(share: float, digits: int = 1) -> str:
    """0.872 as 87.2 %."""
    return f"{100 * share:z.{digits}f}{THIN}%".replace("-", MINUS)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads best."""
    if seconds < 90:
        return f"{seconds:.1f}{THIN}s"
    return f"{seconds / 60:.1f}{THIN}min" if seconds < 5400 else f"{seconds / 3600:.1f}{THIN}h"


def rough(seconds: float) -> str:
    """An estimate, which is no more exact than it claims to be: 3 min, 1.5 h, 283 h.

    >>> rough(180).replace(THIN, " "), rough(5400).replace(THIN, " "), rough(1_020_000).replace(THIN, " ")
    ('3 min', '1.5 h', '283 h')
    """
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))}{THIN}min"
    hours = seconds / 3600
    return f"{hours:.0f}{THIN}h" if hours >= 10 else f"{hours:.1f}{THIN}h".replace(".0", "")


def gene_name(gene: str) -> str:
    """What a chart calls a gene."""
    return NAMES.get(gene, gene.replace("_", " "))


def directions(gene: str) -> str:
    """What lies at either end of a gene's axis: ← left, right →."""
    low, high = _SIDES.get(gene, ("", ""))
    return f"← {low} \N{MIDDLE DOT} {high} →" if low else gene_name(gene)


def side(gene: Gene, value: float, own: bool = True) -> str:
    """Which way a gene was moved: rotation: clockwise; empty where it rests."""
    change = value - gene.identity
    if abs(change) <= 1e-6 * (gene.high - gene.low):
        return ""
    known = own and gene.kernel is None
    low, high = _SIDES.get(gene.name, ("lower", "higher")) if known else ("lower", "higher")
    return f"{gene_name(gene.name)}: {high if change > 0 else low}"


def gene_value(gene: str, value: float) -> str:
    """A gene's value with its unit, as on an axis: +30°, −10 %, ×1.2."""
    sign = "+" if value > 0 else ""
    if gene == "rotation":
        return f"{sign}{plain(value)}°"
    if gene in ("zoom", "contrast"):
        return f"×{plain(value)}"
    if gene in _VERBS:
        return f"{sign}{plain(100 * value)}{THIN}%"
    return plain(value)


def in_words(genes: Sequence[float], space: Space) -> str:
    """A chromosome as a sentence's part: rotated 30° clockwise, moved left 10 %.

    Another protocol's operators go other ways (`Space.protocol`), so there the bare values are said."""
    own = space.protocol == "ukemi"
    said = [_said(gene, value, own) for gene, value in zip(space.genes, genes, strict=True)]
    return ", ".join(part for part in said if part) or "unchanged"


def _said(gene: Gene, value: float, own: bool) -> str:
    change = value - gene.identity
    if abs(change) <= 1e-6 * (gene.high - gene.low):  # float32 genes beside a double identity
        return ""
    if gene.name not in _VERBS or gene.kernel is not None or not own:
        return f"{gene_name(gene.name)} {plain(value)}"
    amount = abs(change) if gene.name == "rotation" else 100 * abs(change)
    return _VERBS[gene.name][change > 0].format(plain(amount)).replace(" %", f"{THIN}%")


def wilson(hits: int, total: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The 95 % interval of Wilson (1927) for a share of `hits` out of `total`.

    >>> low, high = wilson(5, 10)
    >>> round(low, 4), round(high, 4)
    (0.2366, 0.7634)
    """
    if total == 0:
        return 0.0, 1.0
    share, weight = hits / total, z * z / total
    middle = (share + weight / 2) / (1 + weight)
    half = z * sqrt(share * (1 - share) / total + weight / (4 * total)) / (1 + weight)
    # at the ends the exact limits are 0 and 1; rounding would leave them off by an ulp
    return (0.0 if hits == 0 else middle - half), (1.0 if hits == total else middle + half)


def plural(number: int, thing: str) -> str:
    """1 epoch, 1,200 epochs."""
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """a, b and c.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))

"""What methods cost beside the baseline, and who trained on what is hardest: sentences of a comparison's answer."""

from collections.abc import Sequence
from statistics import fmean

from ukemi.comparing import Comparison
from ukemi.comparing.result import CaseResult
from ukemi.reports import words
from ukemi.reports.method_settings import settings_of

MOST = 4
"""of more methods, the cheapest and the dearest are named"""


def cost_said(found: Comparison) -> list[str]:
    """How long each method trains and how many passes it takes, as multiples of the baseline's; nothing where all take
    the same. Times of several machines are not compared."""
    alone = len(found.machines()) <= 1
    costs = {name: _ratios(found, name) for name in found.methods if name != found.baseline}
    known = {name: one if alone else (1.0, one[1]) for name, one in costs.items() if one is not None}
    if all(f"{time:.2f}" == f"{passes:.2f}" == "1.00" for time, passes in known.values()):
        return []
    names = sorted(known, key=lambda name: known[name][0 if alone else 1])
    names = names if len(names) <= MOST else [names[0], names[-1]]
    return [f"Beside {found.baseline}, " + "; ".join(_said(name, *known[name], alone) for name in names) + "."]


def _said(name: str, time: float, passes: float, alone: bool) -> str:
    spent = f"takes {passes:.2f} times the passes"
    return f"{name} trains {time:.2f} times as long and {spent}" if alone else f"{name} {spent}"


def _ratios(found: Comparison, method: str) -> tuple[float, float] | None:
    """Seconds and passes of the runs that both finished; None where there are none."""
    pairs = [
        (case.outcomes[method][seed], case.outcomes[found.baseline][seed])
        for case in found.run_cases()
        for seed in case.outcomes.get(method, {})
        if seed in case.outcomes.get(found.baseline, {})
    ]
    seconds = [sum(pair[side].seconds for pair in pairs) for side in (0, 1)]
    passes = [sum(pair[side].forwards + pair[side].backwards for pair in pairs) for side in (0, 1)]
    return (seconds[0] / seconds[1], passes[0] / passes[1]) if seconds[1] and passes[1] else None


def loss_said(found: Comparison) -> list[str]:
    """Which augmenter found the images of highest loss (SENSEI, Figure 4), where methods differ in nothing else: losses
    of other objectives can't be compared."""
    told = [
        {key: value for key, value in settings.items() if not key.startswith("augmenter.")}
        for settings in settings_of(found).values()
    ]
    if len(told) < 2 or any(one != told[0] for one in told):
        return []
    means = {name: _loss(found.run_cases(), name, found.methods) for name in found.methods}
    if not means or None in means.values():
        return []
    known = {name: mean for name, mean in means.items() if mean is not None}
    first, *rest = sorted(known, key=lambda name: -known[name])
    if words.plain(known[first]) == words.plain(known[rest[0]]):
        return []
    shown = rest if len(rest) < MOST else [rest[0], rest[-1]]
    others = words.listed([f"{words.plain(known[name])} of {name}" for name in shown])
    return [f"{first} trained on the images of highest loss: {words.plain(known[first])}, beside {others}."]


def _loss(cases: Sequence[CaseResult], method: str, methods: Sequence[str]) -> float | None:
    """Mean over cases, seeds and the epochs that all methods have."""
    means = []
    for case in cases:
        each = {name: [one.losses() for one in case.outcomes.get(name, {}).values()] for name in methods}
        epochs = min((len(losses) for several in each.values() for losses in several), default=0)
        if not epochs or not all(each.values()):
            return None
        means.append(fmean(loss for losses in each[method] for loss in losses[:epochs]))
    return fmean(means) if means else None

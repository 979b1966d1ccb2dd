"""What an experiment answers, in sentences that stand first: computed from its lines, and open where they are."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from ukemi.experiments import Findings
from ukemi.experiments.dare import BASELINES
from ukemi.reports import words
from ukemi.reports.dare_tables import (
    MEASURES,
    NAMES,
    TIE,
    VARIANTS,
    above_base,
    held,
    of,
    verdict_section,
    winners,
)
from ukemi.reports.sections import Line, Lines, seeded
from ukemi.reports.uncertain_claims import claims_section
from ukemi.reports.uncertain_tables import ENOUGH
from ukemi.reports.uncertain_tables import of as lines_of
from ukemi.uncertainty import GOALS, PATTERNS

USUAL = "q 95"
"""the paper's share"""


def experiment_answer(found: Findings) -> list[str]:
    """What came out, in sentences."""
    here = [cell.name for cell in found.config.cells if cell.name not in found.missing]
    if found.config.experiment == "uncertainty":
        said = _uncertain(found, here)
    else:
        groups = {name: [line for line in found.lines if line["cell"] == name] for name in here}
        said = dare_answer(found.config.part, groups)
    if found.open:
        said.append(f"{words.plural(found.open, 'piece')} not finished yet.")
    return said


def _uncertain(found: Findings, models: Sequence[str]) -> list[str]:
    if found.config.part == "generation":
        return [reached(found.lines, model) for model in models]
    section = claims_section(found.config.part, found.lines, [cell.name for cell in found.config.cells], found.missing)
    if section is None or section.table is None:
        return []
    said = []
    for claim, *cells in section.table.rows:
        found_in = zip(section.table.names[1:], (cell.replace(":", ",", 1) for cell in cells), strict=True)
        said.append(f"Claim: {claim}. " + "; ".join(f"{model}: {cell}" for model, cell in found_in) + ".")
    return said


def reached(lines: Lines, model: str) -> str:
    """How many pairs of pattern and goal enough seeds reach, and which are not reached."""
    pairs = [f"{pattern} {goal}" for pattern in PATTERNS for goal in GOALS]
    found = {pair: [line["success_rate"] for line in lines_of(lines, model, "generate", pair)] for pair in pairs}
    rates = {pair: fmean(values) for pair, values in found.items() if values}
    if not rates:
        return f"{model}: open."
    short = {pair: rate for pair, rate in rates.items() if rate < ENOUGH}
    said = f"{model}: {len(rates) - len(short)} of {len(pairs)} pairs of pattern and goal are reached by at least"
    said += f" {words.percent(ENOUGH, 0)} of the seeds"
    if short:
        said += "; not " + words.listed([f"{pair} ({words.percent(rate, 0)})" for pair, rate in short.items()])
    left = [pair for pair in pairs if pair not in rates]
    return said + (f"; open: {words.listed(left)}" if left else "") + "."


def dare_answer(part: str, groups: Mapping[str, Lines]) -> list[str]:
    """What a part of DARE's experiment answers, cell by cell."""
    if part in ("share", "efficiency"):
        tell: Callable[[Lines], str] = best_share if part == "share" else takes
        return [f"{name}: {tell(lines)}" for name, lines in groups.items()]
    said = [f"{name}: {verdict_section(name, lines).said[-1]}" for name, lines in groups.items()]
    if part == "effectiveness":
        return [*best_in(groups), *said]
    return [*(f"{name}: {beside_dare(lines)}" for name, lines in groups.items()), *said]


def best_in(groups: Mapping[str, Lines]) -> list[str]:
    """In how many scenarios DARE is the best of the paper's list."""
    first = [one for lines in groups.values() for one in winners(lines, ["dare", *BASELINES])]
    if not first:
        return []
    others = {name: first.count(name) for name in first if name not in ("dare", TIE)}
    said = f"DARE is best in {first.count('dare')} of {words.plural(len(first), 'scenario')}"
    if others:
        most = max(others, key=others.__getitem__)
        said += f"; the best baseline is {most} with {others[most]}"
    said += f"; {words.plural(first.count(TIE), 'tie')}" * (TIE in first)
    return [f"{said}."]


def beside_dare(lines: Lines) -> str:
    """Each variant on the minimal frozen sets, in points from DARE with the same seed."""
    base, said = seeded(held(lines, "dare")), []
    for variant in VARIANTS:
        kept = [line for line in held(lines, variant) if line["seed"] in base]
        if kept:
            away = fmean(above_base(line, base[line["seed"]]) for line in kept)
            said.append(f"{variant} {_points(away)}")
        elif of(lines, variant):
            said.append(f"{variant} {'open' if held(lines, variant) else 'lost too much accuracy'}")
    return f"on the frozen sets, in points from DARE: {', '.join(said)}." if base and said else "open."


def best_share(lines: Lines) -> str:
    """The share q that holds best on the frozen sets, beside the paper's."""
    names = dict.fromkeys(line["method"] for line in lines if line["method"].startswith("q "))
    kept = {name: found for name in names if (found := held(lines, name))}
    if not kept:
        return "every share lost too much accuracy." if names else "open."
    means = {name: fmean(map(_frozen, found)) for name, found in kept.items()}
    best, *rest = sorted(means, key=lambda name: -means[name])
    said = f"{best} holds best on the frozen sets, {words.percent(means[best])} on average"
    other = USUAL if best != USUAL else next(iter(rest), USUAL)
    base = seeded(kept.get(other, ()))
    leads = [above_base(line, base[line["seed"]]) for line in kept[best] if line["seed"] in base]
    if best != other:
        said += f", {_ahead(leads, other)}" if leads else f"; {other} is open or lost too much accuracy"
    clean = {name: fmean(line["clean"] for line in found) for name, found in kept.items()}
    beside = f" beside {words.percent(clean[other])} of {other}" if other in clean and other != best else ""
    return f"{said}. It keeps {words.percent(clean[best])} accuracy{beside}{_moved(kept[best])}."


def _frozen(line: Line) -> float:
    return MEASURES["frozen, minimal"](line) or 0.0


def _ahead(leads: Sequence[float], other: str) -> str:
    mean, wins = fmean(leads), sum(lead > 0 for lead in leads)
    way = "above" if mean >= 0 else "below"
    return f"{100 * abs(mean):.1f} points {way} {other} (ahead in {wins} of {words.plural(len(leads), 'seed')})"


def _moved(kept: Lines) -> str:
    """What the tuning did to accuracy on the images by which it was chosen."""
    chosen = [line["chosen"] for line in kept if "accuracy_before" in line.get("chosen", {})]
    if not chosen:
        return ""
    moved = fmean(one["accuracy_after"] - one["accuracy_before"] for one in chosen)
    return f"; on the selection images tuning moved it by {_points(moved)} points"


def takes(lines: Lines) -> str:
    """DARE's time beside the cheapest and the dearest adversarial baseline's."""
    own = [sum(line["seconds"].values()) for line in of(lines, "dare")]
    found = {name: [sum(line["seconds"].values()) for line in of(lines, name)] for name in BASELINES}
    means = {name: fmean(values) for name, values in found.items() if values and fmean(values) > 0}
    if not own or not means:
        return "open: DARE and an adversarial baseline are needed."
    took, ranked = fmean(own), sorted(means, key=means.__getitem__)
    ends = {"cheapest": ranked[0], "dearest": ranked[-1]} if len(ranked) > 1 else {"only finished": ranked[0]}
    told = [
        f"{words.plain(took / means[name])} times the {which} adversarial baseline ({_named(name, means)})"
        for which, name in ends.items()
    ]
    shared = (
        " Other work ran on the same machine: compare with care." if any(one.get("shared") for one in lines) else ""
    )
    left = [name for name in BASELINES if not found[name]]
    still = f" Open: {words.listed([NAMES[name.split()[1]] for name in left])}." if left else ""
    return f"DARE takes {words.duration(took)}, {' and '.join(told)}.{still}{shared}"


def _named(name: str, means: Mapping[str, float]) -> str:
    return f"{NAMES[name.split()[1]]}, {words.duration(means[name])}"


def _points(share: float) -> str:
    return words.signed(100 * share)

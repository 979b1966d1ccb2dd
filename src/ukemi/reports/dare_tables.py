"""DARE (paper 4) as tables over seeds: its tables 2 to 5 and figures 3 and 4, with null controls beside."""

from collections.abc import Callable, Mapping, Sequence
from math import inf, sqrt
from statistics import mean
from typing import Any

from ukemi.experiments.dare import BASELINES, MIXED, NULLS
from ukemi.experiments.frozen import FIXED, MINIMAL
from ukemi.repairs import lead
from ukemi.reports.sections import Line, Lines, Section, per_seed, seeded, spread
from ukemi.reports.texts import Rows

NAMES = {"bim": "BIM", "cw": "C&W", "fgsm": "FGSM", "jsma": "JSMA", "pgd": "PGD"}
NAMES |= {name: f"{NAMES[name[:-2]]} 8/255" for name in FIXED}
MEASURES: dict[str, Callable[[Line], float | None]] = {
    "frozen, minimal": lambda line: _mean(line["frozen"]["minimal"]),
    "frozen, 8/255": lambda line: _mean(line["frozen"]["fixed"]),
    "white-box PGD 8/255": lambda line: line["white_box"]["pgd_accuracy"],
    "white-box C&W, distance": lambda line: line["white_box"]["cw_distance"],
}
VARIANTS = ("dare-s", "dare-sl", "rand", "dare-adv", *NULLS)
RULE = (
    "Rule: its lead over the better of the two controls with the same seed is, on average, more than twice its standard"
    " error (over the seeds; of one seed: that of two shares of so many images, and no verdict on distances)."
)
TIE = "tie"
"""a scenario that nobody wins: DARE stands first in every list and would get it otherwise"""
Paper = Mapping[str, Any]


def _mean(part: Mapping[str, float]) -> float | None:
    return mean(part.values()) if part else None


def of(lines: Lines, method: str) -> list[Line]:
    return [line for line in lines if line["method"] == method]


def held(lines: Lines, method: str) -> list[Line]:
    """Those that kept the accuracy limit."""
    return [line for line in of(lines, method) if not line["missed"]]


def main_section(name: str, lines: Lines, methods: Sequence[str], paper: Paper) -> Section:
    """The paper's tables 2 to 4."""
    names = ["method", "n", "clean", *(NAMES[attack] for attack in (*MINIMAL, *FIXED))]
    names += ["white-box PGD 8/255", "C&W success", "C&W distance", "chosen: rate, epochs"]
    rows = [_row(lines, method, paper.get(method, {})) for method in methods]
    said = "Accuracy on frozen sets and under attack, in percent; the paper's figures in brackets; - where every state"
    said += " lost too much accuracy."
    if any(line.get("sizes", {}).get("frozen-from") == "train" for line in lines):
        said += " Frozen sets are made of images that the base model was trained on, as the released code does."
    return Section(f"Frozen sets and attacks: {name}", [said], Rows(names, rows))


def _row(lines: Lines, method: str, paper: Paper) -> list[str]:
    own, kept = of(lines, method), held(lines, method)
    beside = [f" ({value})" for value in paper.get("frozen", [])] or [""] * 5
    clean = f" ({paper['clean']})" if "clean" in paper else ""
    if not kept:
        shown = "-" if own else "open"
        return [method, str(len(own)), shown + clean, *(shown + one for one in beside), *["-" if own else ""] * 7]
    missed = f", {len(own) - len(kept)} missed" * (len(own) > len(kept))
    row = [method, f"{len(kept)}{missed}", spread(line["clean"] for line in kept) + clean]
    for name, one in zip(MINIMAL, beside, strict=True):
        row.append(spread(line["frozen"]["minimal"].get(name) for line in kept) + one)
    row += [spread(line["frozen"]["fixed"].get(name) for line in kept) for name in FIXED]
    white = [line["white_box"] for line in kept]
    row += [spread(one[name] for one in white) for name in ("pgd_accuracy", "cw_success")]
    row.append(spread([one["cw_distance"] for one in white], 1, 3))
    chosen = [line.get("chosen", {}) for line in kept]
    return [*row, "; ".join(f"{one['learning_rate']:g}, {one['epochs']}" for one in chosen if "learning_rate" in one)]


def verdict_section(name: str, lines: Lines) -> Section:
    """Does DARE beat its null controls? The last sentence says it in words."""
    title = f"Does DARE beat the null controls? {name}"
    kept = {method: seeded(held(lines, method)) for method in ("dare", *NULLS)}
    seeds = [seed for seed in kept["dare"] if all(seed in one for one in kept.values())]
    if not seeds:
        missed = bool(of(lines, "dare")) and not kept["dare"]
        said = "No verdict: DARE lost too much accuracy." if missed else "Open: DARE and both controls are needed."
        return Section(title, [RULE, said])
    rows, won = [], []
    for measure, value in MEASURES.items():
        cells, ahead = _lead(kept, seeds, measure, value)
        rows.append([measure, *cells])
        won.append(ahead)
    words = f"DARE beats its null controls in {sum(won[:2])} of 2 measures on frozen sets, and in {sum(won[2:])} of 2"
    words += " when it is attacked itself" + ("; so it does more than they do." if all(won) else ".")
    names = ["measure", "n", "ahead", "lead", "standard error", "lead per seed"]
    return Section(title, [RULE, words], Rows(names, rows))


def _lead(
    kept: Mapping[str, Mapping[int, Line]], seeds: Sequence[int], name: str, measure: Callable[[Line], float | None]
) -> tuple[list[str], bool]:
    own = [measure(kept["dare"][seed]) or 0.0 for seed in seeds]
    best = [max(measure(kept[null][seed]) or 0.0 for null in NULLS) for seed in seeds]
    average, error = lead(own, best)
    if len(seeds) == 1:
        error = _error_of_one(kept["dare"][seeds[0]], name, own[0], best[0])
    share = "distance" not in name
    scale, unit, digits = (100.0, " points", 1) if share else (1.0, "", 3)
    said = "no verdict" if error == inf else f"{scale * error:.{digits}f}{unit}"
    leads = {seed: one - other for seed, one, other in zip(seeds, own, best, strict=True)}
    ahead = average > 2 * error
    shown = [str(len(seeds)), "yes" if ahead else "no", f"{scale * average:+.{digits}f}{unit}", said]
    return [*shown, per_seed(leads, scale, digits)], ahead


def _error_of_one(line: Line, name: str, own: float, best: float) -> float:
    if "distance" in name:
        return inf
    frozen = {"frozen, minimal": MINIMAL, "frozen, 8/255": FIXED}.get(name)
    # the sets come from the same test images, so they count once
    images = min(line["images"][one] for one in frozen) if frozen else line["sizes"]["white-box"]
    return sqrt((own * (1 - own) + best * (1 - best)) / images) if images else inf


def seconds_section(name: str, lines: Lines, methods: Sequence[str], minutes: Mapping[str, str]) -> Section:
    """The paper's Table 5."""
    said = "The whole grid is in the tuning; a base model's history comes with its training. The paper's minutes on a"
    said += " processor in brackets."
    shared = any(line.get("shared") for line in lines)
    said += " Other work ran on the same machine: compare with care." if shared else ""
    rows = []
    for method in methods:
        own = of(lines, method)
        if own:
            parts = {part: [line["seconds"][part] for line in own] for part in own[0]["seconds"]}
            given = minutes.get(method.removeprefix("adv "), "")
            text = " + ".join(f"{part} {spread(values, 1)}" for part, values in parts.items())
            everything = {line["seed"]: sum(line["seconds"].values()) for line in own}
            rows.append([method, text + (f" ({given})" if given else ""), spread(everything.values(), 1)])
    return Section(f"Seconds: {name}", [said], Rows(["method", "parts", "in all"], rows))


def share_section(name: str, lines: Lines, methods: Sequence[str]) -> Section:
    """The paper's Figure 4, with the null controls of q = 95 beneath."""
    names = ["q", "n", "clean", *(NAMES[attack] for attack in MINIMAL), "white-box PGD 8/255", "C&W distance"]
    names += ["key neurons of the target layer", "mean above q 95, per seed"]
    base, rows = seeded(held(lines, "q 95")), []
    for method in methods:
        kept, q = held(lines, method), method.removeprefix("q ")
        if not kept:
            rows.append([q, "0", "-" if of(lines, method) else "open", *[""] * (len(names) - 3)])
            continue
        frozen = [spread(line["frozen"]["minimal"].get(attack) for line in kept) for attack in MINIMAL]
        white = [line["white_box"] or {} for line in kept]  # of no share, once
        attacked = [spread(one.get("pgd_accuracy") for one in white)]
        attacked.append(spread([one.get("cw_distance") for one in white], 1, 3))
        key = spread(line.get("chosen", {}).get("key_neurons") for line in kept)
        above = {line["seed"]: above_base(line, base[line["seed"]]) for line in kept if line["seed"] in base}
        seeds = "" if q == "95" else per_seed(above)
        rows.append([q, str(len(kept)), spread(line["clean"] for line in kept), *frozen, *attacked, key, seeds])
    said = "Percent, but for the distance. Null controls change as much as DARE with q = 95 does."
    return Section(f"The share of synapses that a class keeps: {name}", [said], Rows(names, rows))


def above_base(line: Line, other: Line) -> float:
    """On the minimal frozen sets, mean over the attacks."""
    return (MEASURES["frozen, minimal"](line) or 0.0) - (MEASURES["frozen, minimal"](other) or 0.0)


def short_section(groups: Mapping[str, Lines]) -> Section:
    """A cell in a row: how far each kind of method holds."""
    names = ["cell", "n", "measure", "original", "DARE", "null controls, the better", "adversarial baselines, the best"]
    names += ["dare-adv", "DARE's lead over the controls"]
    rows = []
    for name, lines in groups.items():
        kept = {method: seeded(held(lines, method)) for method in ("original", "dare", *NULLS, *BASELINES, "dare-adv")}
        seeds = sorted(set.intersection(*(set(kept[method]) for method in ("original", "dare", *NULLS))))
        for measure in ("frozen, minimal", "white-box PGD 8/255") if seeds else ():
            means = {method: _over(own, seeds, MEASURES[measure]) for method, own in kept.items()}
            shown = [_best(means, methods) for methods in (("original",), ("dare",), NULLS, BASELINES, ("dare-adv",))]
            _, ahead, lead_said, error, _ = _lead(kept, seeds, measure, MEASURES[measure])[0]
            sure = "more" if ahead == "yes" else "not more"
            told = f"{lead_said}, {sure} than twice its standard error ({error})"
            rows.append([name, str(len(seeds)), measure, *shown, told])
    said = "Accuracy in percent, means over the seeds; of controls and baselines the one with the highest mean."
    return Section("How far each holds", [said], Rows(names, rows))


def _over(own: Mapping[int, Line], seeds: Sequence[int], measure: Callable[[Line], float | None]) -> float | None:
    """The mean, where every seed has it."""
    found = [measure(own[seed]) for seed in seeds if seed in own]
    known = [value for value in found if value is not None]
    return mean(known) if len(known) == len(seeds) else None


def _best(means: Mapping[str, float | None], methods: Sequence[str]) -> str:
    known = {method: value for method in methods if (value := means[method]) is not None}
    if not known:
        return "open"
    first = max(known, key=known.__getitem__)
    return f"{100 * known[first]:.1f}" + (f" ({first})" if len(methods) > 1 else "")


def variant_section(groups: Mapping[str, Lines]) -> Section:
    """The paper's Figure 3."""
    said = (
        "Accuracy on the minimal frozen sets above DARE's own, as a share of DARE's, in percent: mean over seeds. Per"
    )
    said += (
        " seed: points above DARE, mean over the attacks. The paper: dare-s -2.0 and dare-sl -26.9 on average; DARE is"
    )
    said += " 72.9 above rand."
    rows = []
    for name, lines in groups.items():
        base = seeded(held(lines, "dare"))
        for variant in VARIANTS:
            kept = [line for line in held(lines, variant) if line["seed"] in base]
            if kept:
                cells = [spread(relative(kept, base, attack)) for attack in MINIMAL]
                above = per_seed({line["seed"]: above_base(line, base[line["seed"]]) for line in kept})
                rows.append([name, variant, *cells, above])
    names = ["cell", "variant", *(NAMES[attack] for attack in MINIMAL), "points above DARE per seed"]
    return Section("Variants relative to DARE", [said], Rows(names, rows))


def relative(kept: Lines, base: Mapping[int, Line], attack: str) -> list[float]:
    """How far each seed lies above DARE's accuracy under an attack, as a share of DARE's."""
    own = [base[line["seed"]]["frozen"]["minimal"].get(attack) for line in kept]
    found = [line["frozen"]["minimal"].get(attack) for line in kept]
    return [b / a - 1 for a, b in zip(own, found, strict=True) if a and b is not None]


def best_section(groups: Mapping[str, Lines]) -> Section:
    """A scenario is a cell and one minimal set; means over the seeds are compared."""
    said = (
        "A scenario is a cell and one minimal frozen set; means over the seeds that all methods have. The paper (29 of"
    )
    said += " 45 for DARE, 5 for the best baseline) compares the first list."
    mixed = [name for name in MIXED if "-8" not in name]
    lists = {"as in the paper": ["dare", *BASELINES]}
    lists["with mixed baselines and null controls"] = ["dare", *BASELINES, *mixed, *NULLS]
    rows = []
    for title, names in lists.items():
        wins: dict[str, int] = {}
        for lines in groups.values():
            for first in winners(lines, names):
                wins[first] = wins.get(first, 0) + 1
        ranked = sorted(wins.items(), key=lambda one: -one[1])
        rows.append([title, str(sum(wins.values())), "; ".join(f"{name} {count}" for name, count in ranked)])
    return Section("Best in n of m scenarios", [said], Rows(["compared", "scenarios", "best in"], rows))


def winners(lines: Lines, names: Sequence[str]) -> list[str]:
    """The best method of every scenario of a cell; two that are equally good are a tie."""
    kept = {name: seeded(held(lines, name)) for name in names}
    kept = {name: own for name, own in kept.items() if own}
    seeds = set.intersection(*(set(own) for own in kept.values())) if kept else set()
    if not seeds or "dare" not in kept or len(kept) < 2:
        return []
    found = []
    for attack in MINIMAL:
        if all(attack in kept["dare"][seed]["frozen"]["minimal"] for seed in seeds):
            means = {name: mean(own[seed]["frozen"]["minimal"][attack] for seed in seeds) for name, own in kept.items()}
            first = [name for name, value in means.items() if value > max(means.values()) - 1e-9]
            found.append(first[0] if len(first) == 1 else TIE)
    return found

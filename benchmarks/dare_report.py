"""The tables of `benchmarks/dare.py` from its lines."""

import json
import statistics
from collections.abc import Callable, Sequence
from math import inf, sqrt
from typing import Any

from ukemi.repairs import lead

Lines = list[dict[str, Any]]
MINIMAL = ("bim", "cw", "fgsm", "jsma", "pgd")
FIXED = ("bim-8", "fgsm-8", "pgd-8")
NAMES = {"bim": "BIM", "cw": "C&W", "fgsm": "FGSM", "jsma": "JSMA", "pgd": "PGD"}
NAMES |= {name: f"{NAMES[name[:-2]]} 8/255" for name in FIXED}
BASELINES = [f"adv {name}" for name in MINIMAL]
NULLS = ("null random", "null continued")
MEASURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "frozen, minimal": lambda line: statistics.mean(line["frozen"]["minimal"].values()),
    "frozen, 8/255": lambda line: statistics.mean(line["frozen"]["fixed"].values()),
    "white-box PGD 8/255": lambda line: line["white_box"]["pgd_accuracy"],
    "white-box C&W, distance": lambda line: line["white_box"]["cw_distance"],
}
INTRO = """# DARE, measured

Made by `python benchmarks/dare.py report` from `results/dare.jsonl`, which `python benchmarks/dare.py run` wrote; the
settings are in `benchmarks/dare.toml`. Mean ± standard deviation over n seeds, in percent unless said.

- Base models are trained on half of the training set. Of the other half some images only select and stop, the rest are
  mined or attacked for tuning. Frozen sets are made from test images that the base model recognises, and count only
  images that fool it: so "original" has 0 on all of them.
- *Minimal*: the nearest error per image. BIM in L1 (10 steps, bisected; ours fills the steepest pixels first), FGSM and
  PGD in Linf (PGD: 40 steps of 2.5 epsilon / 40, no random start), bisected; C&W in L2; JSMA with theta 0.1 on at most
  a fifth of the features. *8/255*: that budget in Linf.
- *Adv*: every layer trained on that attack's minimal images of the mining part, alone or with as many clean ones; *adv
  pgd-8*: on PGD 8/255. DARE and these have grids of one size (3 learning rates by the epochs), under a limit of 10
  points of accuracy on the selection images. A baseline is chosen by its own attack on selection images, DARE and its
  variants by all five. "-": every state missed the limit.
- *Null random*: DARE's change of each layer, same norm and weights, in a random direction. *Null continued*: as many
  steps of plain training as DARE took.
- White-box: PGD and C&W made for each tuned model itself. C&W finds an error for almost every image, so the mean
  distance to it (L2, 0 where the model errs already) says more than the success rate.
"""


def report(told: dict[str, Any], lines: Lines, methods: Callable[[dict[str, Any]], list[str]]) -> str:
    text = INTRO
    groups: list[tuple[dict[str, Any], Lines]] = []
    for cell in told["cells"]:
        own = [line for line in lines if line["cell"] == cell["name"]]
        if not own:
            text += f"\n## {cell['name']}\n\nOpen.\n"
        for size in dict.fromkeys(json.dumps(line["sizes"], sort_keys=True) for line in own):
            group = [line for line in own if json.dumps(line["sizes"], sort_keys=True) == size]
            groups.append((cell, group))
            text += _cell(cell, group, methods(cell), told.get("papers", {}).get(cell["name"], {}))
    text += _best(groups) + _figure_3(groups)
    machines = sorted({f"{line['device']}, torch {line['torch']}, commit {line['commit']}" for line in lines})
    return text + "\nMachines: " + "; ".join(machines) + ".\n"


def of(lines: Lines, method: str) -> Lines:
    return [line for line in lines if line["method"] == method]


def spread(values: Sequence[float], digits: int = 1) -> str:
    if not values:
        return ""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = "| " + " | ".join(head) + " |\n" + "| --- " * len(head) + "|\n"
    return "\n" + text + "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _cell(cell: dict[str, Any], lines: Lines, methods: list[str], paper: dict[str, Any]) -> str:
    sizes = lines[0]["sizes"]
    said = ", ".join(f"{name} {value}" for name, value in sizes.items() if name != "grids")
    said += f"; learning rates {sizes['grids']}"
    text = f"\n## {cell['name']}: {cell['model']} on {cell['data']}\n\nSizes: {said}.\n"
    text += "\n### Accuracy on frozen sets and under attack (the paper's tables 2 to 4; its figures in brackets)\n"
    head = ["method", "n", "clean", *(NAMES[name] for name in (*MINIMAL, *FIXED))]
    head += ["white-box PGD 8/255", "C&W success", "C&W distance", "chosen: rate, epochs"]
    main = [name for name in methods if not name.startswith("q ")]
    text += table(head, [_row(lines, name, paper.get(name, {})) for name in main])
    text += _verdict(lines) + _seconds(lines, main, paper.get("minutes", {}))
    return text + (_figure_4(lines, methods) if cell.get("q-sweep") else "")


def _row(lines: Lines, method: str, paper: dict[str, Any]) -> list[str]:
    own = of(lines, method)
    held = [line for line in own if not line["missed"]]
    beside = [f" ({value})" for value in paper.get("frozen", [])] or [""] * 5
    clean = f" ({paper['clean']})" if "clean" in paper else ""
    if not held:
        shown = "-" if own else "open"
        return [method, str(len(own)), shown + clean, *(shown + one for one in beside), *["-" if own else ""] * 7]
    missed = f", {len(own) - len(held)} missed" * (len(own) > len(held))
    row = [method, f"{len(held)}{missed}", spread([100 * line["clean"] for line in held]) + clean]
    for name, one in zip(MINIMAL, beside, strict=True):
        row.append(spread([100 * line["frozen"]["minimal"][name] for line in held]) + one)
    row += [spread([100 * line["frozen"]["fixed"][name] for line in held]) for name in FIXED]
    white = [line["white_box"] for line in held]
    row += [spread([100 * one[name] for one in white]) for name in ("pgd_accuracy", "cw_success")]
    row.append(spread([one["cw_distance"] for one in white], 3))
    chosen = [f"{line['chosen']['learning_rate']:g}, {line['chosen']['epochs']}" for line in held if _chose(line)]
    return [*row, "; ".join(chosen)]


def _chose(line: dict[str, Any]) -> bool:
    return "learning_rate" in line.get("chosen", {})


def _verdict(lines: Lines) -> str:
    """The rule: ahead of the better null control, seed by seed, by more than two standard errors."""
    text = "\n### Does DARE beat the null controls?\n\nRule: its lead over the better of the two controls with the same"
    text += " seed is, on average, more than twice its standard error (over the seeds; of one seed: that of two shares"
    text += " of so many images, and no verdict on distances).\n\n"
    seeds = [line["seed"] for line in of(lines, "dare") if not line["missed"]]
    kept = {name: {line["seed"]: line for line in of(lines, name) if not line["missed"]} for name in ("dare", *NULLS)}
    seeds = [seed for seed in seeds if all(seed in one for one in kept.values())]
    if not seeds:
        return text + "Open: DARE and both controls are needed.\n"
    won = []
    for name, measure in MEASURES.items():
        own = [measure(kept["dare"][seed]) for seed in seeds]
        best = [max(measure(kept[null][seed]) for null in NULLS) for seed in seeds]
        mean, error = lead(own, best)
        if len(seeds) == 1:
            error = _error_of_one(kept["dare"][seeds[0]], name, own[0], best[0])
        won.append(mean > 2 * error)
        share = "distance" not in name
        scale, unit, digits = (100, " points", 1) if share else (1, "", 3)
        missing = "no verdict" if error == inf else f"{scale * error:.{digits}f}{unit}"
        text += f"- {name}: {'yes' if won[-1] else 'no'}, lead {scale * mean:+.{digits}f}{unit}, error {missing},"
        text += f" n = {len(seeds)}.\n"
    text += f"\nIn words: DARE beats its null controls in {sum(won[:2])} of 2 measures on frozen sets, and in"
    text += f" {sum(won[2:])} of 2 when it is attacked itself"
    return text + ("; so it does more than they do.\n" if all(won) else ".\n")


def _error_of_one(line: dict[str, Any], name: str, own: float, best: float) -> float:
    if "distance" in name:
        return inf
    frozen = {"frozen, minimal": MINIMAL, "frozen, 8/255": FIXED}.get(name)
    # the sets come from the same test images, so they count once
    images = min(line["images"][one] for one in frozen) if frozen else line["sizes"]["white-box"]
    return sqrt((own * (1 - own) + best * (1 - best)) / images)


def _seconds(lines: Lines, methods: list[str], minutes: dict[str, str]) -> str:
    text = "\n### Seconds (the paper's Table 5, in minutes on a processor, in brackets)\n\nThe whole grid is in the"
    text += " tuning; a base model's history comes with its training."
    shared = any(line.get("shared") for line in lines)
    text += " Other work ran on the same machine: compare with care.\n" if shared else "\n"
    rows = []
    for method in methods:
        own = of(lines, method)
        if own:
            parts = {part: [line["seconds"][part] for line in own] for part in own[0]["seconds"]}
            said = " + ".join(f"{part} {spread(values)}" for part, values in parts.items())
            given = minutes.get(method.removeprefix("adv "), "")
            rows.append(
                [
                    method,
                    said + (f" ({given})" if given else ""),
                    spread([sum(line["seconds"].values()) for line in own]),
                ]
            )
    return text + table(["method", "parts", "in all"], rows)


def _figure_4(lines: Lines, methods: list[str]) -> str:
    text = "\n### Figure 4: the share of synapses that a class keeps\n"
    head = ["q", "n", "clean", *(NAMES[name] for name in MINIMAL), "key neurons of the target layer"]
    rows = []
    for method in methods:
        held = [line for line in of(lines, method) if not line["missed"]]
        if not method.startswith("q "):
            continue
        if not held:
            rows.append([method.removeprefix("q "), "0", "-" if of(lines, method) else "open", *[""] * 6])
            continue
        frozen = [spread([100 * line["frozen"]["minimal"][name] for line in held]) for name in MINIMAL]
        clean, key = (
            [100 * pick for pick in part]
            for part in zip(*((line["clean"], line["chosen"]["key_neurons"]) for line in held), strict=True)
        )
        rows.append([method.removeprefix("q "), str(len(held)), spread(clean), *frozen, spread(key)])
    return text + table(head, rows)


def _best(groups: list[tuple[dict[str, Any], Lines]]) -> str:
    """A scenario is a cell and one minimal set; means over the seeds are compared."""
    text = "\n## Best in n of m scenarios\n\nA scenario is a cell and one minimal frozen set; means over the"
    text += " seeds that all methods have. The paper"
    text += " (29 of 45 for DARE, 5 for the best baseline) compares the first list.\n"
    mixed = [f"{name} + clean" for name in BASELINES]
    lists = {"as in the paper": ["dare", *BASELINES]}
    lists["with mixed baselines and null controls"] = ["dare", *BASELINES, *mixed, *NULLS]
    rows = []
    for title, names in lists.items():
        wins: dict[str, int] = {}
        scenarios = 0
        for _, lines in groups:
            held = {name: {line["seed"]: line for line in of(lines, name) if not line["missed"]} for name in names}
            held = {name: own for name, own in held.items() if own}
            seeds = set.intersection(*(set(own) for own in held.values())) if held else set()
            if not seeds or "dare" not in held or len(held) < 2:
                continue
            for attack in MINIMAL:
                means = {
                    name: statistics.mean(own[seed]["frozen"]["minimal"][attack] for seed in seeds)
                    for name, own in held.items()
                }
                scenarios += 1
                first = max(means, key=means.__getitem__)
                wins[first] = wins.get(first, 0) + 1
        ranked = sorted(wins.items(), key=lambda one: -one[1])
        rows.append([title, str(scenarios), "; ".join(f"{name} {count}" for name, count in ranked)])
    return text + table(["compared", "scenarios", "best in"], rows)


def _figure_3(groups: list[tuple[dict[str, Any], Lines]]) -> str:
    text = "\n## Figure 3: variants relative to DARE\n\nAccuracy on the minimal frozen sets above DARE's own, as a"
    text += " share of DARE's, in percent: mean over seeds. The paper: dare-s -2.0 and dare-sl -26.9 on average; DARE"
    text += " is 72.9 above rand.\n"
    rows = []
    for cell, lines in groups:
        base = {line["seed"]: line for line in of(lines, "dare") if not line["missed"]}
        for variant in ("dare-s", "dare-sl", "rand", "dare-adv", *NULLS):
            held = [line for line in of(lines, variant) if not line["missed"] and line["seed"] in base]
            if not held:
                continue
            row = [f"{cell['name']}, {variant}"]
            for attack in MINIMAL:
                own = [base[line["seed"]]["frozen"]["minimal"][attack] for line in held]
                found = [line["frozen"]["minimal"][attack] for line in held]
                row.append(spread([100 * (b / a - 1) for a, b in zip(own, found, strict=True) if a]))
            rows.append(row)
    return text + table(["cell, variant", *(NAMES[name] for name in MINIMAL)], rows)

"""The study of uncertainty as Markdown: tables over seeds, and the paper's claims shown or refuted by them."""

from collections.abc import Callable, Sequence
from math import isfinite
from statistics import mean, stdev
from typing import Any

PATTERNS = ("LL", "LH", "HL", "HH")
GOALS = ("misclassified", "kept")
METRICS = ("pcs", "vr", "pe", "mi")
ATTACKS = ("fgsm", "bim", "deepfool", "carlini-wagner")
TESTERS = ("deephunter", "tensorfuzz")
ROWS = ("continued", *PATTERNS, *ATTACKS, "fuzzed")
Line = dict[str, Any]

HEAD = """# Uncertainty: patterns, generation, defences, retraining

Made by `python benchmarks/uncertainty.py report` from the lines beside it, which `python benchmarks/uncertainty.py run`
wrote; the settings are in `benchmarks/uncertainty.toml`. Mean ± standard deviation over n seeds of training. Limits of
PCS and VR are found on validation images (Youden's J). What has no line yet is *open*.
"""


def written(lines: Sequence[Line], models: Sequence[str], sizes: str = "") -> str:
    """The whole page."""
    own = [line for line in lines if line.get("sizes", "") == sizes and line["stage"] != "speed"]
    text = HEAD + (f"\nA small run, not the study: sizes {sizes}.\n" if sizes else "")
    for part in (_patterns, _aurocs, _generation, _defences, _retraining):
        text += part(own, models)
    text += _claims(own, models) + _speed(lines)
    machines = sorted({f"{line['device']}, torch {line['torch']}, commit {line['commit']}" for line in lines})
    return text + "\nMachines: " + "; ".join(machines) + ".\n"


def _of(lines: Sequence[Line], model: str, stage: str, row: str = "") -> list[Line]:
    return [line for line in lines if (line["model"], line["stage"], line["row"]) == (model, stage, row)]


def spread(values: Sequence[float | None], scale: float = 100, digits: int = 1) -> str:
    known = [scale * value for value in values if value is not None and isfinite(value)]
    if not known:
        return "–"
    return f"{mean(known):.{digits}f}" + (f" ± {stdev(known):.{digits}f}" if len(known) > 1 else "")


def _table(columns: Sequence[str]) -> str:
    return "| " + " | ".join(columns) + " |\n" + "| --- " * len(columns) + "|\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _sources(found: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(row["source"] for line in found for row in line["sources"]))


def _named(found: Sequence[Line], name: str) -> list[dict[str, Any]]:
    return [row for line in found for row in line["sources"] if row["source"] == name]


def _patterns(lines: Sequence[Line], models: Sequence[str]) -> str:
    text = "\n## Where inputs lie\n\nThe share of each pattern (PCS first, VR second), in percent, and its entropy.\n"
    for model in models:
        found = _of(lines, model, "profile")
        text += f"\n### {model}\n\n"
        if not found:
            text += "open\n"
            continue
        limits = [spread([line["thresholds"][name][0] for line in found], 1, 3) for name in ("pcs", "vr")]
        error = spread([line["calibration_error"] for line in found])
        text += f"n = {len(found)}; limits PCS {limits[0]}, VR {limits[1]}; calibration error {error} %.\n\n"
        text += _table(["source", "images", "right", *PATTERNS, "unstable", "entropy, bits"])
        for name in _sources(found):
            rows = _named(found, name)
            cells = [spread([row["patterns"][pattern] for row in rows]) for pattern in PATTERNS]
            text += _row(
                name, spread([row["images"] for row in rows], 1, 0), spread([row["accuracy"] for row in rows]), *cells,
                spread([row["unstable"] for row in rows]), spread([row["pattern_entropy_bits"] for row in rows], 1, 2),
            )  # fmt: skip
    return text


def _aurocs(lines: Sequence[Line], models: Sequence[str]) -> str:
    text = "\n## Which metric tells them from benign images\n\nAUROC: 0.5 is chance, 1 parts them all.\n\n"
    text += _table(["model", "source", "n", *(name.upper() for name in METRICS), "best"])
    for model in models:
        found = _of(lines, model, "profile")
        if not found:
            text += _row(model, "open", *[""] * 6)
        for name in _sources(found):
            rows = [row["auroc"] for row in _named(found, name) if row["auroc"]]
            if rows:
                best = max(METRICS, key=lambda metric: mean(row[metric] or 0 for row in rows))
                cells = [spread([row[metric] for row in rows], 1, 3) for metric in METRICS]
                text += _row(model, name, str(len(rows)), *cells, best.upper())
    return text


def _generation(lines: Sequence[Line], models: Sequence[str]) -> str:
    text = (
        "\n## Can each pattern be reached?\n\nPercent of seeds whose input holds pattern and goal under masks that the"
    )
    text += " search never saw; in brackets, where it is below 80, the median best fitness (from 1 on: there; 0 to -1:"
    text += " short of the pattern; below -2: short of the goal).\n\n"
    text += _table(["pattern", "goal", *models])
    for pattern in PATTERNS:
        for goal in GOALS:
            cells = []
            for model in models:
                found = _of(lines, model, "generate", f"{pattern} {goal}")
                rates = [line["success_rate"] for line in found]
                short = bool(rates) and mean(rates) < 0.8
                fitness = f" ({spread([line['median_fitness'] for line in found], 1, 2)})" if short else ""
                cells.append(spread(rates) + fitness if found else "open")
            text += _row(pattern, goal, *cells)
    return text


def _defences(lines: Sequence[Line], models: Sequence[str]) -> str:
    text = "\n## Do they slip through?\n\nPercent of the inputs that fool the bare model and pass a defence, by pattern"
    text += (
        " and source; benign: recognised images lost. × is the share of LL, HL and HH that passes over that of LH.\n"
    )
    for model in models:
        found = _of(lines, model, "defend")
        text += f"\n### {model}\n\n"
        if not found:
            text += "open\n"
            continue
        sources = list(dict.fromkeys(name for line in found for name in line["sources"]))
        text += _table([f"defence (n = {len(found)})", "benign", *PATTERNS, *sources, "×"])
        for at, row in enumerate(found[0]["defences"]):
            rows = [line["defences"][at] for line in found]
            patterns = [spread([one["passes_by_pattern"][name] for one in rows]) for name in PATTERNS]
            passes = [spread([one["passes"].get(name) for one in rows]) for name in sources]
            lost = spread([one["false_positives"] for one in rows])
            text += _row(
                row["defence"], lost, *patterns, *passes, spread([one["uncommon_ratio"] for one in rows], 1, 2)
            )
    return text


def _gain(line: Line, name: str) -> float | None:
    after, before = line["after"].get(name), line["before"].get(name)
    return None if after is None or before is None else after - before


def _retraining(lines: Sequence[Line], models: Sequence[str]) -> str:
    text = "\n## Retraining\n\nManifold mixup within a group of inputs made of training images, beside the unmixed"
    text += " training set; *continued* is the same training without any group. Accuracy, robust accuracy (T3) and"
    text += " accuracy under PGD: points gained; calibration rate: percent of frozen attacks on the model before that"
    text += " are now right.\n"
    for model in models:
        text += f"\n### {model}\n\n"
        text += _table(["group", "n", "inputs", "accuracy", "T3", "PGD", "calibration", *ATTACKS])
        for row in ROWS:
            found = _of(lines, model, "retrain", row)
            done = [line for line in found if "after" in line]
            if not done:
                text += _row(row, "none succeeded" if found else "open", *[""] * 9)
                continue
            gains = [
                spread([_gain(line, name) for line in done]) for name in ("accuracy", "robust_accuracy", "pgd_accuracy")
            ]
            rates = [spread([_rate(line, attack) for line in done]) for attack in ATTACKS]
            inputs = spread([line["samples"] for line in done], 1, 0)
            calibrated = spread([line["after"]["mean_calibration"] for line in done])
            text += _row(row, str(len(done)), inputs, *gains, calibrated, *rates)
    return text


def _rate(line: Line, attack: str) -> float | None:
    return next((rate for name, rate in line["after"]["calibration"].items() if name.startswith(attack)), None)


def _claims(lines: Sequence[Line], models: Sequence[str]) -> str:
    """The paper's claims, each judged by the tables above."""
    text = "\n## The paper's claims\n\n" + _table(["claim", *models])
    judged: dict[str, Callable[[Sequence[Line], str], str]] = {
        "benign inputs are mostly HL": lambda own, model: _mostly(own, model, ("benign",), "HL"),
        "attacked inputs are mostly LH": lambda own, model: _mostly(own, model, ATTACKS, "LH"),
        "testers are more diverse than attacks (entropy)": _diverse,
        "PCS and VR separate best (AUROC)": _separate,
        "uncommon patterns reveal more (paper: 35 % on average, up to 79 %)": _uncommon,
        "HL gains most accuracy": lambda own, model: _best(own, model, lambda line: _gain(line, "accuracy"), "HL"),
        "DeepFool and C&W data cost accuracy": _negative,
        "LH has the best calibration rate (paper, NIN: 92.3 %)": lambda own, model: _best(
            own, model, lambda line: line["after"]["mean_calibration"], "LH"
        ),
    }
    for claim, judge in judged.items():
        text += _row(claim, *(judge(lines, model) for model in models))
    return text


def _mostly(lines: Sequence[Line], model: str, sources: Sequence[str], pattern: str) -> str:
    rows = [row for name in sources for row in _named(_of(lines, model, "profile"), name)]
    if not rows:
        return "open"
    shares = {name: mean(row["patterns"][name] for row in rows) for name in PATTERNS}
    most = max(shares, key=lambda name: shares[name])
    return f"{'shown' if most == pattern else 'refuted'}: {most} {shares[most]:.0%}"


def _diverse(lines: Sequence[Line], model: str) -> str:
    found = _of(lines, model, "profile")
    parts = [
        [row["pattern_entropy_bits"] for name in names for row in _named(found, name)] for names in (TESTERS, ATTACKS)
    ]
    if not all(parts):
        return "open"
    testers, attacks = map(mean, parts)
    return f"{'shown' if testers > attacks else 'refuted'}: {testers:.2f} and {attacks:.2f} bits"


def _separate(lines: Sequence[Line], model: str) -> str:
    rows = [row["auroc"] for name in (*ATTACKS, *TESTERS) for row in _named(_of(lines, model, "profile"), name)]
    rows = [row for row in rows if row and None not in row.values()]
    if not rows:
        return "open"
    means = {metric: mean(row[metric] for row in rows) for metric in METRICS}
    order = sorted(METRICS, key=lambda metric: -means[metric])
    verdict = "shown" if set(order[:2]) == {"pcs", "vr"} else "refuted"
    return f"{verdict}: " + ", ".join(f"{metric.upper()} {means[metric]:.3f}" for metric in order)


def _uncommon(lines: Sequence[Line], model: str) -> str:
    rows = [row["uncommon_ratio"] for line in _of(lines, model, "defend") for row in line["defences"]]
    known = [ratio for ratio in rows if ratio is not None]
    if not known:
        return "open"
    middle = sorted(known)[len(known) // 2]
    return f"{'shown' if middle > 1 else 'refuted'}: median × {middle:.2f}, up to × {max(known):.2f}"


def _best(lines: Sequence[Line], model: str, score: Callable[[Line], float | None], wanted: str) -> str:
    """Only groups of equal size are compared."""
    rows = {row: [line for line in _of(lines, model, "retrain", row) if "after" in line] for row in ROWS[1:]}
    most = max((line["samples"] for found in rows.values() for line in found), default=0)
    means = {}
    for row, found in rows.items():
        known = [value for value in map(score, found) if value is not None]
        if known and all(line["samples"] == most for line in found):
            means[row] = mean(known)
    if wanted not in means or len(means) < 2:
        fewer = [line["samples"] for line in rows[wanted]]
        return f"open: {wanted} has {min(fewer)} of {most} inputs" if fewer else "open"
    best = max(means, key=lambda row: means[row])
    shown = best == wanted and means[best] > 0
    return f"{'shown' if shown else 'refuted'}: best {best} {means[best]:+.1%}, {wanted} {means[wanted]:+.1%}"


def _negative(lines: Sequence[Line], model: str) -> str:
    means = {}
    for row in ("deepfool", "carlini-wagner"):
        known = [_gain(line, "accuracy") for line in _of(lines, model, "retrain", row) if "after" in line]
        means |= {row: mean(value for value in known if value is not None)} if known else {}
    if len(means) < 2:
        return "open"
    plain = [_gain(line, "accuracy") for line in _of(lines, model, "retrain", ROWS[0]) if "after" in line]
    control = mean(value for value in plain if value is not None) if plain else 0.0
    said = ", ".join(f"{row} {gain:+.1%}" for row, gain in means.items()) + f", continued {control:+.1%}"
    return f"{'shown' if max(means.values()) < min(0, control) else 'refuted'}: {said}"


def _speed(lines: Sequence[Line]) -> str:
    text = (
        "\n## Speed\n\n1,000 CIFAR-10 seeds x population 50 x 50 generations x T 20 on ResNet-20, none leaving early;"
    )
    text += " wanted: under 300 s on one H200.\n\n"
    found = [line for line in lines if line["stage"] == "speed"]
    if not found:
        return text + "open\n"
    text += _table(["seeds x population x generations x T", "device", "seconds"])
    return text + "".join(_row(line["row"], line["device"], f"{line['seconds']:.1f}") for line in found)

"""Uncertainty (paper 3) as tables over seeds: patterns, AUROC, generation, defences, retraining."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from ukemi.defences.study import COMMON
from ukemi.experiments.uncertain import ATTACKS, CONTINUED
from ukemi.reports.sections import Line, Lines, Section, per_seed, seeded, spread
from ukemi.reports.texts import Rows
from ukemi.reports.words import listed
from ukemi.uncertainty import GOALS, PATTERNS

METRICS = ("pcs", "vr", "pe", "mi")
ROWS = (CONTINUED, *PATTERNS, *ATTACKS, "fuzzed")
ENOUGH = 0.8
"""share of seeds that a search should turn"""
Missing = Mapping[str, str]


def of(lines: Lines, model: str, stage: str, row: str = "") -> list[Line]:
    return [line for line in lines if (line["model"], line["stage"], line["row"]) == (model, stage, row)]


def named(found: Lines, name: str) -> list[dict[str, Any]]:
    """What every seed found of one source."""
    return [row for line in found for row in line["sources"] if row["source"] == name]


def sources(found: Lines) -> list[str]:
    return list(dict.fromkeys(row["source"] for line in found for row in line["sources"]))


def gain(line: Line, name: str) -> float | None:
    after, before = line["after"].get(name), line["before"].get(name)
    return None if after is None or before is None else after - before


def state(model: str, missing: Missing) -> str:
    """What stands where nothing was measured."""
    return "not run" if model in missing else "open"


def pattern_sections(lines: Lines, models: Sequence[str], missing: Missing) -> list[Section]:
    about = "The share of each pattern (PCS first, VR second), in percent, and its entropy."
    found = []
    for model in models:
        own, title = of(lines, model, "profile"), f"Where inputs lie: {model}"
        if not own:
            found.append(Section(title, [f"{state(model, missing)}."]))
            continue
        limits = [spread([line["thresholds"][name][0] for line in own], 1, 3) for name in ("pcs", "vr")]
        error = spread([line["calibration_error"] for line in own])
        epochs, passes = (_each(own, name) for name in ("epochs", "passes"))
        said = f"n = {len(own)}, {epochs} epochs, T = {passes}; limits PCS {limits[0]},"
        said += f" VR {limits[1]}; calibration error {error} %."
        rows = [[name, *_pattern_cells(named(own, name))] for name in sources(own)]
        names = ["source", "images", "right", *PATTERNS, "unstable", "entropy, bits"]
        found.append(Section(title, [about, said], Rows(names, rows)))
    return found


def _each(lines: Lines, name: str) -> str:
    """The value that all seeds share, or all that they have."""
    return listed([str(value) for value in sorted({line[name] for line in lines})])


def _pattern_cells(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        spread([row["images"] for row in rows], 1, 0),
        spread([row["accuracy"] for row in rows]),
        *(spread([row["patterns"][pattern] for row in rows]) for pattern in PATTERNS),
        spread([row["unstable"] for row in rows]),
        spread([row["pattern_entropy_bits"] for row in rows], 1, 2),
    ]


def auroc_section(lines: Lines, models: Sequence[str], missing: Missing) -> Section:
    """Seed by seed where they are few: by how much the best metric leads the second."""
    rows: list[list[str]] = []
    for model in models:
        own = of(lines, model, "profile")
        if not own:
            rows.append([model, state(model, missing), *[""] * 7])
        for name in sources(own):
            kept = {line["seed"]: row["auroc"] for line in own for row in line["sources"] if row["source"] == name}
            kept = {seed: row for seed, row in kept.items() if row}
            if kept:
                rows.append([model, name, *_auroc_cells(kept)])
    names = ["model", "source", "n", *(name.upper() for name in METRICS), "best", "its lead per seed"]
    said = ["AUROC: 0.5 is chance, 1 parts them all. The lead is over the second best on average."]
    return Section("Which metric tells them from benign images", said, Rows(names, rows))


def _auroc_cells(kept: Mapping[int, Mapping[str, float | None]]) -> list[str]:
    means = {metric: mean(row[metric] or 0 for row in kept.values()) for metric in METRICS}
    best, second = sorted(METRICS, key=lambda metric: -means[metric])[:2]
    leads = {seed: (row[best] or 0) - (row[second] or 0) for seed, row in kept.items()}
    cells = [spread([row[metric] for row in kept.values()], 1, 3) for metric in METRICS]
    return [str(len(kept)), *cells, best.upper(), per_seed(leads, 1, 3)]


def generation_section(lines: Lines, models: Sequence[str], missing: Missing) -> Section:
    said = [
        "Percent of seeds whose input holds pattern and goal under masks that the search never saw; in brackets, where"
        " it is below 80, the median best fitness (from 1 on: there; 0 to -1: short of the pattern; below -2: short of"
        " the goal)."
    ]
    rows = []
    for pattern in PATTERNS:
        for goal in GOALS:
            found = [of(lines, model, "generate", f"{pattern} {goal}") for model in models]
            cells = [_success(own) or state(model, missing) for own, model in zip(found, models, strict=True)]
            rows.append([pattern, goal, *cells])
    return Section("Can each pattern be reached?", said, Rows(["pattern", "goal", *models], rows))


def _success(found: Lines) -> str:
    rates = [line["success_rate"] for line in found]
    if not rates or mean(rates) >= ENOUGH:
        return spread(rates) if rates else ""
    return f"{spread(rates)} ({spread([line['median_fitness'] for line in found], 1, 2)})"


def defence_sections(lines: Lines, models: Sequence[str], missing: Missing) -> list[Section]:
    about = (
        "Percent of the inputs that fool the bare model and pass a defence, by pattern and source; benign: recognised"
    )
    about += " images lost. × is the share of LL, HL and HH that passes over that of LH; × generated the same among the"
    about += " generated inputs alone, which began at the same images and are not outnumbered by the fuzzers'."
    sections = []
    for model in models:
        own, title = of(lines, model, "defend"), f"Do they slip through? {model}"
        if not own:
            sections.append(Section(title, [f"{state(model, missing)}."]))
            continue
        known = list(dict.fromkeys(name for line in own for name in line["sources"]))
        names = ["defence", "benign", *PATTERNS, *known, "×", "× - 1 per seed", "× generated"]
        rows = [_defence_row(own, name, known) for name in defences_of(own)]
        sections.append(Section(title, [f"n = {len(own)}. {about}"], Rows(names, rows)))
    return sections


def defences_of(lines: Lines) -> list[str]:
    """Every defence that any seed has."""
    return list(dict.fromkeys(row["defence"] for line in lines for row in line["defences"]))


def _defence_row(own: Lines, name: str, known: Sequence[str]) -> list[str]:
    found = {line["seed"]: (line, row) for line in own for row in line["defences"] if row["defence"] == name}
    rows = [row for _, row in found.values()]
    ratios = {seed: row["uncommon_ratio"] - 1 for seed, (_, row) in found.items() if row["uncommon_ratio"] is not None}
    return [
        name,
        spread([one["false_positives"] for one in rows]),
        *(spread([one["passes_by_pattern"][pattern] for one in rows]) for pattern in PATTERNS),
        *(spread([one["passes"].get(source) for one in rows]) for source in known),
        spread([one["uncommon_ratio"] for one in rows], 1, 2),
        per_seed(ratios, 1, 2),
        spread([generated_ratio(line, row) for line, row in found.values()], 1, 2),
    ]


def generated_ratio(line: Line, row: Line) -> float | None:
    """Of the inputs generated for uncommon patterns the share that passes a defence, over that of the common one's."""
    uncommon = [name for name in PATTERNS if name != COMMON]
    fooling = {name: line["sources"].get(f"{name}-misclassified", {}).get("fooling", 0) for name in PATTERNS}
    past = {name: count * row["passes"][f"{name}-misclassified"] for name, count in fooling.items() if count}
    made = sum(fooling[name] for name in uncommon)
    if not made or not past.get(COMMON):
        return None
    return sum(past.get(name, 0) for name in uncommon) / made / (past[COMMON] / fooling[COMMON])


def retraining_sections(lines: Lines, models: Sequence[str], missing: Missing) -> list[Section]:
    about = (
        "Manifold mixup within a group of inputs made of training images, beside the unmixed training set; *continued*"
    )
    about += " is the same training without any group. Accuracy, robust accuracy (T3) and accuracy under PGD: points"
    about += " gained; calibration rate: percent of frozen attacks on the model before that are now right. Per seed:"
    about += " points of accuracy gained above *continued*."
    names = ["group", "n", "inputs", "accuracy", "per seed", "T3", "PGD", "calibration", *ATTACKS]
    sections = []
    for model in models:
        title = f"Retraining: {model}"
        if not any(line["model"] == model and line["stage"] == "retrain" for line in lines):
            sections.append(Section(title, [f"{state(model, missing)}."]))
            continue
        rows = [_retrained_row(lines, model, row) for row in ROWS]
        sections.append(Section(title, [about], Rows(names, rows)))
    return sections


def _retrained_row(lines: Lines, model: str, row: str) -> list[str]:
    found = of(lines, model, "retrain", row)
    done = [line for line in found if "after" in line]
    if not done:
        return [row, "none succeeded" if found else "open", *[""] * 10]
    plain = seeded(of(lines, model, "retrain", CONTINUED))
    above = {line["seed"]: _above(line, plain.get(line["seed"])) for line in done if row != CONTINUED}
    gains = [spread([gain(line, name) for line in done]) for name in ("accuracy", "robust_accuracy", "pgd_accuracy")]
    calibrated = spread([line["after"]["mean_calibration"] for line in done])
    rates = [spread([rate_of(line, attack) for line in done]) for attack in ATTACKS]
    inputs = spread([line["samples"] for line in done], 1, 0)
    seeds = per_seed({seed: value for seed, value in above.items() if value is not None})
    return [row, str(len(done)), inputs, gains[0], seeds, *gains[1:], calibrated, *rates]


def _above(line: Line, plain: Line | None) -> float | None:
    own, other = gain(line, "accuracy"), None if plain is None else gain(plain, "accuracy")
    return None if own is None or other is None else own - other


def rate_of(line: Line, attack: str) -> float | None:
    return next((rate for name, rate in line["after"]["calibration"].items() if name.startswith(attack)), None)

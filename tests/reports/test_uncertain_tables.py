"""Tables and claims of the uncertainty experiment against lines made by hand."""

from typing import Any

from ukemi.experiments.uncertain import ATTACKS
from ukemi.reports.experiments import uncertainty_sections
from ukemi.uncertainty import PATTERNS


def source(name: str, most: str, auroc: float | None = None) -> dict[str, Any]:
    shares = {pattern: 0.7 if pattern == most else 0.1 for pattern in PATTERNS}
    values = None if auroc is None else {"pcs": auroc, "vr": auroc - 0.1, "pe": auroc - 0.2, "mi": 0.5}
    found = {"source": name, "images": 10, "accuracy": 0.5, "patterns": shares, "unstable": 0.2}
    return found | {"pattern_entropy_bits": 1.5 if name == "deephunter" else 1.0, "auroc": values}


def profile(seed: int, auroc: float) -> dict[str, Any]:
    sources = [
        source("benign", "HL"),
        *(source(name, "LL", auroc) for name in ATTACKS),
        source("deephunter", "LH", auroc),
    ]
    key = {"model": "net", "stage": "profile", "row": "", "seed": seed, "sources": sources, "passes": 20, "epochs": 3}
    return key | {"thresholds": {"pcs": [0.5, 0.5], "vr": [0.1, 0.1]}, "calibration_error": 0.02}


def retrained(row: str, seed: int, gain: float, samples: int = 20) -> dict[str, Any]:
    before = {"accuracy": 0.8, "robust_accuracy": 0.1, "pgd_accuracy": 0.2, "mean_calibration": 0.0, "calibration": {}}
    after = before | {"accuracy": 0.8 + gain, "mean_calibration": 0.5 + gain, "calibration": {"fgsm (x)": 0.5}}
    key = {"model": "net", "stage": "retrain", "row": row, "seed": seed, "samples": samples}
    return key | {"before": before, "after": after}


def rows_of(part: str, lines: list[dict[str, Any]], title: str) -> dict[str, list[str]]:
    sections = uncertainty_sections(part, lines, ["net", "far"], {"far": "no data"})
    table = next(one.table for one in sections if one.title.startswith(title))
    assert table is not None and len({len(row) for row in (table.names, *table.rows)}) == 1
    return {row[0] if title != "Which" else row[1]: list(row) for row in table.rows}


def test_claims_are_shown_or_refuted_by_the_lines() -> None:
    lines = [profile(0, 0.9), profile(1, 0.8)]
    claims = rows_of("study", lines, "The paper's claims")
    assert claims["benign inputs are mostly HL"][1:] == ["shown: HL 70\u202f%", "not run"]
    assert claims["attacked inputs are mostly LH"][1] == "refuted: LL 70\u202f%"
    assert claims["testers are more diverse than attacks (entropy)"][1] == "shown: 1.50 and 1.00 bits"
    assert claims["PCS and VR separate best (AUROC)"][1] == "shown: PCS 0.850, VR 0.750, PE 0.650, MI 0.500"
    aurocs = rows_of("study", lines, "Which")
    assert aurocs["fgsm"][2:4] == ["2", "0.850 ± 0.071"] and aurocs["fgsm"][-2:] == ["PCS", "+0.100, +0.100"]
    assert aurocs["not run"][0] == "far"


def test_the_table_of_patterns_has_a_row_per_source_and_says_how_it_was_measured() -> None:
    lines = [profile(0, 0.9), profile(1, 0.8)]
    lines[1]["sources"][1]["accuracy"] = 0.3
    rows = rows_of("study", lines, "Where inputs lie: net")
    assert list(rows) == ["benign", *ATTACKS, "deephunter"]
    low = ["10.0 ± 0.0"] * 3
    end = ["20.0 ± 0.0", "1.00 ± 0.00"]
    assert rows["fgsm"] == ["fgsm", "10 ± 0", "40.0 ± 14.1", "70.0 ± 0.0", *low, *end]
    assert rows["benign"][3:7] == [*low[:2], "70.0 ± 0.0", low[0]]
    sections = uncertainty_sections("study", lines, ["net", "far"], {"far": "no data"})
    said = {one.title: list(one.said) for one in sections}
    measured = "n = 2, 3 epochs, T = 20; limits PCS 0.500 ± 0.000, VR 0.100 ± 0.000; calibration error 2.0 ± 0.0 %."
    assert said["Where inputs lie: net"][1] == measured and said["Where inputs lie: far"] == ["not run."]


def test_pcs_and_vr_separate_best_only_where_they_are_the_first_two() -> None:
    line = profile(0, 0.9)
    for one in line["sources"][1:]:
        one["auroc"] = {"pcs": 0.9, "vr": 0.7, "pe": 0.8, "mi": 0.5}
    claim = rows_of("study", [line], "The paper's claims")["PCS and VR separate best (AUROC)"][1]
    assert claim == "refuted: PCS 0.900, PE 0.800, VR 0.700, MI 0.500"


def test_a_claim_that_holds_for_some_attacks_says_for_which_not() -> None:
    def judged(*most: str) -> str:
        line = profile(0, 0.9)
        line["sources"] = [source(name, one) for name, one in zip(ATTACKS, most, strict=True)]
        return rows_of("study", [line], "The paper's claims")["attacked inputs are mostly LH"][1]

    assert judged("LH", "LH", "LH", "HL") == f"shown: LH 55\u202f% (but {ATTACKS[3]} HL 70\u202f%)"
    assert (
        judged("LH", "LL", "LH", "HL")
        == f"in part: LH 40\u202f% (but {ATTACKS[1]} LL 70\u202f% and {ATTACKS[3]} HL 70\u202f%)"
    )
    assert judged("LH", "HL", "HL", "HL") == "refuted: HL 55\u202f%"


def test_a_search_below_its_aim_says_how_far_it_came() -> None:
    key = {"model": "net", "stage": "generate", "seed": 0}
    lines = [key | {"row": "HH kept", "success_rate": 0.5, "median_fitness": -0.25}]
    lines.append(key | {"row": "LL kept", "success_rate": 0.9, "median_fitness": 1.0})
    sections = uncertainty_sections("generation", lines, ["net", "far"], {"far": "no data"})
    assert sections[0].table is not None
    rows = {" ".join(row[:2]): row[2:] for row in sections[0].table.rows}
    assert rows["HH kept"] == ["50.0 (-0.25)", "not run"] and rows["LL kept"][0] == "90.0"
    assert rows["LH kept"][0] == "open" and len(rows) == 8


def test_retraining_is_read_against_training_on() -> None:
    lines = [retrained("continued", seed, 0.01) for seed in range(2)]
    lines += [retrained("HL", seed, 0.03 + 0.01 * seed) for seed in range(2)]
    lines += [retrained("LH", 0, 0.0), retrained("deepfool", 0, -0.02), retrained("carlini-wagner", 0, -0.01)]
    lines.append({"model": "net", "stage": "retrain", "row": "HH", "seed": 0, "samples": 1})
    rows = rows_of("retraining", lines, "Retraining: net")
    assert rows["HL"][3:5] == ["3.5 ± 0.7", "+2.0, +3.0"] and rows["continued"][4] == ""
    assert rows["HH"][1] == "none succeeded" and rows["LL"][1] == "open" and rows["HL"][8] == "50.0 ± 0.0"
    claims = rows_of("retraining", lines, "The paper's claims")
    said = "refuted: best HL 53.5\u202f%, LH 50.0\u202f%"
    assert claims["LH has the best calibration rate (paper, NIN: 92.3 %)"][1] == said
    assert claims["HL gains most accuracy"][1] == "shown: best HL +3.5 points, HL +3.5 points"
    said = "shown: deepfool −2.0 points, carlini-wagner −1.0 points, continued +1.0 points"
    assert claims["DeepFool and C&W data cost accuracy"][1] == said
    for change, verdict in ((0.0, "refuted"), (-0.0105, "too close to tell"), (-0.012, "shown")):
        lines = [retrained("continued", 0, -0.01), retrained("deepfool", 0, -0.02)]
        claims = rows_of("retraining", [*lines, retrained("carlini-wagner", 0, change)], "The paper's claims")
        assert claims["DeepFool and C&W data cost accuracy"][1].startswith(f"{verdict}: deepfool")


def test_only_groups_of_equal_size_are_compared() -> None:
    lines = [retrained("HL", 0, 0.03), retrained("LH", 0, 0.0)]
    fewer = [*lines, retrained("LL", 0, 0.5, samples=3)]  # of another size, so not compared
    assert rows_of("retraining", fewer, "The paper's claims")["HL gains most accuracy"][1].startswith("shown")


def test_a_group_without_another_of_its_size_is_open() -> None:
    def judged(*lines: dict[str, Any]) -> str:
        return rows_of("retraining", list(lines), "The paper's claims")["HL gains most accuracy"][1]

    alone = retrained("HL", 0, 0.03)
    assert judged(alone) == "open"
    assert judged(alone, retrained("LH", 0, 0.0, samples=40)) == "open: HL has 20 of 40 inputs"


def test_the_best_of_what_costs_accuracy_gains_none() -> None:
    lines = [retrained("HL", 0, -0.01), retrained("LH", 0, -0.02)]
    claim = rows_of("retraining", lines, "The paper's claims")["HL gains most accuracy"][1]
    assert claim == "refuted: best HL −1.0 points, HL −1.0 points"


def test_what_attacks_cost_is_open_without_the_control() -> None:
    lines = [retrained("deepfool", 0, -0.02), retrained("carlini-wagner", 0, -0.01)]
    claims = rows_of("retraining", lines, "The paper's claims")
    assert claims["DeepFool and C&W data cost accuracy"][1] == "open"


def test_defences_show_what_passes_and_how_much_more_of_the_uncommon() -> None:
    def line(seed: int, ratio: float | None) -> dict[str, Any]:
        row = {"defence": "jpeg", "false_positives": 0.1, "passes": {"fgsm": 0.5}, "uncommon_ratio": ratio}
        row["passes_by_pattern"] = dict.fromkeys(PATTERNS, 0.2)
        return {"model": "net", "stage": "defend", "row": "", "seed": seed, "sources": {"fgsm": {}}, "defences": [row]}

    rows = rows_of("defences", [line(0, 1.5), line(1, 0.5), line(2, None)], "Do they slip through? net")
    assert rows["jpeg"] == ["jpeg", "10.0 ± 0.0", *["20.0 ± 0.0"] * 4, "50.0 ± 0.0", "1.00 ± 0.71", "+0.50, -0.50", "–"]


def test_generated_inputs_are_compared_among_themselves() -> None:
    """Three of ten uncommon ones pass, one of five common ones: a thousand fuzzed inputs count for nothing here."""
    fooling = {"LL-misclassified": 4, "HL-misclassified": 6, "LH-misclassified": 5, "fgsm": 1000}
    passes = {"LL-misclassified": 0.75, "HL-misclassified": 0.0, "LH-misclassified": 0.2, "fgsm": 1.0}
    row = {"defence": "jpeg", "false_positives": 0.1, "passes": passes, "uncommon_ratio": 0.5}
    row["passes_by_pattern"] = dict.fromkeys(PATTERNS, 0.2)
    found = {name: {"images": 1000, "fooling": count} for name, count in fooling.items()}
    line = {"model": "net", "stage": "defend", "row": "", "seed": 0, "sources": found, "defences": [row]}
    assert rows_of("defences", [line], "Do they slip through? net")["jpeg"][-1] == "1.50"
    claims = rows_of("defences", [line], "The paper's claims")
    assert claims["so they do among generated inputs alone"][1] == "shown: median × 1.50, up to × 1.50"
    assert claims["uncommon patterns reveal more (paper: 35 % on average, up to 79 %)"][1].startswith("refuted: median")
    nothing = line | {"defences": [row | {"passes": passes | {"LH-misclassified": 0.0}}]}
    assert rows_of("defences", [nothing], "Do they slip through? net")["jpeg"][-1] == "–"


def test_seeds_with_other_defences_are_put_together_by_name() -> None:
    def line(seed: int, *names: str) -> dict[str, Any]:
        rows = [
            {"defence": name, "false_positives": 0.1 * seed, "passes": {}, "uncommon_ratio": float(len(name))}
            | {"passes_by_pattern": dict.fromkeys(PATTERNS, 0.2)}
            for name in names
        ]
        return {"model": "net", "stage": "defend", "row": "", "seed": seed, "sources": {}, "defences": rows}

    rows = rows_of("defences", [line(0, "jpeg", "vote"), line(1, "a", "jpeg")], "Do they slip through? net")
    assert list(rows) == ["jpeg", "vote", "a"]
    assert [rows[name][1] for name in rows] == ["5.0 ± 7.1", "0.0", "10.0"]
    assert [rows[name][6] for name in rows] == ["4.00 ± 0.00", "4.00", "1.00"]

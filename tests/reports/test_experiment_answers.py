"""What experiments answer, from lines made by hand."""

from typing import Any

import pytest
from test_dare_tables import line
from test_uncertain_tables import profile, retrained

from ukemi.experiments import ExperimentConfig, Findings
from ukemi.experiments.frozen import MINIMAL
from ukemi.reports import words
from ukemi.reports.dare_pictures import frozen, over_share, seconds, variants
from ukemi.reports.experiment_answers import beside_dare, best_in, best_share, experiment_answer, reached, takes
from ukemi.reports.experiments import dare_sections, uncertainty_sections
from ukemi.uncertainty import GOALS, PATTERNS

THIN = words.THIN


def shares(**values: list[float]) -> list[dict[str, Any]]:
    chosen = {"accuracy_before": 0.9, "accuracy_after": 0.88, "key_neurons": 0.5}
    return [
        line(f"q {q[1:]}", seed, value, clean=0.8 if q == "q85" else 0.82, chosen=chosen)
        for q, several in values.items()
        for seed, value in enumerate(several)
    ]


def test_the_best_share_is_named_beside_the_papers() -> None:
    said = best_share(shares(q85=[0.5, 0.7], q95=[0.52, 0.6], q100=[0.1, 0.1]))
    assert said == (
        f"q 85 holds best on the frozen sets, 60.0{THIN}% on average, 4.0 points above q 95 (ahead in 1 of 2 seeds)."
        f" It keeps 80.0{THIN}% accuracy beside 82.0{THIN}% of q 95;"
        " on the selection images tuning moved it by −2.0 points."
    )
    own = best_share(shares(q95=[0.7], q85=[0.5]))
    assert "q 95 holds best" in own and "20.0 points above q 85 (ahead in 1 of 1 seed)" in own
    assert "; q 95 is open or lost too much accuracy." in best_share(shares(q85=[0.5]))
    assert best_share([]) == "open." and best_share([{"method": "q 95", "missed": True}]).startswith("every share lost")


def test_time_is_a_ratio_to_the_cheapest_and_the_dearest_baseline() -> None:
    found = [line("dare", seed, 0.5, seconds={"mine": 10.0, "tune": 20.0 * seed}) for seed in (0, 1)]  # 20 s
    found.append(line("adv fgsm", 0, 0.5, seconds={"generate": 2.0, "tune": 8.0}))
    assert takes(found).startswith(f"DARE takes 20.0{THIN}s, 2 times the only finished adversarial baseline (FGSM,")
    found.append(line("adv cw", 0, 0.5, seconds={"generate": 70.0, "tune": 10.0}, shared=True))
    assert takes(found) == (
        f"DARE takes 20.0{THIN}s, 2 times the cheapest adversarial baseline (FGSM, 10.0{THIN}s) and 0.25 times the"
        f" dearest adversarial baseline (C&W, 80.0{THIN}s). Open: BIM, JSMA and PGD."
        " Other work ran on the same machine: compare with care."
    )
    assert takes(found[:2]).startswith("open: DARE and an adversarial baseline")


def generated(**rates: float) -> list[dict[str, Any]]:
    key = {"model": "net", "stage": "generate", "median_fitness": 0.0, "seed": 0}
    return [key | {"row": name.replace("_", " "), "success_rate": rate} for name, rate in rates.items()]


def test_pairs_that_are_not_reached_are_named() -> None:
    every = {f"{pattern}_{goal}": 0.8 for pattern in PATTERNS for goal in GOALS}
    start = f"net: 8 of 8 pairs of pattern and goal are reached by at least 80{THIN}% of the seeds."
    assert reached(generated(**every), "net") == start
    low = reached(generated(**every | {"HH_kept": 0.5, "LL_misclassified": 0.1}), "net")
    assert "6 of 8" in low and low.endswith(f"; not LL misclassified (10{THIN}%) and HH kept (50{THIN}%).")
    every.pop("HH_kept")
    assert reached(generated(**every), "net").endswith("7 of 8 pairs of pattern and goal are reached by at least"
        f" 80{THIN}% of the seeds; open: HH kept.")  # fmt: skip
    assert reached([], "net") == "net: open."


def test_variants_are_told_in_points_from_dare_with_the_same_seed() -> None:
    found = [line("dare", 0, 0.5), line("dare", 1, 0.7), line("dare-s", 1, 0.6), line("dare-sl", 5, 0.1)]
    found.append({"cell": "c", "method": "rand", "seed": 0, "missed": True, "seconds": {}})
    wanted = "dare-s −10.0, dare-sl open, rand lost too much accuracy"
    assert beside_dare(found) == f"on the frozen sets, in points from DARE: {wanted}."
    assert beside_dare(found[2:]) == "open."


def test_scenarios_are_counted() -> None:
    found = [line("dare", 0, 0.5), line("adv bim", 0, 0.6)]
    found[1]["frozen"]["minimal"]["fgsm"] = 0.1
    many = len(MINIMAL)
    assert best_in({"c": found}) == [
        f"DARE is best in 1 of {many} scenarios; the best baseline is adv bim with {many - 1}."
    ]
    assert best_in({"c": found[:1]}) == []
    level = [found[0], {**found[0], "method": "adv fgsm"}]
    assert best_in({"c": level}) == ["DARE is best in 0 of 5 scenarios; 5 ties."]


def marks(picture: Any) -> int:
    assert picture is not None
    return str(picture.svg).count("data-tip=")


def test_pictures_have_a_mark_for_every_value() -> None:
    found = shares(q85=[0.5, 0.7], q95=[0.52, 0.6])
    assert marks(over_share(found, ["q 85", "q 95", "q 100"])) == 2 * (len(MINIMAL) + 1)
    assert "C&amp;W, q 85: 60.0" in str(over_share(found, ["q 85"]).svg)  # type: ignore[union-attr]
    assert over_share([], ["q 85"]) is None
    found = [line("dare", 0, 0.5), line("null random", 0, 0.4), line("dare-s", 0, 0.25)]
    assert marks(frozen(found, ["dare", "null random", "adv bim"])) == 4
    drawn = variants("c", found)
    assert marks(drawn) == 2 * len(MINIMAL) and "dare-s, FGSM: −50.0" in str(drawn.svg)  # type: ignore[union-attr]
    timed = seconds([*found, line("original", 0, 0.5, seconds={"train": 9.0})], ["original", "dare"])
    assert marks(timed) == 2 and "dare, tune: 2.0" in str(timed.svg)  # type: ignore[union-attr]


def defended() -> dict[str, Any]:
    row = {"defence": "jpeg", "false_positives": 0.1, "passes": {}, "uncommon_ratio": 1.0}
    row["passes_by_pattern"] = dict.fromkeys(PATTERNS, 0.2)
    return {"model": "net", "stage": "defend", "row": "", "seed": 0, "sources": {}, "defences": [row]}


def test_claims_are_sentences() -> None:
    cells = [{"name": name, "data": "fashion-mini", "model": "lenet5"} for name in ("net", "far")]
    told = ExperimentConfig(title="T", experiment="uncertainty", part="study", cells=cells)
    said = experiment_answer(Findings(told, (profile(0, 0.9), profile(1, 0.8)), {"far": "no data"}, 0))
    assert said[0] == "Claim: benign inputs are mostly HL. net: shown, HL 70\u202f%; far: not run."


@pytest.mark.parametrize(
    ("part", "lines", "wanted"),
    [
        ("study", [profile(0, 0.9), profile(1, 0.8)], [0, 6 * 4, 0, 5 * 4]),
        ("generation", generated(HH_kept=0.5, LL_kept=0.9), [2]),
        ("defences", [defended()], [0, 4, 0]),
        ("retraining", [retrained("continued", 0, 0.01), retrained("HL", 0, -0.01)], [0, 2 + 2, 0]),
    ],
)
def test_every_part_of_the_uncertainty_paper_is_drawn(
    part: str, lines: list[dict[str, Any]], wanted: list[int]
) -> None:
    sections = uncertainty_sections(part, lines, ["net", "far"], {"far": "no data"})
    assert [sum(map(marks, one.pictures)) for one in sections] == wanted


@pytest.mark.parametrize(
    ("part", "drawn"), [("variants", 2), ("mining", 2), ("share", 1), ("efficiency", 1), ("effectiveness", 1)]
)
def test_every_part_of_dare_is_drawn(part: str, drawn: int) -> None:
    found = [*shares(q95=[0.5]), line("dare", 0, 0.5), line("dare-s", 0, 0.4), line("adv bim", 0, 0.3)]
    pieces = ["q 95"] if part == "share" else ["dare", "dare-s", "adv bim"]
    assert sum(len(one.pictures) for one in dare_sections(part, {"c": found}, pieces, {})) == drawn

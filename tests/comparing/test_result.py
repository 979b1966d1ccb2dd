"""From outcomes to the answer, on outcomes made by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from comparison_samples import CASE, OUTCOMES, comparison, outcome

from ukemi.comparing import Case, CompareConfig, gathered, planned
from ukemi.comparing.result import CaseResult, _per_image, summary
from ukemi.measures.statistics import paired


def test_pairs_have_the_same_seeds_and_the_same_images() -> None:
    pair = CASE.pair("search", "luck", "robust")
    assert pair is not None
    values = [[OUTCOMES[name][seed].measures["robust"] for seed in (0, 1, 2)] for name in ("search", "luck")]
    assert pair.over_seeds == paired(values[0], values[1]) and pair.over_seeds.wins == 3
    low, high = pair.over_images or (0, 0)
    assert low < pair.over_seeds.mean < high and low > 0
    assert CASE.pair("search", "luck", "seconds").over_images is None  # type: ignore[union-attr]
    assert CASE.pair("search", "nobody", "robust") is None


def test_seeds_that_only_one_has_are_left_out() -> None:
    outcomes = {"a": {0: outcome(0.5), 1: outcome(0.7)}, "b": {1: outcome(0.6), 2: outcome(0.1)}}
    pair = CaseResult("case", ("t3-81",), outcomes, {}).pair("a", "b", "robust")
    assert pair is not None and pair.over_seeds.differences == pytest.approx((0.1,))


def test_images_are_matched_by_their_identity_where_the_seed_splits_the_data() -> None:
    """Seed 0 tests images 0..9, seed 1 tests 5..14: image 7 counts once, with the mean of its two differences."""

    def half(first: int, right: int, all_right: bool) -> object:
        kept = torch.arange(10) < right if not all_right else torch.ones(10, dtype=torch.bool)
        one = outcome(float(kept.float().mean()), images=10)
        return replace(one, images={"robust": kept}, index={"robust": torch.arange(first, first + 10)})

    outcomes = {"a": {0: half(0, 0, True), 1: half(5, 0, True)}, "b": {0: half(0, 5, False), 1: half(5, 0, True)}}
    pair = CaseResult("case", ("t3-81",), outcomes, {}).pair("a", "b", "robust")  # type: ignore[arg-type]
    assert pair is not None and pair.over_seeds.mean == pytest.approx(0.25)
    low, high = pair.over_images or (0, 0)
    # of 15 images five (5..9) differ, each in one of the two seeds in which it was tested: 5 x 1/2 / 15
    assert low < 2.5 / 15 < high
    once = _per_image([torch.ones(2).double(), torch.arange(2).double()], [torch.arange(2), torch.arange(1, 3)])
    assert once.tolist() == [1.0, 0.5, 1.0]  # an image that one seed alone tested counts in full


def test_the_answer_is_the_best_against_the_one_behind_it() -> None:
    found = comparison()
    assert found.ranked() == ["search", "luck", "plain"]
    pair = found.answer()
    assert pair is not None and (pair.first, pair.second) == ("search", "luck") and pair.over_images is not None
    other = CaseResult("other", ("t3-81",), {name: dict(seeds) for name, seeds in OUTCOMES.items()}, {})
    both = replace(found, cases=(CASE, other))
    pair = both.answer()
    assert pair is not None and pair.over_images is None
    assert pair.over_seeds.mean == pytest.approx(CASE.pair("search", "luck", "robust").over_seeds.mean)  # type: ignore[union-attr]
    assert both.tally("search", "luck", "robust") == (2, 0, 0) and both.tally("luck", "search", "robust") == (0, 0, 2)
    assert replace(found, methods=("plain",)).answer() is None


def test_a_case_that_a_method_did_not_finish_is_left_out_of_its_mean_difference() -> None:
    without = CaseResult("other", ("t3-81",), {"luck": OUTCOMES["luck"]}, {"search": {0: "diverged"}})
    both = replace(comparison(), cases=(CASE, without))
    overall = both.overall("search", "luck", "robust")
    assert overall is not None and overall.over_seeds == CASE.pair("search", "luck", "robust").over_seeds  # type: ignore[union-attr]


def test_the_summary_says_it_all_and_is_json() -> None:
    missing = CaseResult("svhn", ("t3-81",), {}, {}, "the data set svhn is not there")
    values = json.loads(json.dumps(summary(replace(comparison(), cases=(CASE, missing)), command="x"), allow_nan=False))
    assert values["schema"] == 1 and values["command"] == "x" and values["baseline"] == "luck"
    case = values["cases"][0]
    assert set(case["methods"]) == {"plain", "luck", "search"} and values["cases"][1]["not_run"].endswith("not there")
    robust = case["methods"]["search"]["robust"]
    assert robust["n"] == 3 and robust["mean"] == pytest.approx(sum(robust["by_seed"].values()) / 3)
    pairs = {(pair["first"], pair["second"], pair["measure"]): pair for pair in case["pairs"]}
    # the later one of the methods against the earlier
    both = {("luck", "plain"), ("search", "plain"), ("search", "luck")}
    assert len(case["pairs"]) == 3 * 2 and {name[:2] for name in pairs} == both
    found = CASE.pair("search", "luck", "robust")
    assert found is not None and pairs["search", "luck", "robust"]["p"] == found.over_seeds.p != found.over_seeds.mean
    assert pairs["search", "luck", "robust"]["verdict"] == "win"
    assert len(pairs["search", "luck", "robust"]["bootstrap_95_over_images"]) == 2
    assert values["overall"][1]["cases_won"] == 1 and values["answer"]["first"] == "search"
    plain, search = values["overall"]
    assert (plain["first"], search["first"]) == ("plain", "search") and plain["difference"] < 0 < search["difference"]


def test_over_several_cases_methods_have_the_mean_of_their_means() -> None:
    """Luck leads on one case, search on both together."""
    other = {"luck": {0: outcome(0.5)}, "search": {0: outcome(0.4), 1: outcome(0.4)}}
    case = CaseResult("case", ("t3-81",), {"luck": {0: outcome(0.2)}, "search": {0: outcome(0.4)}}, {})
    found = replace(comparison(), cases=(case, CaseResult("other", ("t3-81",), other, {})))
    assert found.ranked() == ["search", "luck"] and found.mean("luck") == pytest.approx(0.35)


def test_the_summary_has_the_most_test_images_of_any_seed() -> None:
    """Groups that never part make the parts of two seeds differ in size."""
    seeds = {0: outcome(0.5, images=8), 1: outcome(0.5, images=9)}
    values = summary(replace(comparison(), cases=(CaseResult("case", ("t3-81",), {"luck": seeds}, {}),)))
    assert values["cases"][0]["test_images"] == 9


def test_methods_are_ranked_on_what_all_of_them_finished() -> None:
    """Who stops where it is hard must not lead by what is left."""
    hard = {"luck": {seed: outcome(0.2) for seed in range(3)}, "search": {seed: outcome(0.3) for seed in range(3)}}
    easy = {**OUTCOMES, "plain": {seed: outcome(0.55) for seed in range(3)}}
    stopped = {"plain": dict.fromkeys(range(3), "diverged")}
    cases = (replace(CASE, outcomes=easy), CaseResult("hard", ("t3-81",), hard, stopped))
    both = replace(comparison(), cases=cases)
    assert both.ranked() == ["search", "plain", "luck"]  # plain's 0.55 beside 0.36 of luck's two cases
    pair = both.answer()
    assert pair is not None and (pair.first, pair.second) == ("search", "plain") and pair.over_seeds.mean > 0
    assert both.mean("search") == pytest.approx(0.608)


def test_the_answer_rests_on_the_cases_that_all_methods_finished() -> None:
    """Search leads luck by far where plain stopped; what is said is the lead on the two cases that it is ranked on."""
    far = {"luck": {seed: outcome(0.1) for seed in range(3)}, "search": {seed: outcome(0.9) for seed in range(3)}}
    cases = (CASE, replace(CASE, name="again"), CaseResult("hard", ("t3-81",), far, {"plain": {0: "diverged"}}))
    pair, alone = replace(comparison(), cases=cases).answer(), CASE.pair("search", "luck", "robust")
    assert pair is not None and alone is not None
    assert pair.over_seeds.mean == pytest.approx(alone.over_seeds.mean)


def test_methods_are_ranked_with_the_seeds_that_all_of_them_finished() -> None:
    outcomes = {"luck": {0: outcome(0.2), 1: outcome(0.8)}, "search": {0: outcome(0.3)}}
    case = CaseResult("case", ("t3-81",), outcomes, {"search": {1: "diverged"}})
    found = replace(comparison(), methods=("luck", "search"), cases=(case,))
    pair = found.answer()
    assert found.ranked() == ["search", "luck"] and pair is not None and pair.over_seeds.mean == pytest.approx(0.1)


def test_who_leads_and_by_how_much_rest_on_the_same_seeds() -> None:
    """Luck leads by its later seeds, which the second case lacks: best by one figure, it was behind by the other."""
    easy = {"luck": dict(enumerate(map(outcome, (0.5, 0.8, 0.8)))), "search": dict.fromkeys(range(3), outcome(0.6))}
    hard = {"luck": {0: outcome(0.5)}, "search": dict.fromkeys(range(3), outcome(0.5))}
    cases = (replace(CASE, outcomes=easy), CaseResult("hard", ("t3-81",), hard, {"luck": {1: "diverged", 2: "same"}}))
    found = replace(comparison(), methods=("luck", "search"), cases=cases)
    pair = found.answer()
    assert found.ranked() == ["search", "luck"] and pair is not None and pair.over_seeds.mean == pytest.approx(0.05)
    assert found.mean("search") == pytest.approx(0.55) and found.mean("luck") == pytest.approx(0.5)
    first, second = ({name: {seed: runs[seed]} for name, runs in easy.items()} for seed in (0, 1))
    assert replace(found, cases=(replace(CASE, outcomes=first), replace(cases[1], outcomes=second))).answer() is None


def test_settings_name_the_data_that_were_used(tmp_path: Path) -> None:
    told = CompareConfig(cases=(Case(data="mnist", model="lenet5"),), out=tmp_path)
    settings = gathered(told, planned(told)).settings
    assert settings["cases"][0]["data"] == "mnist" and not {"data", "models"} & set(settings)
    told = CompareConfig(out=tmp_path)
    settings = gathered(told, planned(told)).settings
    assert (settings["data"], settings["models"]) == (["fashion-mini"], ["demo-cnn"]) and "cases" not in settings

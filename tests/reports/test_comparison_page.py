"""A comparison's page."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from report_samples import HOSTILE
from test_report_page import page_load, read

sys.path.insert(0, str(Path(__file__).parents[1] / "comparing"))
from comparison_samples import CASE, OUTCOMES, comparison, outcome

from ukemi.comparing.outcomes import Outcome
from ukemi.comparing.result import CaseResult
from ukemi.comparing.shown import ASKED
from ukemi.measures.sensitivity import Axis, Landscape
from ukemi.reports import comparison_answer, words, write_comparison
from ukemi.reports.comparison import difference_rows, measure_rows
from ukemi.reports.comparison_costs import cost_said
from ukemi.reports.comparison_page import _cost, _curves, _loss, _of_mean
from ukemi.reports.doubts import doubts_compared
from ukemi.reports.side_by_side import _recognised, gallery_of, near_images, same_seed
from ukemi.reports.writing import flat


def test_the_answer_may_begin_with_the_cost() -> None:
    usual = comparison()
    first = comparison_answer(replace(usual, settings={**usual.settings, "cost_first": True}))
    cost = cost_said(usual)
    assert cost and first[: len(cost)] == cost
    assert sorted(first) == sorted(comparison_answer(usual)) and comparison_answer(usual)[: len(cost)] != cost


def test_what_decides_is_drawn_at_a_glance(tmp_path: Path) -> None:
    for decides, bars in (("robust", 3), ("accuracy", 3)):
        write_comparison(tmp_path, replace(comparison(), decides=decides), command="ukemi compare")
        page = read(tmp_path / "page.html")
        titles = [svg["aria-label"] or "" for svg in page.all("svg") if svg.get("class") == "bar"]
        assert len(titles) == bars and ("robust accuracy" in titles[2]) == (decides == "robust")
        assert ("recognised unchanged" in page.said()) == (decides == "robust")
    assert titles[2] == "search: accuracy 84.0\u202f%"


def test_accuracy_under_attack_is_drawn_on_that_of_the_same_images(tmp_path: Path) -> None:
    """The first 200 of 1,000 images are attacked; all of them are recognised, of the others fewer."""
    few = torch.arange(200)

    def attacked(one: Outcome) -> Outcome:
        images, index = {**one.images, "attacked": (few < 180).double()}, {**one.index, "attacked": few}
        return replace(one, measures={**one.measures, "attacked": 0.9}, images=images, index=index)

    runs = {"search": {seed: attacked(one) for seed, one in OUTCOMES["search"].items()}}
    found = replace(comparison(), cases=(replace(CASE, outcomes=runs),), decides="attacked")
    write_comparison(tmp_path, found, command="ukemi compare")
    page = read(tmp_path / "page.html")
    (bar,) = [svg for svg in page.all("svg") if svg.get("class") == "bar"]
    assert bar["aria-label"] == "search: accuracy 100.0\u202f%, accuracy under attack 90.0\u202f%"
    assert "still under attack (both of the attacked images)" in page.said()


def test_the_runs_are_copied_without_the_mark_of_a_file(tmp_path: Path) -> None:
    write_comparison(tmp_path, comparison(), command="ukemi compare")
    assert (tmp_path / "table.csv").read_text().startswith("\ufeffcase,method,seed,")
    page = (tmp_path / "page.html").read_text()
    assert '<pre class="copy">case,method,seed,' in page and "\ufeff" not in page


def test_methods_that_learnt_nothing_are_named() -> None:
    """A model that answers the same always holds on all that it recognises, and may lead by that."""
    found = page_load().comparison(8)
    (case,) = found.cases
    runs = {
        seed: replace(one, measures={"accuracy": 0.1, "robust": 0.1}) for seed, one in case.outcomes["sensei"].items()
    }
    lost = replace(case, outcomes={**case.outcomes, "sensei": runs})
    said = "On noise sensei recognises no more than guessing does. A model that gives one answer to all images holds"
    assert any(one.startswith(said) for one in comparison_answer(replace(found, cases=(lost,))))
    assert "guessing" not in " ".join(comparison_answer(found))


def test_two_seeds_or_equal_differences_give_no_interval(tmp_path: Path) -> None:
    two = replace(CASE, outcomes={name: {at: seeds[at] for at in (0, 1)} for name, seeds in OUTCOMES.items()})
    found = replace(comparison(), cases=(two,), seeds=(0, 1))
    sure = comparison_answer(found)[1]
    assert sure.startswith("With 2 seeds no interval over other seeds is known: it takes 3; for these very models on")
    assert "on other images the 95 % interval is" in sure and sure.endswith(" points.")
    assert difference_rows(found).rows[1][2] == "not known"
    write_comparison(tmp_path, found, command="ukemi compare")
    assert "95 % interval of its mean" not in read(tmp_path / "page.html").said()
    values = json.loads((tmp_path / "comparison.json").read_text())["answer"]
    assert (values["t_interval_95_over_seeds"], values["p"], values["verdict"]) == (None, None, "unknown")
    shifted = {seed: outcome(one.measures["robust"] + 0.1) for seed, one in OUTCOMES["luck"].items()}
    same = replace(CASE, outcomes={"luck": OUTCOMES["luck"], "search": shifted})
    said = comparison_answer(replace(comparison(), cases=(same,), methods=("luck", "search")))
    assert said[1].startswith("All 3 seeds have the same difference, so no interval over other seeds is known")


def test_settings_are_told_as_text(tmp_path: Path) -> None:
    methods = [{"name": "plain", "then": None, "augmenter": {"name": HOSTILE[0], "k": 3}}]
    settings = {"methods": methods, "baseline": None, "cases": []}
    write_comparison(tmp_path, replace(comparison(), settings=settings), command="ukemi compare")
    said = read(tmp_path / "page.html").said()
    assert f"name = plain, augmenter.name = {HOSTILE[0]}, augmenter.k = 3" in said
    assert "{'" not in said and flat({"baseline": "luck"}) == [("baseline", "luck")]
    told = {"epsilon": 8 / 255, "rate": 0.05, "odd": float("nan")}
    assert flat(told) == [("epsilon", "8/255"), ("rate", "0.05"), ("odd", "nan")]
    assert ("methods 1", "name = plain") in flat({"methods": [{"name": "plain", "then": None}]})


def test_a_run_that_failed_is_said_to_have_and_why(tmp_path: Path) -> None:
    failed = {"luck": {2: "kernel: it broke."}, "search": {0: "no <b>", 1: "kernel: it broke.", 2: "no <b>"}}
    outcomes = {"plain": OUTCOMES["plain"], "luck": {seed: OUTCOMES["luck"][seed] for seed in (0, 1)}}
    found = replace(comparison(), cases=(replace(CASE, outcomes=outcomes, failed=failed),), open=5)
    rows = measure_rows(found)
    assert [cells[rows.names.index("n")] for cells in rows.rows] == ["3", "2, 1 failed", "3 failed"]
    assert comparison_answer(found)[-2:] == ["4 runs failed; the same command tries again.", "1 run not finished yet."]
    write_comparison(tmp_path, found, command="ukemi compare")
    said = "fashion t3, luck, seed 2 failed: kernel: it broke."
    page, table = read(tmp_path / "page.html").said(), (tmp_path / "table.md").read_text(encoding="utf-8")
    assert said in page and said in table
    both = "fashion t3, search, seeds 0 and 2 failed: no "
    assert f"{both}<b>." in page and f"{both}\\<b>.\n" in table
    told = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))["cases"][0]
    assert told["failed"]["luck"] == {"2": "kernel: it broke."} and told["stopped"] == {}


def test_the_page_says_what_its_columns_mean(tmp_path: Path) -> None:
    write_comparison(tmp_path, comparison(), command="ukemi compare")
    said = read(tmp_path / "page.html").said()
    assert (
        "standard deviation over the seeds, on 1,000 test images; robust: right on" in said
        and "attacked: right" not in said
    )
    one = replace(CASE, outcomes={name: {0: seeds[0]} for name, seeds in OUTCOMES.items()})
    write_comparison(tmp_path, replace(comparison(), cases=(one,), seeds=(0,)), command="ukemi compare")
    assert "standard deviation over the seeds" not in read(tmp_path / "page.html").said()


def test_a_bars_whisker_is_the_t_interval_of_its_mean() -> None:
    # t of 2 degrees of freedom, 4.3027, times 0.1 / sqrt(3), inside 0..1
    assert _of_mean([0.1, 0.2, 0.3]) == pytest.approx((0.0, 0.2 + 4.302653 * 0.1 / 3**0.5))
    assert _of_mean([0.7, 0.8, 0.9]) == pytest.approx((0.8 - 4.302653 * 0.1 / 3**0.5, 1.0))
    assert _of_mean([0.2, 0.4]) == pytest.approx((0.3, 0.3))


def test_time_that_no_part_of_the_log_names_is_the_steps() -> None:
    log = [{"loss": 1.0, "images": 100, "seconds": 6.0, "scoring_seconds": 2.0}]
    cost = _cost("search", [replace(outcome(0.5), seconds=10.0, measuring_seconds=1.0, log=log)])
    assert cost is not None and cost.seconds["measuring"] == 1.0
    assert sum(cost.seconds.values()) == pytest.approx(11.0)  # the log knows 6 of 10 s


def test_the_time_of_a_retraining_has_the_parts_of_both_trainings_and_its_search() -> None:
    base = [{"seconds": 10.0, "data_seconds": 1.0, "scoring_seconds": 2.0}]
    more = [{"seconds": 6.0, "data_seconds": 0.5}]
    found = _cost("retrained", [replace(OUTCOMES["luck"][0], seconds=20.0, log=more, base_log=base)])
    assert found is not None
    assert found.seconds == pytest.approx(
        {"waiting for data": 1.5, "making and scoring variants": 6.0, "training steps": 12.5, "measuring": 1.5}
    )


@pytest.mark.parametrize("title", ["Luck or search?", *HOSTILE])
def test_the_page_gives_the_answer_first(title: str, tmp_path: Path) -> None:
    case = replace(CASE, name=title, stopped={"plain": {3: title}})
    missing = CaseResult("svhn", ("t3-81",), {}, {}, "the data are absent")
    found = replace(comparison(), title=title, cases=(case, missing))
    write_comparison(tmp_path, found, command=f"ukemi compare --title {title}", notes=["Two runs shared the machine."])
    page = read(tmp_path / "page.html")
    said = page.said()
    assert said.index("search holds best") < said.index("Table") < said.index("Curves") < said.index("Cost")
    assert "svhn was not run: the data are absent." in said and "Two runs shared the machine." in said
    assert "\n\nsvhn was not run: the data are absent.\n\n" in (tmp_path / "table.md").read_text()
    assert len(page.all("pre")) == 2 and title in said
    values = json.loads((tmp_path / "comparison.json").read_text())
    assert values["command"].startswith("ukemi compare") and values["versions"]["ukemi"]
    assert {path.name for path in tmp_path.iterdir()} == {
        "comparison.json", "page.html", "table.csv", "table.md", "table.tex"
    }  # fmt: skip


@pytest.mark.parametrize("side", [32, 128])
def test_twenty_runs_with_two_hundred_images_fit(side: int, tmp_path: Path) -> None:
    """Noise, which no PNG can compress; that it opens in time is what benchmarks/page_load.py measures."""
    found = page_load().comparison(side)
    write_comparison(tmp_path, found, command="ukemi compare")
    page = read(tmp_path / "page.html")
    shown = [attributes for attributes in page.all("li") if attributes.get("data-method")]
    assert sum(len(seeds) for case in found.cases for seeds in case.outcomes.values()) == 20 and len(shown) == 200
    assert (tmp_path / "page.html").stat().st_size < 15_000_000


def test_one_image_is_shown_under_every_method_on_one_scale(tmp_path: Path) -> None:
    found = page_load().comparison(8)
    case = found.cases[0]
    case.shown["sensei"].pop(0)  # a run that was measured before there were pictures
    write_comparison(tmp_path, found, command="ukemi compare")
    page = read(tmp_path / "page.html")
    maps = [svg["aria-label"] or "" for svg in page.all("svg") if "heat" in (svg.get("class") or "")]
    near = [said for said in maps if said.startswith("Loss around one image under")]
    assert len(near) == 4 * 4 and all(sum(name in said for said in near) == 4 for name in found.methods)
    assert set(same_seed(case)) == set(found.methods)


def test_a_map_that_is_wrong_everywhere_says_so() -> None:
    """It has no border, as one has where the image holds everywhere."""
    found = page_load().comparison(8)
    for one in found.cases[0].shown["sensei"].values():
        for ground in one.terrains:
            ground.landscape.wrong.fill_(True)
    heads = [figure.title for figure in near_images(found)[0].maps]
    assert heads == [*found.methods[:-1], "sensei: misclassified everywhere"]


def test_an_image_that_every_method_recognises_stands_first() -> None:
    def shown(*missed: bool) -> Any:
        grounds = [
            Landscape(None, Axis("rotation", (0.0,), 0), torch.zeros(1, 1), torch.tensor([[one]])) for one in missed
        ]
        return SimpleNamespace(terrains=[SimpleNamespace(landscape=ground) for ground in grounds])

    assert _recognised({"a": shown(True, True, False), "b": shown(True, False, False)}) == [2, 1, 0]


def test_of_several_cases_each_shows_one_image_and_can_be_chosen(tmp_path: Path) -> None:
    found = page_load().comparison(8)
    found = replace(found, cases=(found.cases[0], replace(found.cases[0], name="more noise")))
    write_comparison(tmp_path, found, command="ukemi compare")
    page = read(tmp_path / "page.html")
    assert len([one for one in page.all("div") if one.get("class") == "card sweep"]) == 2
    assert [one["name"] for one in page.all("select")] == ["case", "method", "label", "guess", "gene"]
    assert len([one for one in page.all("li") if one.get("data-case")]) == 200


def test_what_goes_unnoticed_is_shown_per_method(tmp_path: Path) -> None:
    found = page_load().comparison(8)
    case = found.cases[0]
    first, *_ = found.methods
    case.shown[first] = {seed: replace(one, doubts=None) for seed, one in case.shown[first].items()}
    write_comparison(tmp_path, found, command="ukemi compare")
    page = read(tmp_path / "page.html")
    said = page.said()
    assert "Do they notice?" in said and "20 passes with dropout of 0.2 before its classifier" in said
    drawn = [svg["aria-label"] or "" for svg in page.all("svg") if "scatter" in (svg.get("class") or "")]
    assert len(drawn) == len(found.methods) - 1 and not any(one.startswith(f"{first}:") for one in drawn)
    (told,) = doubts_compared(found)
    asked = [one.doubts for one in case.shown["sensei"].values() if one.doubts]
    share = sum(one.unnoticed / ASKED for one in asked) / len(asked)
    row = next(row for row in told["rows"] if row[0] == "sensei")
    assert row[:3] == ("sensei", len(asked), words.percent(share)) and len(asked) == 5


def test_networks_with_and_without_dropout_are_told_apart(tmp_path: Path) -> None:
    found = page_load().comparison(8)
    case = found.cases[0]
    own = {
        method: {
            seed: replace(one, doubts=one.doubts and replace(one.doubts, inserted=False)) for seed, one in runs.items()
        }
        for method, runs in case.shown.items()
    }
    new, their_own = "dropout of 0.2 before its classifier", "its own dropout"
    told = [case, replace(case, name="with dropout", shown=own)]
    for cases, said in ((told[:1], new), (told[1:], their_own), (told, f"{their_own} (where it has none: {new})")):
        write_comparison(tmp_path, replace(found, cases=tuple(cases)), command="ukemi compare")
        assert f"20 passes with {said} that change the answer" in read(tmp_path / "page.html").said()


def test_a_comparison_that_asked_nobody_says_nothing_of_it(tmp_path: Path) -> None:
    write_comparison(tmp_path, comparison(), command="ukemi compare")
    assert "Do they notice?" not in read(tmp_path / "page.html").said() and not doubts_compared(comparison())


def test_curves_stand_before_pictures(tmp_path: Path) -> None:
    write_comparison(tmp_path, page_load().comparison(8), command="ukemi compare")
    headings = ["Table", "Curves", "Cost", "One image, every method", "The images that break them", "Where the time"]
    said = read(tmp_path / "page.html").said()
    assert sorted(headings, key=said.index) == headings


def test_the_curve_of_a_repair_begins_with_the_training_that_it_went_on_from(tmp_path: Path) -> None:
    before = [{"epoch": at, "loss": 10.0} for at in range(5)]
    repaired = {seed: replace(one, base_log=before) for seed, one in OUTCOMES["search"].items()}
    case = replace(CASE, outcomes={**OUTCOMES, "search": repaired})
    points = _loss(case, "search")
    assert [at for at, _ in points] == list(range(1, 9)) and [value for _, value in points[:6]] == [1] * 5 + [0]
    assert _loss(case, "luck") == _loss(CASE, "luck") and len(_loss(CASE, "luck")) == 3
    (drawn,) = _curves(replace(comparison(), cases=(case,)))
    assert drawn.svg.index("search") < drawn.svg.index("plain"), "the longer curve lies behind"
    for cases, told in (((case,), True), ((CASE,), False)):
        write_comparison(tmp_path, replace(comparison(), cases=cases), command="ukemi compare")
        said = read(tmp_path / "page.html").said()
        assert ("A repair’s curve begins with the training that it goes on from" in said) == told


def test_no_legend_names_a_method_that_finished_nowhere(tmp_path: Path) -> None:
    outcomes = {name: OUTCOMES[name] for name in ("plain", "luck")}
    case = replace(CASE, outcomes=outcomes, stopped={"search": dict.fromkeys(range(3), "diverged")})
    write_comparison(tmp_path, replace(comparison(), cases=(case,)), command="ukemi compare")
    page = (tmp_path / "page.html").read_text()
    assert "<span>luck</span>" in page and "<span>search</span>" not in page


def test_every_run_may_be_in_the_gallery_and_every_method_is_among_the_first() -> None:
    found = page_load().comparison(8)
    cards = gallery_of(found).cards
    assert {one["about"]["method"] for one in cards[:24]} == set(found.methods)
    assert len({one["label"] for one in cards[:8]}) > 4  # not the first class of every run
    many = replace(found, cases=tuple(replace(found.cases[0], name=f"case {at}") for at in range(28)))
    cards = gallery_of(many).cards
    assert len(cards) == 200 and {one["about"]["case"] for one in cards} == {f"case {at}" for at in range(28)}


def test_a_page_without_any_outcome_is_a_page(tmp_path: Path) -> None:
    write_comparison(tmp_path, replace(comparison(), cases=()), command="ukemi compare")
    assert "No run is finished yet." in read(tmp_path / "page.html").said()

"""A comparison's sentences, tables and page."""

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from report_samples import HOSTILE
from rich.console import Console
from test_report_page import page_load, read

sys.path.insert(0, str(Path(__file__).parents[1] / "comparing"))
from comparison_samples import CASE, OUTCOMES, comparison, outcome

from ukemi.comparing import summary
from ukemi.comparing.outcomes import Outcome
from ukemi.comparing.result import CaseResult
from ukemi.comparing.shown import ASKED
from ukemi.measures.sensitivity import Axis, Landscape
from ukemi.reports import comparison_answer, comparison_tables, comparison_texts, words, write_comparison
from ukemi.reports.comparison import about_measures, difference_rows, measure_rows
from ukemi.reports.comparison_costs import cost_said, loss_said
from ukemi.reports.comparison_page import _cost, _curves, _loss, _of_mean
from ukemi.reports.doubts import doubts_compared
from ukemi.reports.page import flat
from ukemi.reports.side_by_side import _recognised, gallery_of, same_seed
from ukemi.reports.texts import Rows, as_latex, as_markdown


def test_the_answer_says_which_by_how_much_and_how_sure() -> None:
    first, second, third = comparison_answer(comparison())
    assert first == "search holds best: 60.8\u202f% robust accuracy on fashion t3, 9.8 points above luck."
    assert second.startswith("3 seeds tell the two apart: the 95 % interval is +9.3 to +10.3 points; for these very")
    assert third == (
        "Beside luck, plain trains 1.00 times as long and takes 0.39 times the passes;"
        " search trains 1.00 times as long and takes 1.09 times the passes."
    )
    one = replace(CASE, outcomes={name: {0: seeds[0]} for name, seeds in OUTCOMES.items()})
    assert comparison_answer(replace(comparison(), cases=(one,)))[1].startswith("With one seed nothing is known about")
    same = replace(CASE, outcomes={"luck": OUTCOMES["luck"], "search": OUTCOMES["luck"]})
    said = comparison_answer(replace(comparison(), cases=(same,), methods=("luck", "search"), open=2))
    assert said[0] == "luck and search hold equally well: 51.0\u202f% robust accuracy on fashion t3."
    assert "don't tell the two apart" in said[1] and said[2] == "2 runs not finished yet."
    assert comparison_answer(replace(comparison(), cases=())) == ["No run is finished yet."]
    three = replace(CASE, outcomes=dict.fromkeys(OUTCOMES, OUTCOMES["luck"]))
    assert comparison_answer(replace(comparison(), cases=(three,)))[0].startswith("plain, luck and search hold equally")


def test_the_cost_names_the_cheapest_and_the_dearest_of_many_and_no_times_of_several_machines() -> None:
    outcomes = {
        f"m{at}": {0: replace(OUTCOMES["plain"][0], seconds=10.0 * at, forwards=100 * at, backwards=0, machine="one")}
        for at in range(1, 7)
    }
    case = replace(CASE, outcomes=outcomes)
    found = replace(comparison(), cases=(case,), methods=tuple(outcomes), baseline="m2")
    wanted = ["m1 {}takes 0.50 times the passes", "m6 {}takes 3.00 times the passes"]
    times = ["trains 0.50 times as long and ", "trains 3.00 times as long and "]
    both = "; ".join(one.format(time) for one, time in zip(wanted, times, strict=True))
    assert cost_said(found) == [f"Beside m2, {both}."]
    outcomes["m3"][0] = replace(outcomes["m3"][0], machine="another")
    assert cost_said(found) == ["Beside m2, " + "; ".join(one.format("") for one in wanted) + "."]
    same = replace(CASE, outcomes={"luck": OUTCOMES["luck"], "search": OUTCOMES["luck"]})
    assert cost_said(replace(comparison(), cases=(same,))) == []
    assert cost_said(replace(found, baseline="m7")) == []


def test_who_trained_on_the_highest_loss_is_said_where_only_augmenters_differ() -> None:
    def logged(method: str, *losses: float) -> dict[int, Outcome]:
        return {0: replace(OUTCOMES[method][0], log=[{"loss": loss} for loss in losses])}

    outcomes = {
        "plain": logged("plain", 0.2, 0.4),
        "luck": logged("luck", 1.0, 2.0),
        "search": logged("search", 2, 2, 9),
    }
    names = {"plain": "standard", "luck": "random", "search": "sensei"}
    methods = [{"name": name, "then": None, "augmenter": {"name": of}} for name, of in names.items()]
    found = replace(comparison(), cases=(replace(CASE, outcomes=outcomes),), settings={"methods": methods})
    said = "search trained on the images of highest loss: 2, beside 1.5 of luck and 0.3 of plain."
    assert loss_said(found) == [said] and said in comparison_answer(found)
    other = [*methods[:2], {"name": "search", "augmenter": {"name": "ukemi"}}]  # its objective is another one
    assert loss_said(replace(found, settings={"methods": other})) == []
    assert loss_said(replace(found, methods=(*found.methods, "open"))) == [] == loss_said(comparison())


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


def test_two_seeds_or_equal_differences_give_no_interval(tmp_path: Path) -> None:
    two = replace(CASE, outcomes={name: {at: seeds[at] for at in (0, 1)} for name, seeds in OUTCOMES.items()})
    found = replace(comparison(), cases=(two,), seeds=(0, 1))
    assert comparison_answer(found)[1].startswith("With 2 seeds no interval over other seeds is known: it takes 3; for")
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
    assert ("methods 1", "name = plain") in flat({"methods": [{"name": "plain", "then": None}]})


def test_a_single_method_is_no_winner() -> None:
    alone = replace(CASE, outcomes={"luck": OUTCOMES["luck"]})
    found = replace(comparison(), cases=(alone,), methods=("luck",))
    assert comparison_answer(found) == ["luck has 51.0\u202f% robust accuracy on fashion t3."]
    said = comparison_answer(replace(comparison(), cases=(alone,)))
    assert said == ["luck, the only method that finished, has 51.0\u202f% robust accuracy on fashion t3."]


def test_where_every_run_stopped_the_reason_is_said_and_no_column_is_explained() -> None:
    case = CaseResult("gtsrb", ("t3-81",), {}, {"luck": {1: "the loss is not finite."}})
    found = replace(comparison(), cases=(case,))
    assert comparison_answer(found) == ["No run finished: luck with seed 1 on gtsrb stopped: the loss is not finite."]
    (table,) = comparison_tables(found)
    assert table.caption is None and [one.header for one in table.columns] == ["method", "n"]
    assert measure_rows(found).rows[1] == ["luck", "1 stopped"]


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


def test_what_is_explained_is_there() -> None:
    only = {name: replace(one, measures={"accuracy": 0.9}) for name, one in {"plain": OUTCOMES["plain"][0]}.items()}
    case = replace(CASE, outcomes={"plain": {0: only["plain"]}})
    found = replace(comparison(), cases=(case,), methods=("plain",), seeds=(0,), decides="accuracy")
    caption = str(comparison_tables(found)[0].caption)
    assert "robust" not in caption and "deviation" not in caption and "passes" in caption


def test_what_is_left_out_is_not_explained() -> None:
    caption = str(comparison_tables(comparison(), 40)[0].caption)
    assert "± standard deviation" not in caption and "passes" not in caption
    assert (
        caption.startswith("in %, mean over the seeds, on 1,000 test images; robust: right on")
        and "more column" in caption
    )


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


def test_a_large_effect_is_a_plain_number() -> None:
    outcomes = {"luck": {seed: outcome(0.2 + 0.001 * seed) for seed in range(3)}}
    outcomes["search"] = {seed: outcome(0.3 + 0.001 * (seed == 1)) for seed in range(3)}
    found = replace(comparison(), methods=("luck", "search"), cases=(replace(CASE, outcomes=outcomes),))
    rows = difference_rows(found)
    assert rows.rows[0][rows.names.index("d")] == "122"


def test_an_effect_without_any_spread_is_infinite() -> None:
    outcomes = {"luck": {seed: outcome(0.2) for seed in range(3)}, "search": {seed: outcome(0.3) for seed in range(3)}}
    for baseline, said in (("luck", "∞"), ("search", "−∞")):
        case = replace(CASE, outcomes=outcomes)
        found = replace(comparison(), methods=("luck", "search"), cases=(case,), baseline=baseline)
        rows = difference_rows(found)
        assert rows.rows[0][rows.names.index("d")] == said
    assert "$-$$\\infty$" in comparison_texts(found)["tex"]


def test_no_difference_has_no_sign() -> None:
    """The differences -0.1, 0 and 0.1 come to -9e-18 in floating point."""
    outcomes = {"luck": dict(enumerate(map(outcome, (0.2, 0.2, 0.2))))}
    outcomes["search"] = dict(enumerate(map(outcome, (0.1, 0.2, 0.3))))
    found = replace(comparison(), methods=("luck", "search"), cases=(replace(CASE, outcomes=outcomes),))
    rows = difference_rows(found)
    assert [rows.rows[0][rows.names.index(name)] for name in ("points", "d")] == ["+0.0", "0"]


def test_tables_fit_a_terminal_and_say_what_was_not_run() -> None:
    missing = CaseResult("svhn", ("t3-81",), {}, {}, "the data are absent")
    stopped = CaseResult("gtsrb", ("t3-81",), {"luck": OUTCOMES["luck"]}, {"search": {0: "diverged"}})
    found = replace(comparison(), cases=(CASE, missing, stopped))
    console = Console(width=80, file=io.StringIO())
    for table in comparison_tables(found):
        console.print(table)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "not run" in said and "1 stopped" in said and "all cases" in said and "…" not in said
    long = replace(found, cases=(replace(CASE, name="gtsrb32 preactivation-resnet18"), stopped))
    console = Console(width=80, file=io.StringIO())
    for table in comparison_tables(long):
        console.print(table)
    words = console.file.getvalue().split()  # type: ignore[attr-defined]
    assert words.count("preactivation-resnet18") == 2 and words.count("search") >= 4  # whole, as headings
    rows = measure_rows(found)
    assert all(len(cells) == len(rows.names) for cells in rows.rows) and len(rows.rows) == 9
    differences = difference_rows(found)
    assert all(len(cells) == len(differences.names) for cells in differences.rows)
    assert differences.rows[-1][:3] == ["all cases", "search", "+9.8"] and "per seed" in differences.names
    assert differences.rows[-1][6] == "1/0/0 cases"


def test_a_terminal_has_epochs_where_methods_differ_in_them_and_passes_are_both_ways() -> None:
    alike = measure_rows(comparison(), short=True)
    assert "epochs" not in alike.names and "epochs" in measure_rows(comparison()).names
    assert [cells[-1] for cells in alike.rows] == [f"{total}\u202fk" for total in ("1.3", "3.3", "3.6")]
    longer = {seed: replace(one, epochs=9) for seed, one in OUTCOMES["search"].items()}
    found = replace(comparison(), cases=(replace(CASE, outcomes={**OUTCOMES, "search": longer}),))
    rows = measure_rows(found, short=True)
    assert [cells[rows.names.index("epochs")] for cells in rows.rows] == ["3", "3", "9"]


def test_a_bars_whisker_is_the_t_interval_of_its_mean() -> None:
    # t of 2 degrees of freedom, 4.3027, times 0.1 / sqrt(3), inside 0..1
    assert _of_mean([0.1, 0.2, 0.3]) == pytest.approx((0.0, 0.2 + 4.302653 * 0.1 / 3**0.5))
    assert _of_mean([0.7, 0.8, 0.9]) == pytest.approx((0.8 - 4.302653 * 0.1 / 3**0.5, 1.0))
    assert _of_mean([0.2, 0.4]) == pytest.approx((0.3, 0.3))


def test_time_that_no_part_of_the_log_names_is_the_steps() -> None:
    log = [{"loss": 1.0, "images": 100, "seconds": 6.0, "scoring_seconds": 2.0}]
    cost = _cost("search", [replace(outcome(0.5), seconds=10.0, measuring_seconds=1.0, log=log)])
    assert cost is not None and cost.seconds["measuring"] == 1.0
    assert sum(cost.seconds.values()) == pytest.approx(11.0)  # the repair's log knows 6 of 10 s


def test_texts_are_markdown_latex_and_csv() -> None:
    texts = comparison_texts(comparison())
    assert texts["md"].count("| search | 3 | 84.0 ± 0.0 | 60.8 ± 0.8 |") == 1 and texts["tex"].count("tabular") == 4
    for text, sign in ((texts["md"], ""), (texts["tex"], "% ")):
        said = [line for line in text.splitlines() if line.endswith(".")]
        assert said[0].startswith(f"{sign}In %, mean ± standard deviation over the seeds, on 1,000 test images; rob")
        assert said[1].startswith(f"{sign}Points of robust accuracy above {comparison().baseline}; 95 % over seeds: ")
    rows = list(csv.DictReader(io.StringIO(texts["csv"].removeprefix("\ufeff"))))
    assert len(rows) == 9 and rows[-1]["method"] == "search" and float(rows[-1]["robust"]) == pytest.approx(0.616)
    assert as_latex(Rows(["a"], [["50 % & $x_1 ~ \\"]])).splitlines()[4] == (
        r"50 \% \& \$x\_1 \textasciitilde{} \textbackslash{} \\"
    )
    assert as_markdown(Rows(["a"], [[r"a|b \ <i> *`"]])).splitlines()[2] == r"| a\|b \\ \<i> \*\` |"
    assert as_markdown(Rows(["a", "b"], [])) == "| a | b |\n| --- | --- |\n"


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


def test_the_caption_says_on_how_many_images_and_whether_each_seed_has_its_own() -> None:
    found = comparison()
    assert ", on 1,000 test images; robust" in about_measures(found, measure_rows(found))
    apart = {
        method: {
            seed: replace(one, index={name: index + seed for name, index in one.index.items()})
            for seed, one in seeds.items()
        }
        for method, seeds in OUTCOMES.items()
    }
    few = replace(CASE, name="few", outcomes={name: {0: outcome(0.5, images=5)} for name in OUTCOMES})
    several = replace(found, cases=(replace(CASE, outcomes=apart), few))
    said = about_measures(several, measure_rows(several))
    assert ", on 5 to 1,000 test images, others with every seed; robust" in said
    attacked = {"index": {**outcome(0.5).index, "attacked": torch.arange(200)}}
    case = replace(CASE, outcomes={"luck": {0: replace(outcome(0.5), **attacked)}})
    said = about_measures(replace(found, cases=(case,)), measure_rows(found))
    assert ", on 1,000 test images (200 under attack); robust" in said
    kept = summary(several)["cases"]
    assert [one["test_images"] for one in kept] == [1000, 5]


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


def test_methods_that_stopped_somewhere_are_compared_on_what_all_finished() -> None:
    hard = CaseResult("hard", ("t3-81",), {"luck": OUTCOMES["luck"]}, {"search": {0: "diverged"}})
    found = replace(comparison(), methods=("luck", "search"))
    case = replace(CASE, outcomes={name: OUTCOMES[name] for name in found.methods})
    said = comparison_answer(replace(found, cases=(case, hard)))[0]
    assert "on fashion t3, the only one of 2 that every method finished, 9.8 points above luck" in said
    easy = CaseResult("easy", ("t3-81",), {"search": OUTCOMES["search"]}, {})
    assert comparison_answer(replace(found, cases=(easy, hard)))[0] == (
        "search and luck can't be ranked: no case was finished by all of them with the same seed."
    )


def test_the_table_says_on_which_grid_robust_was_measured() -> None:
    found = comparison()
    assert "robust: right on the image and on every variant of t3-81;" in about_measures(found, measure_rows(found))
    case = found.cases[0]
    both = replace(found, cases=(case, replace(case, name="six", grids=("t6-2187",))))
    said = about_measures(both, measure_rows(both))
    assert "every variant of t3-81 or t6-2187, as its case has it;" in said

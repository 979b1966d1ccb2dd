"""A comparison's sentences, and its tables for the terminal and for papers."""

import csv
import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "comparing"))
from comparison_samples import CASE, OUTCOMES, comparison, outcome

from ukemi.comparing import summary
from ukemi.comparing.outcomes import Outcome
from ukemi.comparing.result import CaseResult
from ukemi.reports import comparison_answer, comparison_tables, comparison_texts
from ukemi.reports.comparison import _effect, about_measures, difference_rows, measure_rows, short
from ukemi.reports.comparison_costs import cost_said, loss_said
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


def test_a_large_effect_is_a_plain_number() -> None:
    outcomes = {"luck": {seed: outcome(0.2 + 0.001 * seed) for seed in range(3)}}
    outcomes["search"] = {seed: outcome(0.3 + 0.001 * (seed == 1)) for seed in range(3)}
    found = replace(comparison(), methods=("luck", "search"), cases=(replace(CASE, outcomes=outcomes),))
    rows = difference_rows(found)
    assert rows.rows[0][rows.names.index("d")] == "122"


def test_an_effect_has_two_digits_and_a_count_three() -> None:
    sizes = (0.546, -0.8, 2.96, 14.2, 99.4, -12345.0)
    assert [_effect(size, size) for size in sizes] == ["0.55", "−0.80", "3.0", "14", "99", "−12,345"]
    assert [short(count) for count in (999, 12_340, 999_940, 999_960)] == ["999", "12.3\u202fk", "1\u202fM", "1\u202fM"]


def test_an_effect_without_any_spread_is_infinite() -> None:
    outcomes = {"luck": {seed: outcome(0.2) for seed in range(3)}, "search": {seed: outcome(0.3) for seed in range(3)}}
    for baseline, said in (("luck", "∞"), ("search", "−∞")):
        case = replace(CASE, outcomes=outcomes)
        found = replace(comparison(), methods=("luck", "search"), cases=(case,), baseline=baseline)
        rows = difference_rows(found)
        assert rows.rows[0][rows.names.index("d")] == said
    assert "$-$$\\infty$" in comparison_texts(found)["tex"]


@pytest.mark.parametrize(("count", "shown"), [(1, False), (2, True), (4, True), (5, False)])
def test_fewer_than_five_seeds_are_shown_one_by_one(count: int, shown: bool) -> None:
    outcomes = {
        name: {seed: outcome(at + 0.01 * seed) for seed in range(count)}
        for name, at in (("luck", 0.5), ("search", 0.6))
    }
    case = CaseResult("case", ("t3-81",), outcomes, {})
    rows = difference_rows(replace(comparison(), seeds=tuple(range(count)), cases=(case,)))
    assert ("per seed" in rows.names) == shown
    assert not shown or rows.rows[0][-1] == ", ".join(["+10.0"] * count)


def test_no_difference_has_no_sign() -> None:
    """The differences -0.1, 0 and 0.1 come to -9e-18 in floating point."""
    outcomes = {"luck": dict(enumerate(map(outcome, (0.2, 0.2, 0.2))))}
    outcomes["search"] = dict(enumerate(map(outcome, (0.1, 0.2, 0.3))))
    found = replace(comparison(), methods=("luck", "search"), cases=(replace(CASE, outcomes=outcomes),))
    rows = difference_rows(found)
    assert [rows.rows[0][rows.names.index(name)] for name in ("points", "d")] == ["+0.0", "0.0"]


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


def test_texts_are_markdown_latex_and_csv() -> None:
    texts = comparison_texts(comparison())
    assert texts["md"].count("| search | 3 | 84.0 ± 0.0 | 60.8 ± 0.8 |") == 1 and texts["tex"].count("tabular") == 4
    for text, sign in ((texts["md"], ""), (texts["tex"], "% ")):
        said = [line for line in text.splitlines() if line.endswith(".")]
        assert said[0].startswith(f"{sign}In %, mean ± standard deviation over the seeds, on 1,000 test images; rob")
        assert said[1].startswith(f"{sign}Points of robust accuracy above {comparison().baseline}; 95 % over seeds: ")
    rows = list(csv.DictReader(io.StringIO(texts["csv"].removeprefix("\ufeff"))))
    assert len(rows) == 9 and rows[-1]["method"] == "search" and float(rows[-1]["robust"]) == pytest.approx(0.616)
    assert as_latex(Rows(["a"], [["50 % & $x_1 \\ |<> ×2 30°"]])).splitlines()[4] == (
        r"50 \% \& \$x\_1 \textbackslash{} \textbar{}\textless{}\textgreater{} $\times$2 30$^\circ$ \\"
    )
    assert as_markdown(Rows(["a"], [[r"a|b \ <i> *`"]])).splitlines()[2] == r"| a\|b \\ \<i> \*\` |"
    assert as_markdown(Rows(["a", "b"], [])) == "| a | b |\n| --- | --- |\n"


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


def test_methods_that_stopped_somewhere_are_compared_on_what_all_finished() -> None:
    hard = CaseResult("hard", ("t3-81",), {"luck": OUTCOMES["luck"]}, {"search": {0: "diverged"}})
    found = replace(comparison(), methods=("luck", "search"))
    case = replace(CASE, outcomes={name: OUTCOMES[name] for name in found.methods})
    said = comparison_answer(replace(found, cases=(case, hard)))[0]
    assert "on fashion t3, the only one of 2 that every method finished, 9.8 points above luck" in said
    easy = CaseResult("easy", ("t3-81",), {"search": OUTCOMES["search"]}, {})
    assert comparison_answer(replace(found, cases=(easy, hard)))[0] == (
        "search and luck can't be ranked: there is no seed with which all of them finished every case."
    )


def test_the_table_says_on_which_grid_robust_was_measured() -> None:
    found = comparison()
    assert "robust: right on the image and on every variant of t3-81;" in about_measures(found, measure_rows(found))
    case = found.cases[0]
    both = replace(found, cases=(case, replace(case, name="six", grids=("t6-2187",))))
    said = about_measures(both, measure_rows(both))
    assert "every variant of t3-81 or t6-2187, as its case has it;" in said

"""The tables of a comparison: which columns they have, and what is said of them."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "comparing"))
from comparison_samples import CASE, OUTCOMES, comparison

from ukemi.attacks.config import AttackConfig
from ukemi.comparing.result import CaseResult, summary
from ukemi.reports import comparison_tables
from ukemi.reports.comparison import about_measures, measure_rows


def test_a_caption_explains_the_columns_that_fit() -> None:
    wide, narrow = (comparison_tables(comparison(), width)[-1] for width in (100, 50))
    assert "win/tie/loss: seeds" in str(wide.caption) and "d: Cohen's" in str(wide.caption)
    assert "win/tie/loss" not in [column.header for column in narrow.columns]
    assert "win/tie/loss" not in str(narrow.caption) and "points of robust accuracy above luck" in str(narrow.caption)


def test_a_budget_of_whole_levels_is_said_as_such() -> None:
    titles = [AttackConfig(attack="fgsm", epsilon=epsilon).title() for epsilon in (8 / 255, 0.05, 0.0314)]
    assert titles[0] == "fgsm (epsilon 0.0313725)"  # the measure's name, in files too
    measures = {**OUTCOMES["luck"][0].measures, **{f"attacked {title}": 0.5 for title in titles}}
    one = replace(OUTCOMES["luck"][0], measures=measures)
    found = replace(comparison(), cases=(replace(CASE, outcomes={"luck": {0: one}}),))
    heads = [name for name in measure_rows(found).names if name.startswith("attacked ")]
    assert heads == [f"attacked fgsm (epsilon {said})" for said in ("8/255", "0.05", "0.0314")]


def test_what_a_paper_prints_stands_beside_ours_also_where_nothing_is_measured() -> None:
    plain = measure_rows(comparison())
    assert "paper" not in plain.names
    absent = CaseResult("svhn t3", ("t3-81",), {}, {}, "no data", printed={"search": 85.5})
    found = replace(comparison(), cases=(replace(CASE, printed={"luck": 60.1, "search": 66.0}), absent))
    rows = measure_rows(found)
    at = rows.names.index("paper")
    assert rows.names[at - 1] == "robust" and [cells[at] for cells in rows.rows] == ["", "60.1", "66", "", "", "85.5"]
    assert [cells[1:at] + cells[at + 1 :] for cells in rows.rows[:3]] == plain.rows
    assert "paper: the robust accuracy that the paper prints" in about_measures(found, rows)
    assert "paper" not in about_measures(comparison(), plain)
    assert summary(found)["cases"][0]["printed"] == {"luck": 60.1, "search": 66.0}

"""What a page says of how its models were measured."""

from dataclasses import replace
from pathlib import Path

import ukemi
from ukemi.measures.robustness import Robustness
from ukemi.reports.evaluation import Evaluation
from ukemi.reports.measured import measured
from ukemi.reports.page import write_page


def test_what_models_share_is_told_once_and_what_differs_beside_each_other(evaluation: Evaluation) -> None:
    other = replace(evaluation, title="other", settings={**evaluation.settings, "seed": 1, "average": 0.9})
    found = measured([evaluation, other])
    assert dict(found["apart"]) == {"seed": ["0", "1"], "average": ["–", "0.9"]}
    shared = dict(found["shared"])
    assert shared["augmenter.k"] == "10" and shared["data"] == "noise & dots" and "seed" not in shared
    assert len(found["spaces"]) == 1 and "(" not in found["spaces"][0][0]
    alone = measured([evaluation])
    assert not alone["apart"] and dict(alone["shared"])["seed"] == "0"


def test_models_of_other_spaces_have_tables_of_their_own(evaluation: Evaluation) -> None:
    whole = evaluation.robustness
    few: Robustness = replace(whole, grid=whole.grid[:3])
    models = [replace(evaluation, title="a"), replace(evaluation, title="b", robustness=few)]
    said = [caption for caption, _ in measured([*models, replace(models[1], title="c")])["spaces"]]
    count = len(whole.grid)
    assert said == [
        f"The space that was searched, {count} variants per image (a)",
        "The space that was searched, 3 variants per image (b and c)",
    ]
    rows = dict(measured(models)["spaces"][0][1])
    assert rows["rotation"][:3] == ["−30°", "0°", "+30°"] and len(rows) == len(ukemi.T3.genes)


def test_the_page_of_several_folds_what_they_share(evaluation: Evaluation, tmp_path: Path) -> None:
    for models, folded in (([evaluation], False), ([evaluation, replace(evaluation, title="other")], True)):
        write_page(tmp_path / "page.html", models, "Measured")
        text = (tmp_path / "page.html").read_text()
        assert text.count("augmenter.k") == 1
        assert ("<summary>Settings that all share</summary>" in text) is folded
        assert "Settings in which they differ" not in text

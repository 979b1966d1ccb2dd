"""The summary as JSON, against counting by hand."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ukemi import UserError
from ukemi.reports import Evaluation, evaluation_notes, summary, table, write_json
from ukemi.reports.words import wilson


def test_the_numbers_are_those_of_the_evaluation(evaluation: Evaluation) -> None:
    said, found = summary(evaluation), evaluation.robustness
    assert (said["accuracy"], said["robust_accuracy"]) == (found.accuracy, found.robust_accuracy)
    assert said["mean_accuracy"] == found.mean_accuracy is not None
    assert (said["images"], said["variants"], said["forwards"]) == (24, 16, found.forwards)
    assert said["robust_accuracy_interval_95"][0] <= found.robust_accuracy <= said["robust_accuracy_interval_95"][1]
    assert said["schema"] == 1
    assert set(said["versions"]) == {"ukemi", "torch", "python"}
    assert [gene["name"] for gene in said["space"]["genes"]] == ["rotation", "translate_x", "translate_y", "shear"]
    assert said["space"]["genes"][0] == {"name": "rotation", "low": -30, "high": 30, "identity": 0, "step": 1}
    assert "images_detail" not in said


def test_classes_and_breaking_values_are_counted_right(evaluation: Evaluation) -> None:
    said, found = summary(evaluation), evaluation.robustness
    for at, row in enumerate(said["classes"]):
        members = [i for i, label in enumerate(evaluation.labels.tolist()) if label == at]
        assert row["images"] == len(members)
        assert row["accuracy"] == sum(bool(found.correct[i]) for i in members) / len(members)
        assert row["robust_accuracy"] == sum(bool(found.robust[i]) for i in members) / len(members)
    broken = [row for row in found.broken_by.tolist() if row >= 0]
    for at, gene in enumerate(said["broken_at"]):
        for value, images in zip(gene["values"], gene["images"], strict=True):
            assert images == sum(float(found.grid[row, at]) == pytest.approx(value) for row in broken)
        assert sum(gene["images"]) == len(broken) > 0
    assert said["broken_at"][1]["values"] == [-0.1, 0.1]


def test_details_tell_of_every_image(evaluation: Evaluation) -> None:
    said = summary(evaluation, details=True)["images_detail"]
    assert said["broken_by"] == evaluation.robustness.broken_by.tolist()
    assert len(said["correct"]) == len(said["label"]) == 24
    assert len(said["grid"]) == 16


def test_it_is_written_as_strict_json(evaluation: Evaluation, tmp_path: Path) -> None:
    odd = replace(evaluation, settings={"path": tmp_path, "nested": {"nan": float("nan"), "list": (1, None)}})
    write_json(tmp_path / "new" / "evaluation.json", odd, details=True)
    text = (tmp_path / "new" / "evaluation.json").read_text()
    read = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert read["settings"] == {"path": str(tmp_path), "nested": {"nan": None, "list": [1, None]}}
    assert read["title"] == "plain <model>"
    assert os.listdir(tmp_path / "new") == ["evaluation.json"]


def test_a_place_that_cannot_be_written_is_named(evaluation: Evaluation, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").mkdir()
    with pytest.raises(UserError, match=r"evaluation\.json can't be written"):
        write_json(tmp_path / "evaluation.json", evaluation)
    assert os.listdir(tmp_path) == ["evaluation.json"]


def test_an_unbroken_model_has_a_summary(unbroken: Evaluation) -> None:
    said = summary(unbroken)
    assert said["robust_accuracy"] == 1
    assert {sum(gene["images"]) for gene in said["broken_at"]} == {0}


def test_the_table_has_a_row_per_evaluation(evaluation: Evaluation, unbroken: Evaluation) -> None:
    from rich.console import Console

    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    marked = replace(evaluation, title="[red]not markup[/]", seconds=None)
    with console.file:
        console.print(table([marked, unbroken]))
    text = console.export_text().replace("\u202f", " ")
    assert "[red]not markup[/]" in text
    assert "100.0 %" in text and "86.2 to 100.0" in text and "all 16 variants" in text
    assert "2.5 s" in text


def test_a_narrow_terminal_keeps_what_was_found_and_folds_a_long_name(evaluation: Evaluation) -> None:
    from rich.console import Console

    console = Console(width=64, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(table([replace(evaluation, title="a.package.of.somebody:network_with_a_long_name")], 64))
    text = console.export_text().replace("\u202f", " ")
    assert max(map(len, text.splitlines())) <= 64 and "3 more columns in evaluation.json" in " ".join(text.split())
    (row,) = [line for line in text.splitlines() if line.startswith(" a.package")]
    low, high = wilson(int(evaluation.robustness.robust.sum()), len(evaluation.robustness.robust))
    assert row.split()[0] == "a.package.of.somebody:ne" and f"{100 * low:.1f} to {100 * high:.1f}" in row


def test_a_model_from_elsewhere_that_is_no_better_than_guessing_is_told(evaluation: Evaluation) -> None:
    many, classes = len(evaluation.labels), tuple("ab")
    wrong = replace(evaluation, robustness=replace(evaluation.robustness, correct=torch.zeros(many, dtype=torch.bool)))
    (said,) = evaluation_notes(replace(wrong, classes=classes))
    most = int(many / 2 + 2 * (many / 4) ** 0.5)
    assert said.startswith(f"0 of {many} images are recognised; guessing among 2 classes gets up to {most}. What")
    assert all(flag in said for flag in ("--weights", "--classes", "--mean"))
    given = {"weights": "net.pt", "mean": [0.5]}
    (said,) = evaluation_notes(replace(wrong, classes=classes, settings=given))
    assert said.endswith(" What may lie behind it: classes in another order (--classes).")
    (said,) = evaluation_notes(replace(wrong, classes=classes, settings={**given, "classes": ["b", "a"]}))
    assert said.endswith(f"gets up to {most}.")
    (said,) = evaluation_notes(replace(wrong, classes=classes, settings={"run": "runs/one"}))
    assert said.endswith(
        f"gets up to {most}. A model that gives one answer to all images holds under every variant, too."
    )
    right = replace(wrong.robustness, correct=torch.arange(many) <= most)
    assert not evaluation_notes(replace(wrong, classes=classes, robustness=right))
    assert not evaluation_notes(replace(wrong, classes=("a",)))  # nothing to guess

"""Galleries and their filters, sweeps, gene histories, costs, and the command that made a page."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from report_samples import HOSTILE, LOG
from test_report_page import read

from ukemi import T3, Gene, Space
from ukemi.attacks.config import AttackConfig
from ukemi.measures.attacks import UnderAttack
from ukemi.reports import AttackResult, Evaluation, made_by, write_page, write_training_page
from ukemi.reports.command import command
from ukemi.reports.costs import PARTS, cost, section, spent
from ukemi.reports.gallery import card, gallery
from ukemi.reports.genes import _beside_chance, gene_histories
from ukemi.reports.sweeps import sweep_card
from ukemi.reports.words import side

ENDS = {"gene": "rotation", "low": -30.0, "high": 30.0, "levels": 61}


def test_filters_are_numbers_and_every_card_is_found_by_each(evaluation: Evaluation) -> None:
    cards = [card(pair, evaluation.classes, T3, 32, method="<i>") for pair in evaluation.gallery]
    found = gallery(cards, {"method": "method", "label": "class", "gene": "gene"})
    assert [one.name for one in found.filters] == ["label", "gene"]  # one method is no choice
    for one in found.filters:
        assert all(value.isdigit() for value, _ in one.options)
        texts = dict(one.options)
        for shown in found.cards:
            assert [texts[value] for value in shown["data"][one.name].split()] == shown["fields"][one.name]
    assert {text for _, text in found.filters[0].options} == {HOSTILE[pair.label] for pair in evaluation.gallery}
    assert gallery([], {"label": "class"}).filters == ()


@pytest.mark.parametrize(
    ("gene", "value", "own", "said"),
    [
        (T3.genes[0], -30, True, "rotation: clockwise"),
        (T3.genes[2], 0.1, True, "shift up or down: down"),
        (T3.genes[0], 0, True, ""),
        (T3.genes[0], 30, False, "rotation: higher"),
        (Gene("fade", 0, 1, 0, 1, lambda x, v: x), 1, True, "fade: higher"),
    ],
)
def test_a_side_is_which_way_a_gene_went(gene: Gene, value: float, own: bool, said: str) -> None:
    assert side(gene, value, own) == said


def test_a_sweep_says_the_models_answers(evaluation: Evaluation) -> None:
    one = evaluation.sweeps[0]
    guesses = tuple((one.label, *(7,) * (len(row) - 1)) for row in one.guesses)
    shown = sweep_card({"a": one, "b": replace(one, guesses=guesses)}, evaluation.classes, T3, 32)
    assert shown["models"] == ["a", "b"] and len(shown["genes"]) == len(T3)
    first = shown["genes"][0]
    assert "class 7" in first["answers"] and first["tracks"].count('class="lost"') >= len(guesses[0]) - 1
    assert first["rest"] == 4 and first["last"] == 8 and first["half"] == "5.556%"


@pytest.mark.parametrize("space", [Space((Gene("fade", 0, 1, 0, 1, lambda x, v: x * 0.5),)), T3])
def test_pages_of_every_space_have_their_sliders(make: Callable[..., Evaluation], space: Space, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [make(space=space)], "Space")
    inputs = read(tmp_path / "page.html").all("input")
    assert len(inputs) == 2 * len(space) and {one["type"] for one in inputs} == {"range"}


def test_uniform_draws_are_as_by_chance_however_the_levels_fall() -> None:
    for levels, parts in ((61, 15), (7, 7), (41, 15), (65535, 15)):
        own = (torch.arange(levels) * parts // levels).bincount(minlength=parts)
        told = {**ENDS, "levels": levels, "counts": own.tolist()}
        assert _beside_chance(told, [own.tolist()]).tolist() == pytest.approx([1.0] * parts)
        twice = own.clone()
        twice[0] *= 2
        found = _beside_chance(told, [twice.tolist(), twice.tolist()])
        assert found[0] / found[1] == pytest.approx(2.0)


def test_many_epochs_share_columns() -> None:
    log = [{"epoch": at, "genes": [{**ENDS, "counts": [1] * 15}]} for at in range(100)]
    (figure,) = gene_histories(log)
    assert figure.title == "Rotation" and "epoch 1–3" in figure.svg and "epoch 100" in figure.svg
    assert gene_histories(LOG) == [] and gene_histories([]) == []


def test_a_gene_s_parts_are_named_by_values_that_it_takes() -> None:
    """61 levels of a degree in 15 parts: four or five degrees each, and a tick at either end and at 0."""
    (figure,) = gene_histories([{"epoch": 0, "genes": [{**ENDS, "counts": [1] * 15}]}])
    assert "−30° to −26°" in figure.svg and "+27° to +30°" in figure.svg and ".5°" not in figure.svg
    assert re.findall(r">([^<]*°)</text>", figure.svg) == ["−30°", "0°", "+30°"]
    (single,) = gene_histories([{"epoch": 0, "genes": [{**ENDS, "levels": 3, "counts": [1] * 3}]}])
    assert "−30°" in single.svg and "−30° to" not in single.svg


def _line(seconds: float, **more: Any) -> dict[str, Any]:
    return {"epoch": 0, "seconds": seconds, **more}


def test_seconds_add_up_to_the_whole() -> None:
    log = [_line(4.0, data_seconds=1.0, validation_seconds=0.5, scoring_seconds=1.0)]
    log += [_line(9.0, data_seconds=0.5, scoring_seconds=2.0)]
    found = spent(log)
    assert tuple(found) == PARTS and sum(found.values()) == pytest.approx(9.0)
    assert list(found.values()) == pytest.approx([1.5, 3.0, 4.0, 0.5, 0.0])
    over = spent([_line(2.0, data_seconds=1.5, scoring_seconds=50.0)])
    assert sum(over.values()) == pytest.approx(2.0) and over[PARTS[1]] == pytest.approx(0.5)
    assert spent([]) == spent([{"epoch": 0}]) == {}


def test_costs_are_shown_on_one_scale() -> None:
    one, two = cost("<a>", [_line(10.0)]), cost("b", [_line(2.0, data_seconds=1.0)], 3.0)
    shown = section([one, None, two])
    assert shown is not None and [row["whole"] for row in shown["bars"]] == ["10.0\u202fs", "5.0\u202fs"]
    assert 'width="100%" height="14"' in shown["bars"][0]["svg"] and "&lt;a&gt;" in shown["bars"][0]["svg"]
    assert shown["columns"] == ("waiting for data", "training steps", "measuring")
    assert shown["rows"][0] == ("<a>", ("", "10.0\u202fs", "")) and section([None]) is None


def test_measuring_takes_the_seconds_of_attacks_too(evaluation: Evaluation) -> None:
    assert evaluation.all_seconds() == 2.5
    attacked = replace(evaluation, attacks=(_attacked(0, 0.0), _attacked(0, 4 / 255)))
    assert attacked.all_seconds() == 5.5 and replace(attacked, seconds=None).all_seconds() is None


def test_attacks_that_fool_nothing_have_no_hardest(evaluation: Evaluation, tmp_path: Path) -> None:
    write_page(tmp_path / "none.html", [replace(evaluation, attacks=(_attacked(0, 0.0), _attacked(0, 0.1)))], "Safe")
    said = read(tmp_path / "none.html").said()
    assert "Of 2 attacks none fools the model on any of 3 recognised images." in said and "The hardest" not in said
    write_page(tmp_path / "one.html", [replace(evaluation, attacks=(_attacked(0, 0.0), _attacked(1, 0.1)))], "One")
    assert "The hardest of 2 attacks, pgd (epsilon 0.1), fools the model on 1 of" in read(tmp_path / "one.html").said()


def _attacked(fooled: int, epsilon: float) -> AttackResult:
    right = torch.ones(3, dtype=torch.bool)
    found = UnderAttack(right, torch.arange(3) < fooled, torch.full((3,), epsilon), "linf", 9, 9)
    return AttackResult(AttackConfig(attack="pgd", epsilon=epsilon), found, "pgd-linf", 1.5)


def test_a_page_says_what_makes_it_again(tmp_path: Path) -> None:
    write_training_page(tmp_path / "plain.html", "Plain", LOG, {})
    assert "Make it again" not in read(tmp_path / "plain.html").said()
    with made_by(["train", "--out", "a folder", HOSTILE[0]]):
        write_training_page(tmp_path / "page.html", "Told", LOG, {})
    assert command() == ""
    said = read(tmp_path / "page.html").said()
    assert "Make it again ukemi train --out 'a folder' '<script>alert(\"x\")</script>'" in said

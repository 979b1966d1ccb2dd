"""Every piece is done once, whoever starts it and however often it is stopped."""

import json
from pathlib import Path
from typing import Any

import pytest
from quick_experiment import Quick, config

from ukemi.comparing.locks import held
from ukemi.errors import UserError
from ukemi.experiments import conduct, gathered, machine
from ukemi.experiments.running import Pieces, line_path, lined, missing, work


def command(words: list[str]) -> int:
    return 0


def asked(told: Any) -> list[str]:
    """The pieces that every cell and seed was asked for, in order."""
    places = [told.placed(cell, seed) for seed in told.all_seeds() for cell in told.cells]
    return [piece for place in places for piece in (place.folder / "asked").read_text().splitlines()]


def test_all_pieces_are_done_once_and_kept(quick: type[Quick], tmp_path: Path) -> None:
    told = config(tmp_path)
    found = conduct(told, command)
    assert found.open == 0 and not found.missing and len(found.lines) == 2 * 2 * 3
    values = {(line["cell"], line["method"], line["seed"]): line["value"] for line in found.lines}
    assert values["b c", "three three", 1] == 1 + len("three three") and values["a", "one", 0] == 3
    assert all(line["device"] == machine("cpu")["device"] and line["took"] >= 0 for line in found.lines)
    assert conduct(told, command).lines == found.lines
    assert asked(told) == ["one", "two", "three three"] * 4
    some = conduct(config(tmp_path, part="some"), command)  # parts share what is kept
    assert [line["method"] for line in some.lines] == ["two"] * 4 and asked(told) == ["one", "two", "three three"] * 4


def test_a_line_keeps_the_seconds_that_its_piece_names(quick: type[Quick], tmp_path: Path) -> None:
    told = config(tmp_path)
    place = told.placed(told.cells[0], 1)
    own = lined(told, place, "one", lambda piece: {"seconds": 500.0})
    assert own["seconds"] == 500.0 and own["took"] < 500
    assert (own["cell"], own["method"], own["seed"]) == ("a", "one", 1)
    assert 0 <= lined(told, place, "one", lambda piece: {})["seconds"] < 500


def test_what_was_stopped_goes_on_where_it_was(quick: type[Quick], tmp_path: Path, monkeypatch: Any) -> None:
    told, line = config(tmp_path), quick.line

    def killed(self: Quick, piece: str) -> dict[str, Any]:
        if piece == "two":
            raise KeyboardInterrupt
        return line(self, piece)

    monkeypatch.setattr(quick, "line", killed)
    with pytest.raises(KeyboardInterrupt):
        conduct(told, command)
    assert gathered(told).open == 2 * 2 * 3 - 1
    monkeypatch.setattr(quick, "line", line)
    assert conduct(told, command).open == 0 and asked(told) == ["one", "two", "three three"] * 4


def test_what_another_process_holds_is_left_to_it(quick: type[Quick], tmp_path: Path, monkeypatch: Any) -> None:
    told = config(tmp_path, seeds=1)
    place = told.placed(told.cells[0], 0)

    def others(_: float) -> None:  # while we wait, the other one ends its work
        for piece in told.pieces():
            line_path(place, piece).parent.mkdir(exist_ok=True)
            line_path(place, piece).write_text(json.dumps({"cell": "a", "method": piece, "seed": 0, "value": -1}))

    monkeypatch.setattr("ukemi.experiments.running.sleep", others)
    with held(place.folder) as mine:
        assert mine
        work(told, command)
    assert [line["value"] for line in gathered(told).lines] == [-1, -1, -1, 3, 3, 11]
    assert not (place.folder / "asked").exists()


@pytest.mark.parametrize("field", ["out", "runs"])
def test_a_folder_that_cant_be_made_shows_before_any_work(field: str, quick: type[Quick], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = config(tmp_path / "out").model_copy(update={field: tmp_path / "file" / "there"})
    with pytest.raises(UserError, match=f"^{field}: .*there can't be made"):
        conduct(told, command)
    assert not list(tmp_path.glob("**/asked"))


def test_cells_without_data_are_named_and_left_out(quick: type[Quick], tmp_path: Path) -> None:
    cells = [
        {"name": "a", "data": "fashion-mini", "model": "demo-cnn"},
        {"name": "house numbers", "data": "svhn", "model": "demo-cnn"},
        {"name": "large", "data": "imagenet", "model": "demo-cnn", "not-run": "too large"},
    ]
    cells[2]["not_run"] = cells[2].pop("not-run")
    told = config(tmp_path, cells=cells, data_folder=tmp_path)
    found = conduct(told, command)
    assert found.missing == missing(told) and found.missing["large"] == "too large"
    assert "svhn is not there" in found.missing["house numbers"]
    assert {line["cell"] for line in found.lines} == {"a"} and found.open == 0


def test_the_bar_counts_pieces_and_says_how_long_the_rest_takes(quick: type[Quick], tmp_path: Path) -> None:
    told = config(tmp_path)
    watch = Pieces(told)
    watch.look()
    assert watch.done() == (0, 12) and watch.said() == "0 of 12 pieces"
    for piece, seconds in (("one", 100.0), ("two", 20.0)):
        path = line_path(told.placed(told.cells[0], 0), piece)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"took": seconds}))
    watch.look()
    # three more of each, and four of what was never done, at the mean of both
    left = 3 * 100 + 3 * 20 + 4 * 60
    assert watch.done() == (2, 12) and watch.said() == f"2 of 12 pieces, about {left / 60:.0f} min left"

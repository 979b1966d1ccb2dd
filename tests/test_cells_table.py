"""`benchmarks/cells.py`: every cell of its table is a training that `ukemi train` would take."""

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from ukemi.experiments import ExperimentConfig
from ukemi.recipes import recipe_of
from ukemi.spaces import named_grid

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("cells", "lines"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import cells

    return cells


def test_every_cell_can_be_trained_and_measured(script: ModuleType, tmp_path: Path) -> None:
    args = argparse.Namespace(change=None, compile=True, data=None, validation=0.0)
    found = script.cells(BENCHMARKS / "cells.toml", None)
    assert len(found) > 200
    for cell in found:
        whole = {name: value for name, value in cell.items() if name != "take"}  # fewer images are read from files
        config = script.told(whole, 3, args, tmp_path / "run")
        assert config.seed == 3 and config.model == cell["model"] and config.compile and config.autotune, cell
        named_grid(cell["grid"], (28, 28))
    twice = [key for key, count in Counter((cell["group"], cell["name"]) for cell in found).items() if count > 1]
    assert not twice


def test_what_is_listed_as_open_is_there(script: ModuleType) -> None:
    jobs = [line.split() for line in (BENCHMARKS / "open.txt").read_text().splitlines() if line and line[0] != "#"]
    recipe = recipe_of("uncertainty-study").config("full")
    assert isinstance(recipe, ExperimentConfig)
    known = {
        "benchmarks/cells.py": ("--groups", {cell["group"] for cell in script.cells(BENCHMARKS / "cells.toml", None)}),
        "benchmarks/uncertainty.py": ("--cells", {cell.name for cell in recipe.cells}),
    }
    for words in jobs:
        flag, names = known[words[1]]
        given = words[words.index(flag) + 1 : words.index("--seeds")]
        assert words[0] == "python" and words[2] == "run" and given and set(given) <= names, words


def test_groups_share_settings_methods_and_the_papers_figures(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "cells.toml").write_text("""
        methods = { plain = { augmenter = { name = "standard" } }, other = { augmenter = { name = "random" } } }
        like.fashion = { data = "fashion-mini", epochs = 3 }
        groups.one = { like = "fashion", epochs = 5, methods = ["plain", "other"], paper = { other = 7 } }
        groups.two = { data = "fashion-mini" }
        cells = [{ group = "two", name = "own", epochs = 9 }]
    """)
    one, other, own = script.cells(tmp_path / "cells.toml", None)
    shared = {"group": "one", "data": "fashion-mini", "epochs": 5}
    assert one == {**shared, "name": "plain", "augmenter": {"name": "standard"}}
    assert other == {**shared, "name": "other", "augmenter": {"name": "random"}, "paper": 7}
    assert own == {"group": "two", "name": "own", "data": "fashion-mini", "epochs": 9}
    assert [cell["name"] for cell in script.cells(tmp_path / "cells.toml", ["two", "one"])] == ["own", "plain", "other"]


def test_seconds_are_those_of_lines_that_were_trained_as_told(script: ModuleType) -> None:
    cell = {"name": "ukemi", "grid": "t3-81", "compile": True}
    passes = {"scoring_forwards": 1, "scoring_forwards_saved": 0}
    line = {"name": "ukemi", "accuracy": 0.5, "robust": 0.5, "epochs": 2, "epoch_seconds": 1.0, **passes}
    lines = [
        line | {"seconds": 10.0},
        line | {"seconds": 20.0, "compiled": True, "autotuned": False},
        line | {"seconds": 700.0, "compiled": True, "autotuned": True},
        line | {"seconds": 900.0, "compiled": False, "autotuned": False},
        line | {"seconds": 90.0, "compiled": True, "autotuned": False, "shared": True},
    ]
    (row,) = [row for row in script.rows([cell], lines).splitlines() if row.startswith("| ukemi")]
    assert "| 15.0 ± 7.1 |" in row and row.startswith("| ukemi | 5 |")

"""`benchmarks/paper_tables.py`: the papers' tables, with what was measured beside what they print."""

import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("paper_tables", "cells", "lines"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import paper_tables

    return paper_tables


def line(name: str, robust: float, seed: int = 0, group: str = "g", **more: Any) -> dict[str, Any]:
    about = {"validation": 0.0, "change": "", "epochs": 5, "device": "CPU", "accuracy": 0.9}
    return {"group": group, "name": name, "seed": seed, "robust": robust, **about, **more}


TABLE: dict[str, Any] = {
    "title": "T",
    "columns": ["random", "sensei"],
    "heads": ["Random", "SENSEI"],
    "best": "sensei",
    "rows": [
        {"name": "both", "group": "g", "paper": [50.0, 60.0]},
        {"name": "named otherwise", "group": "h", "suffix": ", net", "cells": {"sensei": "g/sensei"}},
        {"name": "no data", "absent": "SVHN", "paper": [70.0, 65.5]},
        {"name": "planned", "group": "p"},
        {"name": "one cell twice", "group": "g", "cells": {"random": "sensei"}},
    ],
}
PLANNED = {("g", "random"): {}, ("g", "sensei"): {"take": 8000}, ("h", "random, net"): {}, ("p", "sensei"): {}}


def test_a_table_shows_ours_beside_the_papers_figures(script: ModuleType) -> None:
    lines = [line("random", 0.5), line("sensei", 0.6), line("sensei", 0.7, seed=1), line("random, net", 0.8, group="h")]
    lines += [line("random", 0.1, validation=0.1), line("random", 0.1, change="{}")]  # not of the test images as told
    text = script.written(TABLE, script.measured(lines), PLANNED)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines() if row.startswith("| ")]
    assert rows[2] == ["both", "**50.0** (50.0)", "**65.0 ± 7.1** (60.0)", "1-2", "5", "all, 8,000", "CPU"]
    assert rows[3] == ["named otherwise", "**80.0**", "**65.0 ± 7.1**", "1-2", "5", "all, 8,000", "CPU"]
    assert rows[4] == ["no data", "not run (70.0)", "not run (65.5)", "", "", "", ""]
    assert rows[5] == ["planned", "", "open", "", "", "", ""]
    assert rows[6] == ["one cell twice", "**65.0 ± 7.1**", "**65.0 ± 7.1**", "2", "5", "8,000", "CPU"]
    assert "SENSEI is first in 1 of 3 rows that have two or more; the paper: 1 of 2 rows." in text


def test_every_row_names_cells_that_exist_and_the_figures_that_they_have(script: ModuleType) -> None:
    planned = {(cell["group"], cell["name"]): cell for cell in script.cells(ROOT / "benchmarks/cells.toml", None)}
    compared = 0
    for table in tomllib.loads(script.TABLES.read_text())["tables"]:
        assert len(table["heads"]) == len(table["columns"]), table["title"]
        for row in table["rows"]:
            places = [script.place(row, column) for column in table["columns"]]
            assert "group" not in row or any(at in planned for at in places), (table["title"], row["name"])
            for column, at in zip(table["columns"], places, strict=True):
                known = planned.get(at, {}).get("paper")
                if "network" in row and isinstance(known, int | float):
                    compared += 1
                    assert known == script.printed(row, table)[column], (row["name"], column)
    assert compared > 50


def test_the_report_is_made_of_the_lines_beside_it(script: ModuleType) -> None:
    told = tomllib.loads(script.TABLES.read_text())
    made = script.text(told, script.read(ROOT / "results/cells.jsonl"))
    assert (ROOT / "results/papers.md").read_text() == made

"""Runs are named by their settings: code of one's own that changed since is told, not run again."""

import os
from pathlib import Path

import pytest
from compare_child import config

from ukemi.comparing import compare

CODE = """
from torch import nn
from ukemi import T2, Random
from ukemi.attacks import from_callable

def make():
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 4))

half = from_callable(lambda model, images, labels: images / 2)
"""


def edit(path: Path) -> None:
    later = path.stat().st_mtime + 1000
    os.utime(path, (later, later))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("own_model", {"models": ("own_model:make",), "train": {"epochs": 1, "batch_size": 16, "space": "t2"}}),
        ("own_method", {"methods": ("own,of=own_method:Random",)}),
        ("own_grid", {"grids": ("own_grid:T2",)}),
        ("own_attack", {"attacks": ("own_attack:half",)}),
    ],
)
def test_what_changed_after_a_run_is_told(
    name: str, changes: dict[str, object], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = tmp_path / f"{name}.py"
    code.write_text(CODE)
    changes = {"methods": ("random",), "seeds": 1, **changes}
    said: list[str] = []
    for _ in range(2):
        compare(config(small, tmp_path, **changes), said.append)
    assert not said
    edit(code)
    compare(config(small, tmp_path, **changes), said.append)
    assert len(said) == 1 and said[0].startswith(f"{code} was changed after 1 of these runs were begun")
    assert "give another --runs" in said[0]

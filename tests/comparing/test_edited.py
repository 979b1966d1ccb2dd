"""Runs are named by their settings: code of one's own that changed since is told, not run again."""

import os
from pathlib import Path

import pytest
from compare_child import config, make
from safetensors.torch import save_model

from ukemi.comparing import compare
from ukemi.comparing.edited import _changed

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


def test_data_and_weights_that_changed_after_a_run_are_told(small: Path, tmp_path: Path) -> None:
    weights = tmp_path / "net.safetensors"
    save_model(make(), str(weights))
    told = {"methods": ("random",), "seeds": 1}
    told["train"] = {"epochs": 1, "batch_size": 16, "space": "t2", "weights": str(weights)}
    said: list[str] = []
    compare(config(small, tmp_path, **told), said.append)
    assert not said
    for path in (small, weights):
        edit(path)
    compare(config(small, tmp_path, **told), said.append)
    assert sorted(one.split(" was changed after 1 of")[0] for one in said) == sorted(map(str, (small, weights)))


@pytest.mark.parametrize("place", ["a/new.png", "test/a/new.png", "b/", ""])
def test_a_folder_has_changed_when_anything_came_into_it(place: str, tmp_path: Path) -> None:
    for folder in ("a", "test/a"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "old.png").write_bytes(b"")
    for folder in (tmp_path, *tmp_path.rglob("*/")):
        os.utime(folder, (1000, 1000))
    assert _changed(tmp_path) == 1000
    if place.endswith(".png"):
        (tmp_path / place).write_bytes(b"")
    elif place:
        (tmp_path / place).mkdir()
    assert (_changed(tmp_path) > 1000) == bool(place)


def test_a_shard_that_was_written_anew_counts(tmp_path: Path) -> None:
    shard = tmp_path / "train-0.tar"
    shard.write_bytes(b"")
    os.utime(tmp_path, (1000, 1000))
    os.utime(shard, (2000, 2000))
    assert _changed(tmp_path) == 2000

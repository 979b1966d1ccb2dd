"""Checkpoints: whole or not at all, verified when read."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from ukemi import UserError
from ukemi.training.checkpoints import (
    SCHEMA,
    Checkpoint,
    checkpoint_path,
    forget_old,
    newest,
    read_checkpoint,
    write_checkpoint,
    write_whole,
)
from ukemi.training.setup import load_model

STORED = Path(__file__).parent / "stored"


def tensors() -> dict[str, torch.Tensor]:
    shared = torch.arange(6.0).reshape(2, 3)
    return {
        "model.a": shared,
        "model.tied": shared,
        "model.turned": torch.arange(6).reshape(2, 3).T,
        "model.half": torch.ones(3, dtype=torch.bfloat16),
        "sums.empty": torch.zeros(0),
        "sums.number": torch.tensor(2.5, dtype=torch.float64),
        "augmenter.flags": torch.tensor([True, False]),
    }


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.one_of(st.integers(), st.text(), st.none()), max_size=4))
def test_goes_round(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("c") / "checkpoint.safetensors"
    values = {name: value for name, value in values.items() if name not in ("schema", "tied")}
    write_checkpoint(path, tensors(), values)
    found = read_checkpoint(path)
    assert found.values == values and found.tensors.keys() == tensors().keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in tensors().items())
    assert found.part("model").keys() == {"a", "tied", "turned", "half"}


def test_every_flipped_or_missing_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    write_checkpoint(path, tensors(), {"epoch": 3})
    body = path.read_bytes()
    for at in [*range(0, len(body), 37), len(body) - 1]:
        damaged = bytearray(body)
        damaged[at] ^= 0x10
        path.write_bytes(bytes(damaged))
        with pytest.raises(UserError, match=r"checkpoint: .*checkpoint\.safetensors"):
            read_checkpoint(path)
        path.write_bytes(body[:at])
        with pytest.raises(UserError, match="truncated"):
            read_checkpoint(path)


def test_foreign_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(2)}, foreign)
    with pytest.raises(UserError, match="was not written by ukemi"):
        read_checkpoint(foreign)
    torch.save({"a": torch.zeros(2)}, tmp_path / "pickle.safetensors")
    with pytest.raises(UserError, match="no safetensors file"):
        read_checkpoint(tmp_path / "pickle.safetensors")
    with pytest.raises(UserError, match="there is no file"):
        read_checkpoint(tmp_path / "none.safetensors")


def test_a_newer_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.safetensors"
    monkeypatch.setattr("ukemi.training.checkpoints.SCHEMA", SCHEMA + 1)
    write_checkpoint(path, tensors(), {})
    monkeypatch.undo()
    with pytest.raises(UserError, match=f"newer ukemi; this one reads schemas up to {SCHEMA}"):
        read_checkpoint(path)


def test_the_weights_of_another_model_are_refused() -> None:
    given = Checkpoint({f"model.{name}": tensor for name, tensor in nn.Linear(3, 2).state_dict().items()}, {})
    load_model(nn.Linear(3, 2), given, Path("x"))
    with pytest.raises(UserError, match=r"x belongs to another model \(bias is \[2\] there and \[5\] here\)"):
        load_model(nn.Linear(3, 5), given, Path("x"))
    with pytest.raises(UserError, match=r"bias is \[2\] there and absent here"):
        load_model(nn.Linear(3, 2, bias=False), given, Path("x"))


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "file"
    write_whole(path, b"before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "write":
        monkeypatch.setattr(Path, "open", full)
    else:
        monkeypatch.setattr(os, call, full)
    with pytest.raises(UserError, match=r"file can't be written: No space left on device; what was there before"):
        write_whole(path, b"after")
    monkeypatch.undo()
    assert path.read_bytes() == b"before" and [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_last_two_are_kept_by_time_not_by_text(tmp_path: Path) -> None:
    for epoch, step in [(9, 0), (10, 0), (10, 99), (10, 100)]:
        write_checkpoint(checkpoint_path(tmp_path, epoch, step), {}, {"epoch": epoch, "step": step})
    (tmp_path / "checkpoint-x.partial").write_bytes(b"half")
    forget_old(tmp_path)
    assert [read_checkpoint(path).values["step"] for path in newest(tmp_path)] == [100, 99]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("path", sorted(STORED.glob("schema-*.safetensors")), ids=lambda path: path.stem)
def test_a_stored_checkpoint_of_every_schema_is_read(path: Path) -> None:
    found = read_checkpoint(path)
    assert found.values["epoch"] == 3 and found.values["step"] == 2
    assert found.part("model")["weight"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert found.part("augmenter")["picked"].dtype == torch.float32


def test_there_is_a_stored_checkpoint_of_every_schema() -> None:
    assert sorted(path.stem for path in STORED.iterdir()) == [f"schema-{n}" for n in range(1, SCHEMA + 1)]

"""A data set of one's own as package.module:name."""

from pathlib import Path

import pytest

from ukemi import UserError
from ukemi.data import load

MINE = """
import torch
from ukemi.data import DataSet, labelled

def pair():
    train = labelled(torch.rand(6, 1, 8, 8), torch.arange(6) % 2)
    return train, labelled(torch.rand(4, 1, 8, 8), torch.arange(4) % 2)

WHOLE = DataSet("whole", *pair())
number = 3
def wrong():
    return [1, 2]
def fails():
    raise KeyError("no such file")
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_own_data.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return "my_own_data"


def test_a_pair_or_a_data_set_by_name(mine: str) -> None:
    found = load(f"{mine}:pair")
    assert (found.name, len(found.train), len(found.test)) == ("pair", 6, 4)
    assert load(f"{mine}:WHOLE").name == "whole"
    assert load(f"{mine}:pair", size=12).train.size == (12, 12)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("number", "data: my_own_data:number gave a int; a DataSet or a pair of Data"),
        ("wrong", "data: my_own_data:wrong gave a list"),
        ("fails", r"data: my_own_data:fails failed \(KeyError"),
        ("absent", "data: module 'my_own_data' has no name 'absent'"),
    ],
)
def test_what_is_none_is_one_sentence(name: str, said: str, mine: str) -> None:
    with pytest.raises(UserError, match=said):
        load(f"{mine}:{name}")

"""Two ranks measure what one measures: each its share, one report, the same numbers."""

import json
import multiprocessing
import sys
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from measuring_child import command, free_port, pictures

from ukemi.training.sets import read_set

IMAGES = 37
TOLD = {
    "evaluate": "--grid t2-27 --mean-accuracy --attack pgd --epsilon 0.1 --steps 4",
    "attack": "--attack carlini-wagner --steps 20 --searches 2",
    "uncertainty": "--passes 10 --validation-images 20 --attacks fgsm --epsilon 0.15 --fuzzers deephunter",
    "generate": "--passes 10 --pattern HL --goal kept --population 6 --generations 3 --pcs-thresholds 0.3"
    " --vr-thresholds 0.2 --images 11",
}
APART = ("seconds", "out")
"""how long it takes, and where it is written"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "quarters.npz"
    (train, labels), (test, own) = pictures(64), pictures(IMAGES, seed=1)
    np.savez(path, x_train=train[:, 0], y_train=labels, x_test=test[:, 0], y_test=own)
    return path


def run(size: int, arguments: list[str], notes: Path) -> list[tuple[int | None, str]]:
    """Exit code and words of each rank."""
    context, port = multiprocessing.get_context("forkserver"), free_port()
    texts = [notes / f"said-{size}-{rank}" for rank in range(size)]
    ranks = [
        context.Process(target=command, args=(arguments, rank, size, port, str(text)))
        for rank, text in enumerate(texts)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(100)
    return [(rank.exitcode, text.read_text()) for rank, text in zip(ranks, texts, strict=True)]


def alike(one: Any, two: Any) -> bool:
    """Equal, numbers but for the last bit: the order of a sum in double precision goes with the rows of a block."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(alike, one, two))
    return isclose(one, two, rel_tol=1e-14) if isinstance(one, float) else bool(one == two)


def without(values: Any, names: tuple[str, ...]) -> Any:
    if isinstance(values, dict):
        return {key: without(value, names) for key, value in values.items() if key not in names}
    return [without(value, names) for value in values] if isinstance(values, list) else values


@pytest.mark.parametrize("name", TOLD)
def test_two_ranks_measure_what_one_measures(name: str, images: Path, tmp_path: Path) -> None:
    found = {}
    for size in (1, 2):
        out = tmp_path / str(size)
        told = [name, "--model", "measuring_child:make", "--data", str(images), "--device", "cpu", *TOLD[name].split()]
        said = run(size, [*told, "--out", str(out)], tmp_path)
        assert [code for code, _ in said] == [0] * size, said
        assert [bool(text.strip()) for _, text in said] == [True, False][:size]  # one report, by one rank
        (numbers,) = out.glob("*.json")
        found[size] = without(json.loads(numbers.read_text()), APART)
    assert alike(found[1], found[2]), found
    for one in (tmp_path / "1").glob("*.safetensors"):
        made, again = read_set(one), read_set(tmp_path / "2" / one.name)
        assert len(made) and torch.equal(made.images, again.images) and torch.equal(made.index, again.index)
        assert torch.equal(made.success, again.success) and made.norm == again.norm


def test_three_ranks_and_fewer_images(images: Path, tmp_path: Path) -> None:
    told = ["attack", "--model", "measuring_child:make", "--data", str(images), "--device", "cpu", "--attack", "fgsm"]
    told += ["--epsilon", "0.1", "--images", "2", "--out", str(tmp_path / "out")]
    assert [code for code, _ in run(3, told, tmp_path)] == [0, 0, 0]
    assert len(read_set(next((tmp_path / "out").glob("*.safetensors")))) <= 2


def test_ranks_with_different_models_are_refused(images: Path, tmp_path: Path) -> None:
    told = ["evaluate", "--model", "measuring_child:other", "--data", str(images), "--device", "cpu"]
    said = run(2, [*told, "--out", str(tmp_path / "out")], tmp_path)
    assert [code for code, _ in said] == [2, 2] and not (tmp_path / "out").exists()
    assert "model: rank 0 has weights with the checksum" in said[0][1] and "but rank 1 has" in said[0][1]


def test_other_commands_run_in_one_process(images: Path, tmp_path: Path) -> None:
    said = run(2, ["selfcheck", "--model", "measuring_child:make", "--data", str(images)], tmp_path)
    assert [code for code, _ in said] == [2, 2]
    assert "torchrun may start train, evaluate, attack, uncertainty, generate" in said[0][1]

"""Ranks that are killed with SIGKILL at moments drawn by a seed, and resumed on other numbers of ranks, end in the same
bits as trainings that were not killed.

`UKEMI_KILL_SEED=17 pytest tests/training/test_ranks_killed.py` tries other moments.
"""

import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ukemi.training import Run
from ukemi.training.checkpoints import read_checkpoint
from ukemi.training.run import TIMES

sys.path.insert(0, str(Path(__file__).parent))
from rank_runs import AUGMENTERS, assert_alike, last, run_ranks, settings, write_images

SEEDS = [int(os.environ["UKEMI_KILL_SEED"])] if "UKEMI_KILL_SEED" in os.environ else [0, 1, 3]
SIZES = (2, 1, 2)
"""ranks of the trainings that are killed; the last one, which is not, has two"""
EPOCHS, STEPS = 3, 5
WRITING = {"before-write": 1, "in-write": 1, "before-flush": 2, "before-rename": 1, "after-rename": 1, "mid-epoch": 1}
"""points of kill_child, and how often a step that ends in a checkpoint comes by at least: those of the first rank"""
TALKING = {"mid-epoch": 1, "in-merge": 14, "in-exchange": 7}
"""those that any of several ranks comes by: seven tensors of two ranks are merged"""

Kill = tuple[int, str, int]


@pytest.fixture(autouse=True)
def _own_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data") / "small.npz")


@pytest.fixture(scope="module")
def whole(processes: Any, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training on one rank that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    assert [each["said"] for each in run_ranks(processes, changed(images, folder / "run"), 1, folder)] == [""]
    return folder / "run"


def changed(images: Path, out: Path) -> dict[str, Any]:
    """A checkpoint after every step."""
    augmenter = AUGMENTERS["sensei-sa"]
    return settings(images, out, augmenter=augmenter, epochs=EPOCHS, checkpoint_minutes=1e-9)


def drawn(dice: random.Random, size: int) -> Kill:
    """Who is killed, at which point, and at which time that it comes by: within four steps of 15."""
    rank = dice.randrange(size)
    points = (WRITING if rank == 0 else {}) | (TALKING if size > 1 else {})
    point = dice.choice(list(points))
    return rank, point, dice.randrange(4 * points[point])


def position(folder: Path) -> int:
    """Steps of the whole training that the last checkpoint knows; 0 where there is none yet."""
    found, refused = Run(folder).last_checkpoint()
    assert not refused
    return 0 if found is None else STEPS * found.values["epoch"] + found.values["step"]


def finished(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Weights, every tensor of the last checkpoint, and the log without times."""
    log = [{name: value for name, value in line.items() if name not in TIMES} for line in Run(folder).read_log()]
    return read_checkpoint(Run(folder).weights_path).tensors, last(folder)[0], log


def differing(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in a.keys() | b.keys() if name not in a or name not in b or not torch.equal(a[name], b[name])]


def killed(processes: Any, values: dict[str, Any], kills: list[Kill], notes: Path) -> list[int]:
    """Trains until every rank to be killed was, and then to the end; where each of them was taken up."""
    reached = []
    for size, (rank, point, at) in zip(SIZES, kills, strict=True):
        found = run_ranks(processes, values, size, notes, rank=rank, what="kill", point=point, at=at)
        assert not found[rank], kills
        left = [each for each in found if each]
        assert [each["kind"] for each in left] == ["RankLost"] * (size - 1), kills
        assert all("lost another rank" in each["said"] and "--resume" in each["said"] for each in left), kills
        reached.append(position(values["out"]))
    assert [each["said"] for each in run_ranks(processes, values, 2, notes)] == ["", ""], kills
    return reached


def interrupted(processes: Any, values: dict[str, Any], reached: list[int], notes: Path) -> None:
    """The same numbers of ranks for the same steps, but every one stops by itself, as after Ctrl-C."""
    before = 0
    for size, until in zip(SIZES, reached, strict=True):
        if until > before:
            found = run_ranks(processes, values, size, notes, rank=0, what="SIGINT", step=until - before - 1)
            assert [each["kind"] for each in found] == ["Interrupted"] * size
            assert position(values["out"]) == until
        before = until
    assert [each["said"] for each in run_ranks(processes, values, 2, notes)] == ["", ""]


@pytest.mark.parametrize("seed", SEEDS)
def test_ranks_killed_at_any_moment_and_other_numbers_of_them(
    seed: int, processes: Any, images: Path, whole: Path, tmp_path: Path
) -> None:
    """Begun on two, resumed on one, resumed on two, each time one is killed; resumed on two to the end.

    In the same bits as a training on as many ranks at every step that nobody killed, and what one rank does all alone:
    the same populations, and weights to 1e-12.
    """
    dice = random.Random(seed)
    kills = [drawn(dice, size) for size in SIZES]
    broken, kept = (changed(images, tmp_path / name) for name in ("broken", "kept"))
    reached = killed(processes, broken, kills, tmp_path)
    interrupted(processes, kept, reached, tmp_path)
    told = f"UKEMI_KILL_SEED={seed}: killed (rank, point, time) {kills}, taken up after {reached} steps"
    expected, found = finished(tmp_path / "kept"), finished(tmp_path / "broken")
    assert differing(expected[0], found[0]) == [], told
    assert differing(expected[1], found[1]) == [], told
    assert expected[2] == found[2] and len(found[2]) == EPOCHS, told
    assert not list((tmp_path / "broken" / "checkpoints").glob("*.partial")), told
    assert_alike(whole, tmp_path / "broken")

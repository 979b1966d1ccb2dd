"""Trainings on two ranks do what one rank does: the same order, proposals and population, and the same weights."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import newest, read_checkpoint
from ukemi.training.setup import batches_of_epoch

sys.path.insert(0, str(Path(__file__).parent))
from rank_child import child, free_port

EPOCHS, IMAGES = 5, 37
AUGMENTERS: dict[str, dict[str, Any]] = {
    "standard": {"name": "standard"},
    "random": {"name": "random"},
    "worst-of": {"name": "worst-of", "k": 3},
    "worst-of-epoch": {"name": "worst-of", "k": 2, "when": "epoch"},
    "sensei": {"name": "sensei", "population": 3, "warmup": 1},
    "sensei-sa": {"name": "sensei-sa", "population": 2, "threshold": 1.3, "skipped": "random"},
    "sensei-rw": {"name": "sensei-rw", "population": 2},
    "sensei-t": {"name": "sensei-t", "population": 3},
    "sensei-released": {"name": "sensei-released", "population": 4, "cap": 1},
    "skipping-and-capped": {"name": "sensei-released", "population": 4, "cap": 1, "skip": "loss", "threshold": 1.3},
    "augmentation": {"name": "augmentation", "population": 3, "skip": "classification"},
    "ukemi": {"name": "ukemi", "population": 4, "fitness": "likelihood-surprise"},
    "styx": {"name": "styx", "masks": "epoch", "redraw": True},
}


@pytest.fixture(scope="module")
def processes() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ukemi.training", "torch._dynamo", "torch.distributed.fsdp"])
    return context


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """37 images of 12 x 12: batches of 8 leave 5, which two ranks split into 3 and 2."""
    path = tmp_path_factory.mktemp("data") / "small.npz"
    generator = np.random.default_rng(0)
    labels = np.arange(IMAGES + 8) % 4
    pixels = (generator.integers(0, 120, (IMAGES + 8, 12, 12)) + 30 * labels[:, None, None]).astype(np.uint8)
    train_set, test_set = slice(0, IMAGES), slice(IMAGES, None)
    np.savez(
        path, x_train=pixels[train_set], y_train=labels[train_set], x_test=pixels[test_set], y_test=labels[test_set]
    )
    return path


def settings(images: Path, out: Path, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"data": str(images), "model": "rank_net:double", "epochs": EPOCHS, "batch_size": 8}
    values |= {"flips": True, "validation": 0, "space": "t3", "device": "cpu", "out": out, "checkpoint_minutes": 0}
    return values | changes


def run_ranks(
    processes: Any, values: dict[str, Any], size: int, notes: Path, each: tuple[dict[str, Any], ...] = (), **special: Any
) -> list[dict[str, Any]]:
    """What every rank wrote down; a rank that was killed wrote nothing. `each` changes the values of single ranks."""
    port = free_port()
    paths = [notes / f"{values['out'].name}-{size}-{rank}.json" for rank in range(size)]
    running = []
    for rank, path in enumerate(paths):
        path.unlink(missing_ok=True)
        mine = values | (each[rank] if each else {})
        running.append(processes.Process(target=child, args=(mine, rank, size, port, str(path), special)))
        running[-1].start()
    for process in running:
        process.join(60)
        assert process.exitcode is not None
    return [json.loads(path.read_text()) if path.exists() else {} for path in paths]


def joined_steps(found: list[dict[str, Any]]) -> list[tuple[list[int], list[Any] | None]]:
    """Samples and genes of each whole batch, the ranks' rows one behind the other."""
    joined = []
    for steps in zip(*(rank["steps"] for rank in found), strict=True):
        assert len({(step[0], step[1]) for step in steps}) == 1
        genes = [row for step in steps for row in step[3] or ()]
        joined.append(([index for step in steps for index in step[2]], genes or None))
    return joined


def last(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    found = read_checkpoint(newest(Run(folder).checkpoints)[0])
    return found.tensors, found.values


def assert_alike(one: Path, other: Path) -> None:
    (a, said), (b, told) = last(one), last(other)
    assert a.keys() == b.keys() and said["scoring_forwards"] == told["scoring_forwards"]
    for name in a:
        if name.startswith("augmenter.") and not a[name].is_floating_point():
            assert torch.equal(a[name], b[name]), name
        else:
            near = 1e-5 if a[name].dtype == torch.float32 else 1e-12
            assert torch.allclose(a[name], b[name], rtol=0, atol=near), name


@pytest.mark.parametrize("augmenter", AUGMENTERS)
def test_two_ranks_do_what_one_does(
    augmenter: str, processes: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    found = {
        size: run_ranks(
            processes, settings(images, tmp_path / str(size), augmenter=AUGMENTERS[augmenter]), size, tmp_path
        )
        for size in (1, 2)
    }
    assert [rank["said"] for size in found for rank in found[size]] == ["", "", ""]
    assert joined_steps(found[1]) == joined_steps(found[2]) and len(joined_steps(found[1])) == 5 * EPOCHS
    assert sorted(found[1][0]["proposals"]) == sorted(found[2][0]["proposals"] + found[2][1]["proposals"])
    assert_alike(tmp_path / "1", tmp_path / "2")
    logs = [Run(tmp_path / size).read_log() for size in ("1", "2")]
    assert [line["scoring_forwards"] for line in logs[0]] == [line["scoring_forwards"] for line in logs[1]]
    if augmenter == "worst-of":  # the work of scoring is halved
        whole, *halves = (sum(step[4] for step in rank["steps"]) for rank in (*found[1], *found[2]))
        assert whole == 3 * IMAGES * EPOCHS and halves == [3 * 19 * EPOCHS, 3 * 18 * EPOCHS]

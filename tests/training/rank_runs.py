"""Trainings on some number of ranks, and what they left: for the tests of ranks."""

import json
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from rank_child import child, free_port

from ukemi.training import Run
from ukemi.training.checkpoints import newest, read_checkpoint

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


def write_images(path: Path, bright: int | None = None) -> Path:
    """37 images of 12 x 12: batches of 8 leave 5, which two ranks split into 3 and 2. One of them may be all white."""
    generator = np.random.default_rng(0)
    labels = np.arange(IMAGES + 8) % 4
    pixels = (generator.integers(0, 120, (IMAGES + 8, 12, 12)) + 30 * labels[:, None, None]).astype(np.uint8)
    if bright is not None:
        pixels[bright] = 255
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
    processes: Any,
    values: dict[str, Any],
    size: int,
    notes: Path,
    each: tuple[dict[str, Any], ...] = (),
    **special: Any,
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
    deadline = monotonic() + 60
    for process in running:
        process.join(max(0, deadline - monotonic()))
    waiting = [rank for rank, process in enumerate(running) if process.exitcode is None]
    for rank in waiting:
        running[rank].kill()
    assert not waiting, f"ranks {waiting} of {size} did not end"
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

"""What fails on one rank alone: nobody waits for ever, and the cause is told by the rank that knows it."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ukemi.errors import UserError
from ukemi.repairs.more import further
from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint, write_checkpoint
from ukemi.training.parallel import go_on

sys.path.insert(0, str(Path(__file__).parent))
import rank_faults
from rank_child import child, free_port

BASE: dict[str, Any] = {"epochs": 2, "batch_size": 8, "validation": 0, "space": "t3", "device": "cpu"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small.npz"
    labels = np.arange(40) % 4
    pixels = np.random.default_rng(0).integers(0, 256, (40, 12, 12)).astype(np.uint8)
    np.savez(path, x_train=pixels[:32], y_train=labels[:32], x_test=pixels[32:], y_test=labels[32:])
    return path


def both(processes: Any, each: Sequence[dict[str, Any]], notes: Path) -> list[str]:
    """What the two ranks said, told `each`."""
    port, paths = free_port(), [notes / f"{rank}.json" for rank in range(2)]
    told = [(each[rank], rank, 2, port, str(paths[rank]), {}) for rank in range(2)]
    ranks = [processes.Process(target=child, args=one) for one in told]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
        if process.is_alive():
            process.kill()
            pytest.fail("a rank waits for ever")
    return [path.read_text() for path in paths]


@pytest.mark.parametrize(
    "augmenter", [{"name": "sensei-released", "population": 3, "cap": 1, "warmup": 0}, {"name": "random"}]
)
def test_memory_that_ends_behind_the_search_stops_both(
    augmenter: dict[str, Any], processes: Any, images: Path, tmp_path: Path
) -> None:
    """The search of a capped rank has met the other already: it must not meet it twice."""
    values = BASE | {"data": str(images), "model": "rank_faults:exhausted", "augmenter": augmenter}
    said = both(processes, [values | {"out": tmp_path / "run"}] * 2, tmp_path)
    assert all("rank 1 ran out of memory at epoch 0, step 3" in text for text in said)
    assert all("there is no checkpoint yet" in text for text in said)


def test_the_rank_that_knows_the_cause_tells_it(images: Path, tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    command = [sys.executable, "-m", "ukemi", "train", "--data", str(images), "--model", "rank_faults:fussy"]
    command += ["--epochs", "2", "--batch-size", "8", "--validation", "0", "--device", "cpu"]
    command += ["--out", str(tmp_path / "run")]
    port, running = str(free_port()), []
    for rank in ("0", "1"):
        told = {"TORCHELASTIC_RUN_ID": "test", "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
        told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": here}
        told |= {"OMP_NUM_THREADS": "1"}
        running.append(subprocess.Popen(command, env=os.environ | told, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=100)[1] for process in running]
    assert "network: image seven is upside down." in said[1] and "Traceback" not in said[1]
    assert "rank 0 lost another rank" in said[0] and [process.returncode for process in running] == [3, 2]


def test_one_rank_begins_and_the_other_goes_on(processes: Any, images: Path, tmp_path: Path) -> None:
    values = BASE | {"data": str(images), "model": "rank_faults:single"}
    train(TrainConfig(**values | {"epochs": 1, "out": tmp_path / "old"}), quiet=True)
    said = both(processes, [values | {"out": tmp_path / name} for name in ("old", "new")], tmp_path)
    sentence = "resume: rank 0 has a run to go on with, but rank 1 has a run to begin; all ranks begin it, or all go on"
    assert all(sentence in text for text in said)


def test_a_run_without_a_checkpoint_begins_anew_from_its_weights(images: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    tensors = rank_faults.single().state_dict()
    write_checkpoint(tmp_path / "given.safetensors", tensors, {"classes": ["0", "1", "2", "3"]})
    values = BASE | {"data": str(images), "model": "rank_faults:single", "weights": tmp_path / "given.safetensors"}
    whole = train(TrainConfig(**values | {"out": tmp_path / "whole"}), quiet=True)
    Run.start(TrainConfig(**values | {"out": tmp_path / "cut"}))  # as far as a run that was killed at once
    again = train(Run.config_of(tmp_path / "cut"), resume=True, quiet=True)
    one, two = (read_checkpoint(run.weights_path).tensors for run in (whole, again))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_how_to_go_on_is_told_as_it_is(images: Path, tmp_path: Path) -> None:
    assert "there is no checkpoint yet: begin anew with --resume" in go_on(tmp_path)
    values = BASE | {"data": str(images), "model": "rank_faults:single"}
    train(TrainConfig(**values | {"out": tmp_path / "run"}), quiet=True)
    assert "the last checkpoint in" in go_on(tmp_path / "run") and "is whole" in go_on(tmp_path / "run")


def test_what_goes_on_can_be_pasted(tmp_path: Path) -> None:
    """Also where the folder has a space."""
    folder = tmp_path / "my run"
    folder.mkdir()
    (folder / "config.toml").write_text("")
    pasted = re.escape(f"--resume '{folder}'")
    assert re.search(pasted, go_on(folder))
    with pytest.raises(UserError, match=pasted):
        Run.check_free(folder)
    with pytest.raises(UserError, match=pasted):
        further(TrainConfig(), Run(folder), folder)

"""Runs that are killed with SIGKILL again and again end in the same bits as runs that are not."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from ukemi.errors import UserError
from ukemi.training import Run
from ukemi.training.checkpoints import newest, read_checkpoint
from ukemi.training.run import TIMES

sys.path.insert(0, str(Path(__file__).parent))
from kill_child import child

EPOCHS = 3
AUGMENTERS: dict[str, dict[str, Any]] = {
    "standard": {"name": "standard"},
    "random": {"name": "random"},
    "worst-of": {"name": "worst-of", "k": 3},
    "sensei": {"name": "sensei", "population": 3, "warmup": 1},
    "sensei-sa": {"name": "sensei-sa", "population": 2, "threshold": 1.3, "skipped": "random"},
    "sensei-rw": {"name": "sensei-rw", "population": 2},
    "sensei-t": {"name": "sensei-t", "population": 3},
    "sensei-released": {"name": "sensei-released", "population": 4, "cap": 3},
    "augmentation": {"name": "augmentation", "population": 3, "skip": "classification"},
    "ukemi": {"name": "ukemi", "population": 4, "fitness": "likelihood-surprise"},
    "worst-of-epoch": {"name": "worst-of", "k": 2, "when": "epoch"},
    "styx": {"name": "styx", "masks": "epoch", "redraw": True},
    "own": {"name": "own", "of": "ukemi.augmenters:Sensei"},
}
MORE: dict[str, dict[str, Any]] = {
    "sensei-sa": {"objective": {"name": "consistency", "statistics": "separate-worst"}, "average": 0.9},
    "ukemi": {"objective": {"name": "consistency", "kind": "l2", "labels_on": "both"}},
    "random": {"objective": {"name": "mixup"}},
    "worst-of": {"objective": {"name": "adversarial", "steps": 2, "ratio": 0.5}},
    "augmentation": {"objective": {"name": "manifold-mixup", "layers": ["0"]}},
    "styx": {"optimiser": "rmsprop", "learning_rate": 1e-3},
    "sensei-t": {"optimiser": "adam", "learning_rate": 1e-3, "channels_last": True},
    "standard": {"optimiser": "adadelta", "learning_rate": 1.0},
}
POINTS = ["before-write", "in-write", "before-flush", "before-rename", "after-rename", "mid-epoch"]


@pytest.fixture(scope="module")
def images(small: Path) -> Path:
    return small


def settings(images: Path, out: Path, augmenter: str) -> dict[str, Any]:
    return {
        "data": str(images),
        "model": "kill_net:make",
        "augmenter": AUGMENTERS[augmenter],
        "epochs": EPOCHS,
        "batch_size": 16,
        "flips": True,
        "robust_every": 2,
        "robust_images": 4,
        "validation": 0.1,
        "space": "t2",
        "device": "cpu",
        "checkpoint_minutes": 1e-9,  # after every step
        "history": 2,
        "out": out,
        **MORE.get(augmenter, {}),
    }


def run_child(processes: Any, values: dict[str, Any], point: str, at: int, seconds: float | None = None) -> int | None:
    process = processes.Process(target=child, args=(values, point, at))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


def finished(folder: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Weights, log without times, and every tensor of the last checkpoint."""
    run = Run(folder)
    log = [{name: value for name, value in line.items() if name not in TIMES} for line in run.read_log()]
    last = read_checkpoint(newest(run.checkpoints)[0])
    return read_checkpoint(run.weights_path).tensors, log, last.tensors


def history(folder: Path) -> dict[str, bytes]:
    """The files of a run's history; what was left half written is not among them."""
    return {path.name: path.read_bytes() for path in Run(folder).history.glob("*.safetensors")}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("augmenter", AUGMENTERS)
def test_killed_again_and_again_ends_in_the_same_bits(
    augmenter: str, processes: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    whole = settings(images, tmp_path / "whole", augmenter)
    assert run_child(processes, whole, "never", 0) == 0
    dice = random.Random(augmenter)
    broken = settings(images, tmp_path / "broken", augmenter)
    kills = 0
    for point in POINTS:
        code = run_child(processes, broken, point, dice.randrange(0, 4))
        kills += code == -signal.SIGKILL
    for _ in range(2):  # by the clock
        code = run_child(processes, broken, "never", 0, seconds=0.05 + 0.3 * dice.random())
        kills += code == -signal.SIGKILL
    assert run_child(processes, broken, "never", 0) == 0
    assert kills >= 4  # a run that is fast may be over before the clock strikes
    expected, found = finished(tmp_path / "whole"), finished(tmp_path / "broken")
    assert equal(expected[0], found[0]) and expected[1] == found[1] and equal(expected[2], found[2])
    assert len(found[1]) == EPOCHS and not list((tmp_path / "broken" / "checkpoints").glob("*.partial"))
    assert len(history(tmp_path / "broken")) == 2 and history(tmp_path / "whole") == history(tmp_path / "broken")


def test_a_history_is_whole_although_each_of_its_writes_was_killed(
    processes: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write after a resumed checkpoint is the history's: every point of it is met."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    whole, broken = (settings(images, tmp_path / name, "standard") for name in ("whole", "broken"))
    for values in (whole, broken):
        values |= {"checkpoint_minutes": 0, "average": 0.9}  # one checkpoint per epoch
    assert run_child(processes, whole, "never", 0) == 0
    assert run_child(processes, broken, "before-write", 1) == -signal.SIGKILL  # the first epoch's checkpoint is written
    for point in ("before-flush", "in-write", "before-rename", "after-rename"):
        assert run_child(processes, broken, point, 0) == -signal.SIGKILL
        assert [path.name for path in newest(tmp_path / "broken" / "checkpoints")] == [
            "checkpoint-000001-00000000.safetensors"
        ]
        assert len(history(tmp_path / "broken")) == (point == "after-rename")
    assert run_child(processes, broken, "never", 0) == 0
    assert len(history(tmp_path / "broken")) == 2 and history(tmp_path / "whole") == history(tmp_path / "broken")


def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(
    processes: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    values = settings(images, tmp_path / "run", "worst-of")
    assert run_child(processes, values, "mid-epoch", 9) == -signal.SIGKILL
    run = Run(tmp_path / "run")
    last, before = newest(run.checkpoints)
    last.write_bytes(last.read_bytes()[:-100])
    found, refused = run.last_checkpoint()
    assert found is not None and found.values == read_checkpoint(before).values
    assert [path for path, _ in refused] == [last] and str(last) in refused[0][1] and "truncated" in refused[0][1]
    assert run_child(processes, values, "never", 0) == 0
    assert [line["epoch"] for line in run.read_log()] == list(range(EPOCHS))
    assert [path.suffix for path in sorted(run.checkpoints.iterdir())].count(".damaged") == 1
    assert len([read_checkpoint(path) for path in newest(run.checkpoints)]) == 2


def test_the_log_is_cut_back_to_the_checkpoint(
    processes: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    values = settings(images, tmp_path / "run", "standard")
    assert run_child(processes, values, "mid-epoch", 8) == -signal.SIGKILL
    run = Run(tmp_path / "run")
    with run.log_path.open("a") as file:
        file.write(json.dumps({"epoch": 99}) + "\n")
    assert run_child(processes, values, "never", 0) == 0
    assert [line["epoch"] for line in run.read_log()] == list(range(EPOCHS))


def test_a_log_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"epoch": 0}\n\0\0\n')
    with pytest.raises(UserError, match=r"^run: .*log\.jsonl is damaged"):
        Run(tmp_path).read_log()


def test_ctrl_c_ends_cleanly_at_a_checkpoint(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    code = "import torch; torch.set_num_threads(1); from ukemi.cli import main; main()"
    flags = ["--data", str(images), "--epochs", "100000", "--batch-size", "16", "--out", str(tmp_path / "run")]
    process = subprocess.Popen([sys.executable, "-c", code, "train", *flags], stderr=subprocess.PIPE, text=True)
    log = tmp_path / "run" / "log.jsonl"
    for _ in range(600):
        if log.exists() and log.stat().st_size:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in said and "Traceback" not in said
    found, refused = Run(tmp_path / "run").last_checkpoint()
    assert found is not None and not refused and found.values["step"] > 0

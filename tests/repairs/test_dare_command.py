"""`ukemi repair dare`: what it says and writes, on which device, beside its controls, and stopped among them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from ukemi import UserError
from ukemi.cli.main import run as command
from ukemi.repairs import Dare, dare, null_control
from ukemi.repairs.more import read_about
from ukemi.training import Interrupted, Run, TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("dare") / "run"
    usual: dict[str, Any] = {"model": "demo-cnn", "epochs": 4, "batch_size": 250, "device": "cpu"}
    return train(TrainConfig(**usual, history=3, validation=0.2, out=out), quiet=True)


def moved(before: Run, after: Run) -> bool:
    old, new = (read_checkpoint(run.weights_path).tensors for run in (before, after))
    return any(not torch.equal(old[name], new[name]) for name in old)


def test_the_command(made: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = tmp_path / "tuned"
    flags = ["--learning-rates", "1e-5", "1e-4", "--epochs", "1", "--q", "90", "--out", str(tuned)]
    assert command(["repair", "dare", str(made.folder), *flags]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for part in ("images mined", "key neurons, key synapses", "before,", "mining", "slicing", "tuning", "evaluate"):
        assert part in said
    page = (tuned / "training.html").read_text()
    assert "Accuracy" in page and "repair.mined" in page and "trials" not in page
    assert json.loads((tuned / "repair.json").read_text())["settings"]["q"] == 90
    page = (tuned / "repair.html").read_text()
    assert "1e-05" in page and page.count("evidence after the repair") == 8 and "was not measured; --controls" in page
    assert "Is it more than noise?" not in page
    assert command(["evaluate", str(tuned), "--images", "20", "--out", str(tmp_path / "e")]) == 0
    assert command(["attack", str(tuned), "--attack", "fgsm", "--epsilon", "0.01", "--images", "20"]) == 0
    capsys.readouterr()
    for wrong, why in (
        (["repair", "dare"], "a run folder is needed"),
        (["repair", "dare", str(made.folder), "--q", "0"], "q: should be greater than 0"),
        (["repair", "dare", str(made.folder), "--q", "100.5"], "q: should be less than or equal to 100"),
        (["repair", "dare", str(made.folder), "--learning-rates"], "learning-rates: at least 1 is needed, but none"),
        (["repair", "dare", str(tuned), "--out", str(tmp_path / "x")], "kept none; train with --history half"),
        (["train", "--resume", str(tuned)], "holds weights, but no checkpoint to go on from"),
    ):
        assert command(wrong) == 2
        assert why in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("stopped", [KeyboardInterrupt(), Interrupted("go on with --resume the control")])
def test_a_stop_among_the_controls_leaves_the_repair_and_the_same_command_goes_on(
    stopped: BaseException,
    made: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tuned = tmp_path / "tuned"
    told = ["repair", "dare", str(made.folder), "--learning-rates", "1e-4", "--epochs", "1", "--samples", "200"]
    told += ["--variant", "dare-s", "--controls", "--control-images", "12", "--out", str(tuned), "--device", "cpu"]

    def stop(run: Run, like: Run, *, kind: str, out: Path, **more: Any) -> Run:
        if kind == "random":
            return null_control(run, like, kind="random", out=out, **more)
        Run.start(Run.config_of(run.folder).model_copy(update={"out": out}))  # half made
        raise stopped

    with monkeypatch.context() as patched:
        patched.setattr("ukemi.cli.dare.null_control", stop)
        assert command(told) == 130
    said = capsys.readouterr()
    assert "images mined" in said.out and "repair.html" in said.out
    assert said.err == "ukemi: stopped among the controls; the same command goes on from here.\n"
    assert "was not measured; --controls" in (tuned / "repair.html").read_text()
    files = [tuned / "model.safetensors", tuned / "controls" / "random" / "model.safetensors"]
    before = [path.stat().st_mtime_ns for path in files]
    assert command(told) == 0
    said = capsys.readouterr()
    assert "images mined" in said.out and "null random and null continued" in " ".join(said.out.split())
    assert "Is it more than noise?" in (tuned / "repair.html").read_text()
    assert [path.stat().st_mtime_ns for path in files] == before
    assert moved(made, Run(tuned / "controls" / "continued"))
    without = [flag for flag in told if flag not in ("--controls", "--control-images", "12")]
    assert command(without) == 0
    assert "is this repair already, and is taken up" in " ".join(capsys.readouterr().err.split())
    assert "Is it more than noise?" in (tuned / "repair.html").read_text()
    other = train(Run.config_of(made.folder).model_copy(update={"seed": 9, "out": tmp_path / "other"}), quiet=True)
    again = ["repair", "dare", str(shutil.copytree(made.folder, tmp_path / "again"))]
    assert command([*again, *without[3:]]) == 0  # the same weights elsewhere
    capsys.readouterr()
    shutil.rmtree(tmp_path / "again")
    shutil.copytree(other.folder, tmp_path / "again")  # other weights in the very folder
    for changed in ([*again, *without[3:]], [*told, "--epochs", "2"]):
        assert command(changed) == 2
        assert "already holds a run; give another --out" in " ".join(capsys.readouterr().err.split())


def test_the_device_of_a_repair_can_be_named(made: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["repair", "dare", str(made.folder), "--device", "tpu", "--out", str(tmp_path / "no")]) == 2
    assert "device: 'tpu' is not there" in capsys.readouterr().err and not (tmp_path / "no").exists()
    moved_away = Run(shutil.copytree(made.folder, tmp_path / "moved"))
    text = (moved_away.folder / "config.toml").read_text().replace('device = "cpu"', 'device = "cuda:7"')
    (moved_away.folder / "config.toml").write_text(text)
    with pytest.raises(UserError, match="device: 'cuda:7' is not there"):
        dare(moved_away, Dare())
    flags = ["--learning-rates", "1e-4", "--epochs", "1", "--samples", "100", "--variant", "dare-s"]
    assert command(["repair", "dare", str(moved_away.folder), *flags, "--device", "cpu"]) == 0
    tuned = tmp_path / "moved-dare-s"
    assert Run.config_of(tuned).device == "cpu"
    for kind in ("random", "continued"):
        more = ["--like", str(tuned), "--kind", kind, "--out", str(tmp_path / kind)]
        assert command(["repair", "null", str(moved_away.folder), *more]) == 2
        assert "device: 'cuda:7' is not there" in capsys.readouterr().err
        assert command(["repair", "null", str(moved_away.folder), *more, "--device", "cpu"]) == 0
        assert Run.config_of(tmp_path / kind).device == "cpu"


def test_the_command_compares_with_both_controls(made: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = tmp_path / "tuned"
    flags = ["--learning-rates", "1e-4", "--epochs", "1", "--samples", "200", "--variant", "dare-s"]
    flags += ["--controls", "--control-images", "24", "--out", str(tuned)]
    assert command(["repair", "dare", str(made.folder), *flags]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "DARE-s" in said and "null random and null continued" in said and "Attacked itself" in said
    page = (tuned / "repair.html").read_text()
    for part in ("Is it more than noise?", "frozen C&amp;W", "white-box PGD 8/255", "null continued", "dare-s"):
        assert part in page
    for kind in ("random", "continued"):
        control = Run(tuned / "controls" / kind)
        assert read_about(control)["kind"] == kind if kind == "random" else control.weights_path.exists()
        assert moved(made, control)

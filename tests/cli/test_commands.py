"""The commands as a user calls them: what they write, what they say, and their exit codes."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from command_samples import small
from safetensors.torch import save_file

from ukemi.cli import brought
from ukemi.cli.demo import SHOWN
from ukemi.cli.main import run
from ukemi.training import Interrupted, Run
from ukemi.training.checkpoints import newest

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_train_then_evaluate_a_run(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(small(images, "--augmenter", "worst-of", "--augmenter.k", "3", "--robust-every", "1", "--out", "here"))
    said = capsys.readouterr().out
    assert code == 0 and "ukemi evaluate here" in said
    assert Run.config_of(Path("here")).augmenter.k == 3  # type: ignore[union-attr]
    assert Run.config_of(Path("here")).learning_rate == 0.02
    log = Run(Path("here")).read_log()
    assert [line["epoch"] for line in log] == [0, 1] and all(0 <= line["robust_accuracy"] <= 1 for line in log)
    assert "<html" in Path("here/training.html").read_text()
    assert run(["evaluate", "here", "--junit", "gate.xml", "--fail-under", "accuracy=0", "robust=0"]) == 0
    said = capsys.readouterr().out
    found = json.loads(Path("here/evaluation/evaluation.json").read_text())
    assert 0 <= found["robust_accuracy"] <= found["accuracy"] <= 1 and found["images"] == 16
    page = Path("here/evaluation/page.html").read_text()
    assert "data:image/png" in page and "<svg" in page and "http" not in page.split("<body")[1]
    assert len(ET.parse("gate.xml").findall(".//testcase")) == 2 and not ET.parse("gate.xml").findall(".//failure")


def test_fail_under_exits_with_1(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(small(images, "--out", "here")) == 0
    capsys.readouterr()
    code = run(["evaluate", "here", "--fail-under", "robust=1", "accuracy=1", "--images", "3", "--junit", "gate.xml"])
    summary = json.loads(Path("here/evaluation/evaluation.json").read_text())
    missed = (summary["robust_accuracy"] < 1) + (summary["accuracy"] < 1)
    assert code == (1 if missed else 0)
    assert len(ET.parse("gate.xml").findall(".//failure")) == missed
    assert sum(not one["passed"] for one in summary["limits"]) == missed and len(summary["limits"]) == 2
    assert Path("here/evaluation/page.html").read_text().count("Limit missed: ") == missed


def test_your_own_model_and_images(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def net(hidden=4):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(256, hidden), nn.ReLU(), nn.Linear(hidden, 2))\n"
    )
    weights = {"1.weight": torch.full((4, 256), 1 / 256), "1.bias": torch.zeros(4)}
    weights |= {"3.weight": torch.tensor([[-1.0] * 4, [1.0] * 4]), "3.bias": torch.tensor([1.8, -1.8])}
    save_file(weights, "mine.safetensors")
    flags = ["--model", "mine:net", "--weights", "mine.safetensors", "--data", str(images), "--out", "found"]
    assert run(["evaluate", *flags, "--space", "t6", "--levels", "2", "--mean-accuracy"]) == 0
    found = json.loads(Path("found/evaluation.json").read_text())
    assert found["accuracy"] == 1.0 and found["variants"] == 128 and 0 <= found["mean_accuracy"] <= 1
    Path("more.toml").write_text('model = "mine:net"\nweights = "mine.safetensors"\n[model-arguments]\nhidden = 5\n')
    assert run(["evaluate", "--config", "more.toml", "--data", str(images)]) == 2
    assert "1.bias" in capsys.readouterr().err


def test_what_is_measured_of_ones_own_images_is_told(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that was trained elsewhere may have another order of classes, and nobody expects a fifth to be drawn."""
    monkeypatch.chdir(tmp_path)
    Path("own_net.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(256, 2))\n"
    )
    told = ["evaluate", "--model", "own_net:make", "--data", str(images / "train"), "--device", "cpu"]
    run(told)
    said = " ".join(capsys.readouterr().err.split())
    names = sorted(path.name for path in (images / "train").iterdir())
    assert "has no test part of its own, so the seed drew one:" in said and "--split train takes the rest" in said
    assert f"outputs are taken for the classes by name: 0 {names[0]}, 1 {names[1]}" in said
    count = sum(1 for _ in (images / "train").rglob("*.png"))
    assert run([*told, "--split", "all", "--out", "all"]) == 0 and "no test part" not in capsys.readouterr().err
    assert json.loads(Path("all/evaluation.json").read_text())["images"] == count
    run([*told[:4], str(images), *told[5:]])
    assert "no test part" not in capsys.readouterr().err
    assert run([*told[:4], str(images), *told[5:], "--split", "all"]) == 2
    assert "split: all goes with data that have no test part of their own" in capsys.readouterr().err


def test_a_config_file_with_flags_on_top(images: Path) -> None:
    Path("own.toml").write_text(
        f'data = "{images}"\nepochs = 9\nbatch-size = 16\n[augmenter]\nname = "worst-of"\nk = 2\n'
        '[[genes]]\nname = "rotation"\nlow = -45\nhigh = 45\nidentity = 0\nstep = 5\n'
    )
    assert run(["train", "--config", "own.toml", "--epochs", "1", "--out", "here", "--device", "cpu"]) == 0
    config = Run.config_of(Path("here"))
    assert config.epochs == 1 and config.augmenter.name == "worst-of" and config.chosen_space().genes[0].high == 45
    assert run(["train", "--config", "own.toml", "--augmenter", "random", "--epochs", "1", "--out", "there"]) == 0
    assert Run.config_of(Path("there")).augmenter.name == "random"


def test_resume_goes_on_and_another_models_checkpoint_is_refused(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(small(images, "--out", "here")) == 0
    whole = Run(Path("here")).weights_path.read_bytes()
    last, _ = newest(Path("here/checkpoints"))
    last.unlink()
    Path("here/model.safetensors").unlink()
    assert run(["train", "--resume", "here"]) == 0
    assert Run(Path("here")).weights_path.read_bytes() == whole
    capsys.readouterr()
    assert run(["train", "--resume", "here", "--epochs", "7"]) == 2
    assert "can't be given beside it" in capsys.readouterr().err
    text = Path("here/config.toml").read_text().replace('"demo-cnn"', '"lenet5"').replace("size = 16\n", "size = 32\n")
    Path("here/config.toml").write_text(text + "size = 32\n" if "size = 32" not in text else text)
    code, said = run(["train", "--resume", "here"]), capsys.readouterr().err
    assert code == 2 and "belongs to another model" in said


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    for command, expected in {"models": "resnet20", "data": "fashion-mini", "augmenters": "worst-of"}.items():
        assert run([command]) == 0
        assert expected in capsys.readouterr().out
    assert run([]) == 0 and "demo" in capsys.readouterr().out
    assert run(["--version"]) == 0 and capsys.readouterr().out.startswith("ukemi ")


@pytest.mark.parametrize("command", ["demo", "train", "evaluate", "data", "models", "augmenters"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run([command, "--help"])
    assert end.value.code == 0 and f"ukemi {command}" in capsys.readouterr().out


def test_demo_on_few_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--epochs", "1", "--out", "show", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "standard" in said and "worst-of" in said and str(Path("show/page.html").resolve()) in said
    assert {path.name for path in Path("show").iterdir()} == {*SHOWN, "page.html"}


def test_a_folder_with_a_run_is_not_written_over(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(small(images, "--out", "here")) == 0
    before = Path("here/log.jsonl").read_bytes()
    assert run(small(images, "--out", "here")) == 2
    assert "already holds a run" in capsys.readouterr().err and Path("here/log.jsonl").read_bytes() == before


def flat(images: Path) -> Path:
    """The same pictures without a test part."""
    for part in ("train", "test"):
        for path in (images / part).rglob("*.png"):
            target = images.parent / "flat" / path.parent.name / f"{part}-{path.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    return images.parent / "flat"


def test_a_runs_own_seed_decides_what_its_test_part_is(
    images: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = flat(images)
    assert run(small(folder, "--seed", "5", "--out", "here")) == 0
    seeds: list[int] = []
    load = brought.data_room.load
    monkeypatch.setattr(brought.data_room, "load", lambda *a, **k: (seeds.append(k["seed"]), load(*a, **k))[1])
    capsys.readouterr()
    assert run(["evaluate", "here"]) == 0 and seeds == [5]
    assert capsys.readouterr().err == ""
    assert run(["evaluate", "here", "--data", str(folder), "--out", "other"]) == 0
    said = capsys.readouterr().err  # other images than the run's own may be meant: a fifth of them is told
    assert "has no test part of its own, so the seed drew one:" in said and "taken for the classes" not in said


def test_labels_follow_the_classes_names(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(small(images, "--epochs", "8", "--out", "here")) == 0
    assert run(["evaluate", "here", "--out", "whole"]) == 0
    # light alone would be class 0; among the run's classes it is 1
    for part in ("train", "test"):
        (images / part / "dark").rename(images.parent / f"dark-{part}")
        (images / part / "light").rename(images / part / "light2")
    capsys.readouterr()
    (images / "train" / "dark").mkdir()
    (images / "test" / "dark").mkdir()
    for part in ("train", "test"):
        for path in list((images / part / "light2").iterdir())[:3]:
            path.rename(images / part / "dark" / path.name)
    assert run(["evaluate", "here", "--data", str(images), "--out", "other"]) == 2
    assert "class 'light2' is none of those that the model knows: dark, light" in capsys.readouterr().err


def test_a_run_does_not_need_the_weights_that_it_began_with(images: Path) -> None:
    assert run(small(images, "--out", "first")) == 0
    assert run(small(images, "--weights", "first/model.safetensors", "--out", "second")) == 0
    Path("first/model.safetensors").unlink()
    assert run(["evaluate", "second"]) == 0 and run(["train", "--resume", "second"]) == 0


def test_an_unfinished_training_is_measured_with_a_note_and_passes_no_gate(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(small(images, "--out", "here")) == 0
    few = ["--images", "6", "--device", "cpu"]
    capsys.readouterr()
    assert run(["evaluate", "here", *few, "--landscapes", "0"]) == 0 and "unfinished" not in capsys.readouterr().err
    assert json.loads(Path("here/evaluation/evaluation.json").read_text())["notes"] == []
    Path("here/model.safetensors").unlink()
    newest(Path("here/checkpoints"))[0].unlink()
    said = "epoch 1 of 2: a checkpoint of an unfinished training"
    for command, flags, name in (
        ("evaluate", ["--landscapes", "0"], "evaluation"),
        ("attack", ["--epsilon", "0.1", "--steps", "2"], "attack"),
        ("selfcheck", ["--steps", "4", "--queries", "4"], "selfcheck"),
        ("search", ["--generations", "1", "--seeds", "1", "--methods", "random"], "search"),
    ):
        assert run([command, "here", *few, *flags]) in (0, 1)
        assert capsys.readouterr().err.splitlines()[0] == f"ukemi: here: {said}"
        found = json.loads(Path("here", name, f"{name}.json").read_text())
        assert found["settings"]["unfinished"] == said and said in Path("here", name, "page.html").read_text()
        assert found.get("notes", [f"The weights are those of {said}."]) == [f"The weights are those of {said}."]
    assert run(["evaluate", "here", *few, "--fail-under", "accuracy=0", "--out", "gated"]) == 2
    assert "fail-under: here has no finished weights, only epoch 1 of 2" in capsys.readouterr().err
    assert not Path("gated").exists()


def test_images_that_a_run_was_trained_on_are_told_and_leave_its_evaluation_alone(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(small(images, "--out", "here")) == 0
    flags = ["here", "--device", "cpu", "--landscapes", "0"]
    assert run(["evaluate", *flags]) == 0
    before, said = Path("here/evaluation/evaluation.json").read_bytes(), "images that the run was trained on"
    capsys.readouterr()
    assert run(["evaluate", *flags, "--split", "train"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert Path("here/evaluation/evaluation.json").read_bytes() == before
    found = json.loads(Path("here/evaluation-train/evaluation.json").read_text())
    assert found["notes"] == [f"Measured on {said}, at least in part: on others it may do worse."]
    assert (
        found["settings"]["seen"] == said and found["notes"][0] in Path("here/evaluation-train/page.html").read_text()
    )
    other = ["--data", str(images / "train"), "--split", "all", "--out", "other"]
    assert run(["evaluate", *flags, *other]) == 0
    assert json.loads(Path("other/evaluation.json").read_text())["notes"] == []


def test_resuming_says_what_is_left_to_do(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(small(images, "--out", "here")) == 0
    weights = Path("here/model.safetensors").read_bytes()
    capsys.readouterr()
    assert run(["train", "--resume", "here"]) == 0
    assert "ukemi: here is finished: all 2 epochs are trained" in capsys.readouterr().err
    assert Path("here/model.safetensors").read_bytes() == weights
    Path("here/model.safetensors").unlink()
    for path in newest(Path("here/checkpoints")):
        path.write_bytes(path.read_bytes()[:-100])
    assert run(["train", "--resume", "here"]) == 2
    said = capsys.readouterr().err
    assert "resume: here holds no whole checkpoint" in said and "The one before it is used" not in said


@pytest.mark.parametrize("how", [Interrupted("go on with --resume there/runs/0123"), KeyboardInterrupt()])
@pytest.mark.parametrize("command", ["compare", "run"])
def test_a_comparison_that_is_stopped_says_how_it_goes_on(
    command: str, how: BaseException, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run inside it would be taken up by --resume, but it has no such flag."""

    def stopped(arguments: list[str]) -> int:
        raise how

    monkeypatch.setattr(f"ukemi.cli.{command}.run", stopped)
    assert run([command]) == 130
    assert capsys.readouterr().err == "ukemi: stopped; the same command goes on from here.\n"


def test_what_comes_next_can_be_pasted(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(small(images, "--out", "my runs/ä 1")) == 0
    assert "next:    ukemi evaluate 'my runs/ä 1'" in capsys.readouterr().out


@pytest.mark.parametrize(("flags", "code"), [(["models"], 0), (["nothing"], 2)])
def test_who_stops_reading_changes_no_exit_code(flags: list[str], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as gone:
        done = subprocess.run([sys.executable, "-m", "ukemi", *flags], stdout=gone, stderr=gone)
    assert done.returncode == code

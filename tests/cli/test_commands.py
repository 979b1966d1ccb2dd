"""The commands as a user calls them: what they write, what they say, and their exit codes."""

import errno
import json
import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from ukemi.cli import evaluate
from ukemi.cli.demo import SHOWN
from ukemi.cli.main import run
from ukemi.training import Run
from ukemi.training.checkpoints import newest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """An image folder: two classes, 24 grey images of 16 x 16 each."""
    generator = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 180)):
        for part, count in (("train", 24), ("test", 8)):
            folder = tmp_path / "pictures" / part / name
            folder.mkdir(parents=True)
            for at in range(count):
                pixels = (level + generator.integers(0, 40, (16, 16))).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{at}.png")
    return tmp_path / "pictures"


def small(images: Path, *more: str) -> list[str]:
    flags = ["train", "--data", str(images), "--epochs", "2", "--batch-size", "16", "--device", "cpu"]
    return [*flags, "--learning-rate", "1/50", *more]


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


ADVERSARIAL = ["--objective", "adversarial"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--objective.epsilon", "2"], "objective.epsilon: it should lie in 0 to 1 for linf, but 2 was given."),
        (["--objective.norm", "l2", "--objective.epsilon", "17"], "objective.epsilon: it should lie in 0 to 16 for l2"),
        (["--objective.norm", "l1", "--objective.epsilon", "300"], "it should lie in 0 to 256 for l1"),
        (["--objective.attack", "deepfool"], "objective.attack: an attack that takes epsilon and norm is needed"),
        (["--objective.attack", "square"], "but square takes no norm"),
        (["--objective.attack", "fgsm", "--objective.steps", "3"], "objective.steps: fgsm"),
    ],
)
def test_a_budget_that_does_not_fit_is_refused_before_anything_is_written(
    flags: list[str], said: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(small(images, "--out", "here", *ADVERSARIAL, *flags)) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and not Path("here").exists()


def bad_pictures(images: Path, kind: str) -> None:
    if kind == "corrupt":
        (images / "train" / "dark" / "x.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    elif kind == "mixed":
        Image.fromarray(np.zeros((9, 9), np.uint8)).save(images / "train" / "dark" / "x.png")
    elif kind == "one class":
        for part in ("train", "test"):
            (images / part / "light").rename(images.parent / f"light-{part}")
    elif kind == "empty":
        (images.parent / "nothing").mkdir()


@pytest.mark.parametrize(
    ("kind", "folder", "said"),
    [
        ("corrupt", "pictures", "x.png"),
        ("mixed", "pictures", "size"),
        ("one class", "pictures", "class"),
        ("empty", "nothing", "nothing"),
    ],
)
def test_bad_pictures(kind: str, folder: str, said: str, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad_pictures(images, kind)
    code, err = run(small(images.parent / folder, "--out", "here")), capsys.readouterr().err
    assert code == 2 and said in err and err.startswith("ukemi: data") and err.count("\n") == 1
    assert not Path("here").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["frobnicate"], "known are demo, train"),
        (["train", "--data", "nothing"], "data: 'nothing' is neither a known set"),
        (["train", "--model", "nothing"], "model: 'nothing' is not a known network"),
        (["train", "--model", "nothing:net"], "can't be imported"),
        (["train", "--augmenter", "nothing"], "augmenter: 'nothing' is none of"),
        (["train", "--augmenter", "worst-of", "--augmenter.k", "0"], "augmenter.k: should be greater than or equal"),
        (["train", "--smoothing", "9/8"], "smoothing: should be less than 1, but '9/8'"),
        (["train", "--robust-every", "1", "--validation", "0"], "validation should be above 0"),
        (["train", "--drops", "3"], "drops belong to the step schedule"),
        (["train", "--autotune"], "autotune goes with compile"),
        (["train", "--config", "nothing.toml"], "there is no file nothing.toml"),
        (["train", "--config", "bad.toml"], "is not valid TOML"),
        (["train", "--config", "unknown.toml"], "epoch is not a known field; known are data"),
        (["train", "--config", "range.toml"], "gene 'rotation': identity should lie in"),
        (["train", "--resume", "nothing"], "holds no run"),
        (["train", "--device", "cuda:99"], "device: 'cuda:99' is not there"),
        (["train", "--space", "t9"], "space: 't9' is none of"),
        (["evaluate"], "needs a run folder, or --model"),
        (["evaluate", "--model", "demo-cnn", "--data", "fashion-mini"], "give --weights"),
        (["evaluate", "--model", "demo-cnn", "--weights", "x.safetensors", "--data", "fashion-mini"], "no file"),
        (["evaluate", "nothing", "--fail-under", "robust=2"], "fail-under: a limit is a number from 0 to 1"),
        (["evaluate", "nothing", "--fail-under", "mean=0.2"], "mean needs --mean-accuracy"),
        (["train", "--data", "nan.npz"], "NaN or infinite"),
        (["train", "--data", "wide.npz"], "pixels should lie in [0, 1]"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path("bad.toml").write_text("= 3")
    Path("unknown.toml").write_text("epoch = 3")
    Path("range.toml").write_text('[[genes]]\nname="rotation"\nlow=0\nhigh=30\nidentity=40\nstep=1\n')
    for name, value in (("nan", np.nan), ("wide", 2.0)):
        np.savez(f"{name}.npz", images=np.full((20, 8, 8), value, np.float32), labels=np.arange(20) % 2)
    before = sorted(tmp_path.rglob("*"))
    code, err = run(flags), capsys.readouterr().err
    assert code == 2 and said in err and err.count("\n") == 1 and "http" not in err and "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("flags", [["train", "--epoch", "3"], ["models", "--x"], ["train", "--optimiser", "x"]])
def test_a_wrong_flag_ends_with_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, err = run(flags), capsys.readouterr().err
    assert code == 2 and err.count("\n") == 1 and flags[1].strip("-") in err


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
    load = evaluate.data_room.load
    monkeypatch.setattr(evaluate.data_room, "load", lambda *a, **k: (seeds.append(k["seed"]), load(*a, **k))[1])
    assert run(["evaluate", "here"]) == 0 and seeds == [5]


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


def test_a_gene_with_a_kernel_from_a_file(images: Path, tmp_path: Path) -> None:
    (tmp_path / "mist.py").write_text("def fog(images, values):\n    return images + values[:, None, None, None]\n")
    Path("fog.toml").write_text(
        f'data = "{images}"\nepochs = 1\nbatch-size = 16\naugmenter = "random"\n[[genes]]\n'
        'name = "fog"\nlow = 0\nhigh = 0.5\nidentity = 0\nstep = 0.1\nkernel = "mist:fog"\n'
    )
    assert run(["train", "--config", "fog.toml", "--out", "here", "--device", "cpu"]) == 0
    assert Run.config_of(Path("here")).genes[0].kernel == "mist:fog"
    assert run(["train", "--resume", "here"]) == 0
    assert run(["evaluate", "here"]) == 0
    assert json.loads(Path("here/evaluation/evaluation.json").read_text())["variants"] == 3
    assert run(["train", "--config", "fog.toml", "--space", "t2", "--out", "there", "--device", "cpu"]) == 0
    assert Run.config_of(Path("there")).chosen_space().name == "t2"


def test_a_run_does_not_need_the_weights_that_it_began_with(images: Path) -> None:
    assert run(small(images, "--out", "first")) == 0
    assert run(small(images, "--weights", "first/model.safetensors", "--out", "second")) == 0
    Path("first/model.safetensors").unlink()
    assert run(["evaluate", "second"]) == 0 and run(["train", "--resume", "second"]) == 0


def test_another_persons_code_fails_with_2_and_says_where(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wild.py").write_text(
        "from torch import nn\n"
        "class Boom(nn.Module):\n    def forward(self, x):\n        raise KeyError('boom')\n"
        "def fails():\n    raise ZeroDivisionError('no')\n"
        "def frozen():\n    return nn.Sequential(nn.Flatten(), nn.Linear(256, 2)).requires_grad_(False)\n"
    )
    (tmp_path / "broken.py").write_text("def net(:\n")
    expected = {
        "wild:Boom": "KeyError: 'boom', wild.py line 4",
        "wild:fails": "ZeroDivisionError: no, wild.py line 6",
        "wild:frozen": "no parameter that can be trained",
        "broken:net": "SyntaxError",
        ":net": "package.module:name",
        ".x:net": "package.module:name",
    }
    for name, said in expected.items():
        assert run(small(images, "--model", name, "--out", "here")) == 2, name
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1 and not Path("here").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--weights", "x.pt"], "weights: a run brings its own model"),
        (["--junit", "x.xml"], "--fail-under is needed beside it"),
        (["--junit", ".", "--fail-under", "robust=0"], "is a folder"),
        (["--out", "file"], "is a file"),
        (["--out", "file/sub"], "is a file; file/sub can't be made in it."),
        (["--junit", "file/x.xml", "--fail-under", "robust=0"], "junit: file is a file; a folder is needed."),
        (["--out", ""], "out: a value is needed, but '' was given."),
        (["--grid", "nope"], "grid: 'nope' is none of"),
        (["--grid", "t6-2187", "--space", "t3"], "grid: t6-2187 brings its own space; give --grid or a space"),
    ],
)
def test_what_can_be_known_before_is_said_before(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("")
    assert run(["evaluate", "anything", *flags]) == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "attack", "selfcheck", "search"])
def test_what_can_not_be_written_is_said_before(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the run is looked for: there is none."""

    def refuse(*, dir: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("ukemi.training.checkpoints.TemporaryFile", refuse)
    epsilon = ["--epsilon", "0.1"] if command in ("attack", "selfcheck") else []
    assert run([command, "nothing", "--out", "there", *epsilon]) == 2
    assert capsys.readouterr().err == "ukemi: out: there can't be written (Read-only file system).\n"


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


def test_a_loss_that_is_not_finite_promises_no_weights(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(small(images, "--out", "here", "--learning-rate", "1e30")) == 3
    said = capsys.readouterr().err
    assert "is not finite" in said and "are left out" in said and "step before" not in said
    assert not newest(Path("here/checkpoints"))


def test_a_run_needs_a_folder(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    for out, said in (
        ("file", "out: file is a file; a folder is needed."),
        ("file/sub", "file/sub can't be made in it."),
        ("", "out: a value is needed, but '' was given."),
    ):
        assert run(small(images, "--out", out)) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1 and not Path("config.toml").exists()


@pytest.mark.parametrize("command", ["evaluate", "attack", "selfcheck", "search"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["demo-cnn", "--mean", "0.9", "--std", "0.01"], "mean: demo-cnn brings its normalisation with its weights"),
        (["demo-cnn", "--mean", "0.9"], "mean: demo-cnn brings its normalisation with its weights"),
        (["mine"], "model: 'mine' is not a known network (known are"),
    ],
)
def test_what_a_known_network_does_not_take(
    command: str, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--data", "fashion-mini", "--model", *flags]
    assert run([command, *given, *(["--epsilon", "0.1"] if command == "attack" else [])]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


@pytest.mark.parametrize("flag", ["--learning-rate", "--checkpoint-minutes", "--weight-decay"])
def test_infinite_numbers_are_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", flag, "inf"]) == 2 and "finite number" in capsys.readouterr().err


def test_one_image_can_be_measured_but_not_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pixels, labels = np.zeros((9, 8, 8), np.uint8), np.arange(9) % 2
    np.savez("one.npz", x_train=pixels[:8], y_train=labels[:8], x_test=pixels[:1], y_test=labels[:1])
    flags = ["--data", "one.npz", "--epochs", "1", "--batch-size", "2", "--validation", "1/8", "--device", "cpu"]
    assert run(["train", *flags, "--out", "here"]) == 0 and run(["evaluate", "here"]) == 0
    np.savez("two.npz", x_train=pixels[:2], y_train=labels[:2], x_test=pixels[:2], y_test=labels[:2])
    capsys.readouterr()
    assert run(["train", "--data", "two.npz", "--validation", "0.5", "--out", "there"]) == 2
    assert "at least two are needed" in capsys.readouterr().err and not Path("there").exists()


def test_labels_that_do_not_fit_the_head(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "short.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(256, 1))\n"
    )
    assert run(small(images, "--model", "short:net", "--out", "here")) == 2
    assert "model's head" in capsys.readouterr().err and not Path("here").exists()


def test_a_full_disk_is_one_sentence(
    images: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = os.fsync
    calls = [0]

    def full(handle: int) -> None:
        calls[0] += 1
        if calls[0] > 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flushed(handle)

    monkeypatch.setattr(os, "fsync", full)
    code, err = run(small(images, "--out", "here")), capsys.readouterr().err
    monkeypatch.setattr(os, "fsync", flushed)
    assert code == 2 and "No space left on device" in err and "Traceback" not in err
    assert Run(Path("here")).last_checkpoint()[0] is not None


OWN_PARTS = """
import torch

def least(fitness_NK, index_N, keep, *, seed, epoch):
    return fitness_NK.argsort(dim=1, stable=True)[:, :keep]

def dark(scored):
    return -scored.images.flatten(1).sum(1)
"""


def test_own_parts_of_a_search_from_flags_and_from_toml(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_parts.py").write_text(OWN_PARTS)
    Path("mine.toml").write_text(
        'epochs = 1\nmodel = "lenet5"\nbatch-size = 1000\n[augmenter]\nname = "sensei"\nwarmup = 0\npopulation = 2\n'
        'fitness = "my_parts:dark"\n[objective]\nname = "consistency"\nkind = "l2"\n'
    )
    flags = ["--augmenter.selection", "my_parts:least", "--out", "r", "--device", "cpu", "--objective.weight", "1/2"]
    assert run(["train", "--config", "mine.toml", *flags]) == 0
    config = Run.config_of(Path("r"))
    assert config.augmenter.fitness == "my_parts:dark" and config.augmenter.selection == "my_parts:least"  # type: ignore[union-attr]
    assert config.objective.weight == 0.5 and config.objective.kind == "l2"  # type: ignore[union-attr]
    capsys.readouterr()


def test_a_part_that_only_training_uses_need_not_be_there_to_measure(
    images: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gone_parts.py").write_text(OWN_PARTS + "from ukemi import T2 as SPACE\n")
    own = ["--augmenter", "worst-of", "--augmenter.k", "2", "--augmenter.fitness", "gone_parts:dark"]
    assert run(small(images, *own, "--space", "gone_parts:SPACE", "--out", "r")) == 0
    Path("gone_parts.py").unlink()
    monkeypatch.delitem(sys.modules, "gone_parts")
    capsys.readouterr()
    few = ["--images", "4", "--device", "cpu"]
    assert run(["evaluate", "r", *few, "--space", "t2"]) == 0
    assert run(["evaluate", "r", *few, "--grid", "t2-27"]) == 0
    assert run(["attack", "r", *few, "--attack", "fgsm", "--epsilon", "0.1"]) == 0
    found = json.loads(Path("r/evaluation/evaluation.json").read_text())
    assert found["settings"]["augmenter"] == "worst-of" and found["variants"] == 27
    flags = ["--generations", "1", "--seeds", "1", "--methods", "random"]
    assert run(["search", "r", *few, *flags, "--space", "t2"]) == 0
    capsys.readouterr()
    for needs in (["evaluate", "r", *few], ["train", "--resume", "r"]):
        assert run(needs) == 2 and "'gone_parts:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--augmenter", "sensai"], "augmenter: 'sensai' is none of standard, random, worst-of, sensei, sensei-sa"),
        (["--objective", "hope"], "objective: 'hope' is none of cross-entropy, consistency, mixup"),
        (["--augmenter", "sensei", "--augmenter.fitness", "hope"], "fitness: 'hope' is not known"),
        (
            ["--augmenter", "sensei", "--augmenter.crossing", "no.such:one"],
            "augmenter.crossing: 'no.such:one' can't be",
        ),
        (["--augmenter", "ukemi", "--augmenter.population", "1"], "augmenter.population: should be greater than or"),
        (["--average", "1"], "average: should be less than 1"),
        (["--data", "no.such:data"], "data: 'no.such:data' can't be imported"),
    ],
)
def test_wrong_parts_are_one_sentence(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *flags, "--out", "r"]) == 2
    told = capsys.readouterr().err
    assert said in " ".join(told.split()) and "Traceback" not in told and not Path("r").exists()


def test_the_list_of_augmenters_names_presets_fitness_and_objectives(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["augmenters"]) == 0
    said = capsys.readouterr().out
    for name in ("sensei-released", "ukemi", "neuron-coverage", "consistency", "--objective.weight"):
        assert name in said

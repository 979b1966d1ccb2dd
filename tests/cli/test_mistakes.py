"""What a user may get wrong: one sentence, exit code 2, and nothing written."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from command_samples import small
from PIL import Image

from ukemi.cli.main import run
from ukemi.training import Run
from ukemi.training.checkpoints import newest

pytestmark = pytest.mark.usefixtures("elsewhere")


ADVERSARIAL = ["--objective", "adversarial"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--objective.epsilon", "2"], "objective.epsilon: it should lie in 0 to 1 for linf, but 2 was given."),
        (["--objective.norm", "l2", "--objective.epsilon", "17"], "objective.epsilon: it should lie in 0 to 16 for l2"),
        (["--objective.norm", "l1", "--objective.epsilon", "300"], "it should lie in 0 to 256 for l1"),
        (["--objective.attack", "deepfool", "--objective.epsilon", "0.1"], "objective.epsilon: deepfool"),
        (["--objective.attack", "square", "--objective.norm", "l2"], "objective.norm: square"),
        (["--objective.attack", "square", "--objective.epsilon", "2"], "it should lie in 0 to 1 for linf"),
        (["--objective.attack", "fgsm", "--objective.steps", "3"], "objective.steps: fgsm"),
        (["--objective.attack", "deepfool", "--objective.norm", "l1"], "objective.norm: l2 or linf is needed"),
    ],
)
def test_a_budget_that_does_not_fit_is_refused_before_anything_is_written(
    flags: list[str], said: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(small(images, "--out", "here", *ADVERSARIAL, *flags)) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and not Path("here").exists()


@pytest.mark.parametrize("command", ["attack", "evaluate", "selfcheck", "slice"])
def test_a_file_in_the_place_of_a_run_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.safetensors").touch()
    assert run([command, "model.safetensors", *(["--epsilon", "0.1"] if command == "attack" else [])]) == 2
    assert capsys.readouterr().err == "ukemi: run: model.safetensors is a file; a run folder is needed.\n"


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
        (["evalaute"], "'evalaute' is no command of ukemi; did you mean evaluate?"),
        (["train", "--data", "nothing"], "data: 'nothing' is neither a known set"),
        (["train", "--model", "nothing"], "model: 'nothing' is neither a known network"),
        (["train", "--model", "nothing:net"], "can't be imported"),
        (["train", "--model", "my/nets.py:net"], "should name a module, not its file: my.nets:net."),
        (["train", "--model", "my/nets:net"], "should name a module, not its file: my.nets:net."),
        (
            ["train", "--augmenter", "sensei", "--augmenter.k", "3"],
            "--augmenter.k is no flag of ukemi train: --augmenter sensei has population, ",
        ),
        (["train", "--augmenter", "sensei", "--augmenter.skp", "loss"], "; --augmenter.skip is."),
        (["train", "--augmenter", "nothing"], "augmenter: 'nothing' is none of"),
        (["train", "--augmenter", "worst-of", "--augmenter.k", "0"], "augmenter.k: should be greater than or equal"),
        (["train", "--smoothing", "9/8"], "smoothing: should be less than 1, but '9/8'"),
        (["train", "--robust-every", "1", "--validation", "0"], "validation should be above 0"),
        (["train", "--drops", "3"], "drops belong to the step schedule"),
        (["train", "--autotune"], "autotune goes with compile"),
        (["train", "--config", "nothing.toml"], "there is no file nothing.toml"),
        (["train", "--config", "bad.toml"], "is not valid TOML"),
        (["train", "--config", "unknown.toml"], "unheard is not a known field; known are data"),
        (["train", "--config", "near.toml"], "epoch is not a known field; did you mean epochs?"),
        (["train", "--config", "range.toml"], "gene 'rotation': identity should lie in"),
        (["train", "--config", "number.toml"], "augmenter: a name or a table is needed, but 3 was given."),
        (["train", "--config", "truth.toml"], "epochs: should be a number, but True was given."),
        (["train", "--config", "list.toml"], "out: should be a path, but ['a'] was given."),
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
    Path("unknown.toml").write_text("unheard = 3")
    Path("near.toml").write_text("epoch = 3")
    for name, text in (("number", "augmenter = 3"), ("truth", "epochs = true"), ("list", 'out = ["a"]')):
        Path(f"{name}.toml").write_text(text)
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


def test_another_persons_code_fails_with_2_and_says_where(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wild.py").write_text(
        "from torch import nn\n"
        "class Boom(nn.Module):\n    def forward(self, x):\n        raise KeyError('boom')\n"
        "def fails():\n    raise ZeroDivisionError('no')\n"
        "def frozen():\n    return nn.Sequential(nn.Flatten(), nn.Linear(256, 2)).requires_grad_(False)\n"
        "class Answers(nn.Linear):\n    def __init__(self):\n        super().__init__(256, 2)\n"
        "    def forward(self, x):\n        return super().forward(x.flatten(1))\n"
        "    def train(self, mode=True):\n        raise NotImplementedError('no')\n"
        "def answers():\n    net = Answers()\n    net.training = False\n    return net\n"
    )
    (tmp_path / "broken.py").write_text("def net(:\n")
    expected = {
        "wild:Boom": "KeyError: 'boom', wild.py line 4",
        "wild:fails": "ZeroDivisionError: no, wild.py line 6",
        "wild:frozen": "no parameter that can be trained",
        "wild:answers": "can't be set to training (NotImplementedError: no, wild.py line 15); train the network that",
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


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--weights", "none.pt"], "weights: there is no file none.pt."),
        (["--weights", "net.onnx"], "weights: net.onnx should end in .safetensors"),
        (["--mean", "0.5", "--std", "0"], "std: numbers above 0"),
        (
            ["--split", "train", "test"],
            "run: test is taken for a run folder, and --model torch.nn:Identity stands beside",
        ),
    ],
)
def test_what_is_wrong_with_a_model_is_said_before_images_are_read(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", "--model", "torch.nn:Identity", "--data", "no-such-folder", *flags]) == 2
    assert f"ukemi: {said}" in capsys.readouterr().err


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


def test_labels_that_count_from_1_are_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("ones.npz", images=np.zeros((20, 8, 8), np.uint8), labels=1 + np.arange(20) % 2)
    Path("two.py").write_text("from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))\n")
    assert run(["evaluate", "--model", "two:net", "--data", "ones.npz", "--out", "there"]) == 2
    said = capsys.readouterr().err
    assert "3 classes, but 2 logits; no image has label 0, and labels count from 0." in said
    assert run(small(Path("ones.npz"), "--out", "here")) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "labels count from 0, but none of 14 training images has label 0." in said


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
        (["mine"], "model: 'mine' is neither a known network nor your own"),
        (["resnet19"], "; did you mean resnet18?"),
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


PROBABLE = """
from torch import nn
def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 3), nn.Softmax(1))
"""


def test_probabilities_are_not_trained_on_and_told_where_they_are_measured(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "probable.py").write_text(PROBABLE)
    assert run(small(images, "--model", "probable:net", "--out", "here")) == 2
    assert "its outputs look like probabilities" in capsys.readouterr().err and not Path("here").exists()
    assert run(["search", "--model", "probable:net", "--data", str(images), "--out", "here"]) == 2
    assert "its outputs look like probabilities" in capsys.readouterr().err and not Path("here").exists()
    assert run(["evaluate", "--model", "probable:net", "--data", str(images)]) == 0
    said = capsys.readouterr()
    notes = json.loads(Path("evaluation/evaluation.json").read_text())["notes"]
    assert [note for note in notes if "guessing" not in note] == notes[-1:]
    assert "gives probabilities, not logits" in notes[-1]
    assert "it has 3 outputs for 2 classes; the others are never right." in said.err


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


@pytest.mark.parametrize(("warmup", "told"), [("2", True), ("1", False)])
def test_a_search_that_never_begins_is_told(
    warmup: str, told: bool, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--augmenter", "sensei", "--augmenter.population", "2", "--augmenter.warmup", warmup]
    assert run(small(images, "--out", "here", *flags)) == 0
    assert ("augmenter.warmup: nothing is searched" in capsys.readouterr().err) == told

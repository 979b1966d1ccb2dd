"""`ukemi compare`, `ukemi recipes` and `ukemi run` as a user calls them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ukemi.cli.main import run
from ukemi.cli.parse import parse
from ukemi.comparing import CompareConfig
from ukemi.training.setup import machine

SMALL = ["--data", "small.npz", "--train", "epochs=1", "batch-size=32", "--images", "16", "--grids", "t2-27"]
SMALL += ["--device", "cpu", "--seeds", "2"]
HEAD = 'paper = "own"\ntable = "Table 9"\nabout = "Mine"\nminutes = { small = 1, full = 1 }\n'
TOML = """
title = "Own"
seeds = 1
images = 20
grids = ["t2-27"]
baseline = "worst"

[train]
epochs = 1
batch-size = 32
space = "t2"
data = "small.npz"

[[cases]]
name = "smooth"
smoothing = 0.1

[[methods]]
name = "random"
augmenter = "random"

[[methods]]
name = "worst"
augmenter = { name = "worst-of", k = 2 }
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    pixels = np.random.default_rng(0).integers(0, 256, (128, 12, 12)).astype(np.uint8)
    labels = np.arange(128) % 4
    np.savez("small.npz", x_train=pixels[:96], y_train=labels[:96], x_test=pixels[96:], y_test=labels[96:])


FAILS = """
import ukemi
class Fails(ukemi.Augmenter):
    def __init__(self, space, *, seed=0, flips=False):
        super().__init__(seed=seed, flips=flips)
    def augment(self, model, images, labels, index, epoch):
        if self.seed or epoch < 1:
            return images
        raise RuntimeError("it broke")
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_where_a_run_fails_the_others_are_told_of_all_the_same(jobs: int, capsys: pytest.CaptureFixture[str]) -> None:
    Path("fails.py").write_text(FAILS)
    flags = ["compare", "--methods", "standard", "own,of=fails:Fails", *SMALL, "--train", "epochs=2", "batch-size=32"]
    assert run([*flags, "--jobs", str(jobs)]) == (70 if jobs == 1 else 2)
    said = capsys.readouterr()
    assert (
        "1 run failed; the same command tries again." in said.out
        and "1 failed" in said.out
        and "1 of 4 runs failed" in " ".join(said.err.split())
    )
    assert json.loads(Path("comparison/comparison.json").read_text())["open_runs"] == 1
    assert Path("comparison/page.html").exists() and ",standard,1," in Path("comparison/table.csv").read_text()


def test_where_a_training_stops_the_answer_says_so_and_the_terminal_why(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.toml").write_text(TOML.replace('augmenter = "random"', 'augmenter = "random"\nlearning-rate = 1e30'))
    assert run(["compare", "--config", "own.toml", "--device", "cpu"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "worst, the only method that finished, has" in said and " 1 run stopped before the end. " in said
    assert "smooth, random, seed 0 stopped: the loss at epoch 0" in said


def test_where_every_run_fails_nothing_is_written() -> None:
    Path("breaks.py").write_text(FAILS.replace("self.seed or ", ""))
    assert run(["compare", "--methods", "own,of=breaks:Fails", *SMALL, "--train", "epochs=2", "batch-size=32"]) == 70
    assert [path.name for path in Path("comparison").iterdir()] == ["runs"]


def test_flags_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["compare", "--methods", "standard", "worst-of,k=2", *SMALL, "--attacks", "fgsm,epsilon=4/255"]
    assert run([*flags, "--attack-images", "20"]) == 0
    said = capsys.readouterr().out
    assert "holds best" in said and "worst-of,k=2" in said and max(map(len, said.splitlines())) <= 80
    found = json.loads(Path("comparison/comparison.json").read_text())
    assert found["methods"] == ["standard", "worst-of,k=2"] and found["baseline"] == "standard"
    assert found["settings"]["train"] == {"epochs": 1, "batch_size": 32} and found["open_runs"] == 0
    assert found["command"].startswith("ukemi compare --methods standard worst-of,k=2 --data small.npz --train")
    measures = found["cases"][0]["methods"]["standard"].keys()
    assert {"accuracy", "robust", "attacked", "robustness", "seconds"} <= measures
    assert len(list(Path("comparison/runs").iterdir())) == 4
    assert not list(Path("comparison/runs").glob("*/checkpoints"))  # a finished run keeps its weights alone


def test_a_toml_file_and_flags_on_top(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.toml").write_text(TOML)
    assert run(["compare", "--config", "own.toml", "--out", "there", "--device", "cpu", "--images", "10"]) == 0
    assert "one seed" in capsys.readouterr().out
    found = json.loads(Path("there/comparison.json").read_text())
    assert found["baseline"] == "worst" and found["cases"][0]["case"] == "smooth" and found["settings"]["images"] == 10
    assert found["cases"][0]["pairs"][0]["t_interval_95_over_seeds"] is None
    told = {"name": "smooth", "grids": [], "images": None, "printed": {}, "smoothing": 0.1}
    assert found["settings"]["cases"] == [told]
    for path in Path("there/runs").glob("*/config.toml"):  # what stands in a case reaches its trainings
        assert {"smoothing = 0.1", "batch_size = 32"} <= set(path.read_text().splitlines())
    assert "Own" in Path("there/page.html").read_text()
    finished = f"Finished on {machine('cpu')['device']}, torch {torch.__version__}."
    assert finished in Path("there/table.md").read_text() and finished in Path("there/page.html").read_text()


def test_settings_of_a_flag_lie_on_those_of_the_file() -> None:
    Path("own.toml").write_text(TOML)
    told = parse(CompareConfig, ["--config", "own.toml", "--train", "epochs=7", "--seeds", "2"], "compare")
    assert told.train == {"epochs": 7, "batch_size": 32, "space": "t2", "data": "small.npz"} and told.seeds == 2
    assert [case.settings() for case in told.cases] == [{"smoothing": 0.1}]


def test_a_narrow_table_names_its_methods_and_says_what_it_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    methods, flags = ("standard", "random", "worst-of,k=2"), [*SMALL, "--attacks", "fgsm,epsilon=4/255"]
    assert run(["compare", "--methods", *methods, *flags, "--attack-images", "8", "--grids", "t2-27", "t3-81"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[next(at for at, line in enumerate(lines) if line.split()[:2] == ["method", "n"]) :]
    assert [line.split()[0] for line in table[2:5]] == list(methods) and max(map(len, lines)) <= 80
    assert "deviations in table.md" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train = 3", "train: should be a table of settings, but 3 was given"),
        ('methods = [{ name = "b", augmenter = 3 }]', "methods.b.augmenter: a name or a table is needed, but 3"),
        ('methods = [{ name = "b", augmenter = ["sensei"] }]', "methods.b.augmenter: a name or a table is needed"),
        ('[[cases]]\nmodle = "demo-cnn"', "cases.case.modle is no setting of `ukemi train`"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.toml").write_text(text)
    code, err = run(["compare", "--config", "own.toml"]), " ".join(capsys.readouterr().err.split())
    assert code == 2 and said in err and "Traceback" not in err and not Path("comparison").exists()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_folder_that_cant_be_made_shows_before_any_training(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert run(["compare", *SMALL, "--out", "file/there", "--runs", "runs", "--jobs", jobs]) == 2
    assert "out: file/there can't be made" in " ".join(capsys.readouterr().err.split())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "--methods", "luck"], "methods: 'luck' is none of standard"),
        (["compare", "--train", "epochs"], "train: 'epochs' should have the form SETTING=VALUE"),
        (["compare", "--train", "speed=3"], "train.speed is no setting of `ukemi train`"),
        (["compare", "--data", "nothing"], "data: 'nothing' is neither a known set"),
        (["compare", "--models", "nothing"], "model"),
        (["compare", "--device", "cuda:99"], "device: 'cuda:99' is not there"),
        (["compare", "--attacks", "fgsm"], "epsilon: fgsm needs it"),
        (["compare", "--out", "file"], "out: file is a file"),
        (["run"], "the name of a recipe is needed"),
        (["run", "nothing"], "recipe: 'nothing' is none of augmentation-exp1"),
        (["run", "nothing.toml"], "there is no file nothing.toml"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("")
    code, err = run(arguments), capsys.readouterr().err
    assert code == 2 and said in err and err.count("\n") == 1 and "Traceback" not in err
    assert not Path("comparison").exists() and not Path("runs").exists()


def test_nothing_finished_because_all_stopped_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["compare", "--methods", "standard", *SMALL, "--train", "epochs=3", "batch-size=16", "learning-rate=1e30"])
        == 3
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "No run finished: standard with seed 0 on small" in said and "finite" in said
    assert "robust:" not in said and "passes" not in said


def test_a_method_that_stopped_beside_one_that_finished_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "--methods", "standard", "random,learning-rate=1e30", *SMALL]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "standard, the only method that finished, has" in said and "2 stopped" in said


def test_data_that_are_all_absent_are_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert run(["compare", "--data", "svhn", "cifar10", "--data-folder", "empty", "--seeds", "1"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("ukemi: data: the data set svhn is not there") and "cifar10" in err and err.count("\n") == 1
    assert not Path("comparison").exists()


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes"]) == 0
    said = capsys.readouterr().out
    assert "sensei-exp2" in said and "paper 1 SENSEI, Table 2" in said and "ukemi run NAME --size small" in said
    assert max(map(len, said.splitlines())) <= 80 and ".0\u202f" not in said
    for command in ("augmenters", "data"):
        assert run([command]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_recipe_of_ones_own_runs(capsys: pytest.CaptureFixture[str]) -> None:
    head = HEAD + "\n[common]\nseeds = 3\n"
    tables = TOML.replace('title = "Own"\nseeds = 1\n', "")
    for table in ("train", "cases", "methods"):
        tables = tables.replace(f"[{table}]", f"[common.{table}]")
    Path("mine.toml").write_text(f"{head}{tables}\n[small]\n[full]\n")
    assert run(["run", "mine.toml", "--seeds", "1", "--device", "cpu", "--equal-cost"]) == 0
    said = capsys.readouterr().out
    assert "Paper own, Table 9; recipe mine, size small." in said
    found = json.loads(Path("runs/recipes/mine-small/comparison.json").read_text())
    epochs = {name: one["epochs"]["mean"] for name, one in found["cases"][0]["methods"].items()}
    assert epochs == {"random": 2, "worst": 1} and found["title"] == "Mine"
    assert len(list(Path("runs/recipes/runs").iterdir())) == 2

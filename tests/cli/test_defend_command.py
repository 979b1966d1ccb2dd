"""`ukemi defend` and `ukemi repair uncertainty`: what they write, what they say, and their exit codes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ukemi.cli.enhance import _table
from ukemi.cli.main import run
from ukemi.data import load
from ukemi.repairs import Enhanced
from ukemi.repairs.gains import Standing
from ukemi.reports.words import THIN
from ukemi.training import Run, TrainConfig, train
from ukemi.training.sets import read_set, write_set
from ukemi.training.setup import trained_model

GIVEN = ["--pcs-thresholds", "0.5", "--vr-thresholds", "0.1", "--device", "cpu", "--passes", "10"]
FEW = ["--images", "80", "--validation-images", "120", "--attacks", "fgsm", "--epsilon", "0.1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with sets from the test and the training part."""
    folder = tmp_path_factory.mktemp("defend")
    told = TrainConfig(model="lenet5", epochs=2, batch_size=100, learning_rate=0.05, out=folder / "run", device="cpu")
    train(told, quiet=True)
    for split in ("test", "train"):
        flags = ["--pattern", "LH", *GIVEN, "--population", "12", "--generations", "6", "--images", "40"]
        out = ["--out", str(folder / split), "--split", split, "--epsilon", "0.2"]
        assert run(["generate", str(folder / "run"), *flags, *out]) == 0
    return folder


def test_defend_writes_a_table_numbers_and_a_page(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    capsys.readouterr()
    sets = ["--sets", str(made / "test/generated.safetensors"), "--out", str(tmp_path / "d")]
    assert run(["defend", str(made / "run"), *GIVEN, *FEW, *sets]) == 0
    said = capsys.readouterr().out
    table = said.split("numbers:")[0]
    assert max(map(len, table.splitlines())) <= 80
    for words in ("benign", "attacked", "generated", "jpeg", "mutation-testing", "uncommon"):
        assert words in table
    found = json.loads((tmp_path / "d/defences.json").read_text())
    rows = {row["defence"]: row for row in found["defences"]}
    assert len(rows) == 12 and not found["left_out"] and found["schema"] == 1
    success = int(read_set(made / "test/generated.safetensors").success.sum())
    assert found["sources"]["generated"] == {"images": success, "fooling": success}
    assert set(found["sources"]) == {"generated", "fgsm"}
    assert sum(found["patterns"].values()) == sum(one["fooling"] for one in found["sources"].values())
    for row in rows.values():
        assert 0 <= row["false_positives"] < 0.6 and set(row["passes"]) == {"generated", "fgsm"}
        assert row["kind"] == ("detector" if row["defence"] in list(rows)[7:] else "hardening")
    page = (tmp_path / "d/page.html").read_text()
    assert "By pattern of uncertainty" in page and "http" not in page.split("<body")[1] and "nan" not in page


def test_sets_are_never_taken_for_each_other_nor_for_the_benign_images(made: Path, tmp_path: Path) -> None:
    test = read_set(made / "test/generated.safetensors")
    paths = [
        tmp_path / name for name in ("a/g.safetensors", "b/g.safetensors", "c/a.safetensors", "benign.safetensors")
    ]
    for path in paths:
        write_set(path, test)
    own = ["--defences", "bit-depth", "--out", str(tmp_path / "d"), "--sets", *map(str, paths)]
    assert run(["defend", str(made / "run"), *GIVEN, *FEW, *own]) == 0
    found = json.loads((tmp_path / "d/defences.json").read_text())
    fooling = {"images": int(test.success.sum()), "fooling": int(test.success.sum())}
    assert {name: one for name, one in found["sources"].items() if name != "fgsm"} == dict.fromkeys(
        (str(paths[0]), "b", str(paths[2]), str(paths[3])), fooling
    )
    assert found["defences"][0]["false_positives"] is not None


def test_of_each_set_at_most_so_many_are_taken(made: Path, tmp_path: Path) -> None:
    """A small set is taken whole, and so is what is attacked here."""
    test = read_set(made / "test/generated.safetensors")
    few = replace(test, success=test.success & (test.success.cumsum(0) <= 3))
    paths = [tmp_path / "all/a.safetensors", tmp_path / "few/b.safetensors"]
    write_set(paths[0], test)
    write_set(paths[1], few)
    assert int(test.success.sum()) > 5
    own = ["--defences", "bit-depth", "--out", str(tmp_path / "d"), "--samples", "5", "--sets", *map(str, paths)]
    assert run(["defend", str(made / "run"), *GIVEN, *FEW, *own]) == 0
    found = json.loads((tmp_path / "d/defences.json").read_text())
    images = {name: one["images"] for name, one in found["sources"].items()}
    assert images["a"] == 5 and images["b"] == 3 and images["fgsm"] > 5


def test_a_defence_of_ones_own_is_worn(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_defence.py").write_text("def still(told):\n    return told.model\n")
    flags = ["--defences", "own_defence:still", "bit-depth", "--out", "d"]
    assert run(["defend", str(made / "run"), *GIVEN, *FEW, *flags]) == 0
    rows = json.loads(Path("d/defences.json").read_text())["defences"]
    assert rows[0]["passes"]["fgsm"] == 1 and rows[0]["false_positives"] == 0


WRONG = {
    "bare": ("def bare(): pass", "bare should take one argument, a ukemi.defences.Setting"),
    "falls": ("def falls(told): return told.nothing", "falls failed (AttributeError"),
    "other": ("def other(told): return 3", "wrong_defence_other:other gave a int; a network, or a Detector"),
    "maps": (
        "from torch import nn\ndef maps(told): return nn.Identity()",
        "wrong_defence_maps:maps: logits of shape [images, classes] are expected, but shape [2, 1, 28, 28] came out",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_defence_of_ones_own_is_one_sentence_before_any_work(
    name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"wrong_defence_{name}.py").write_text(WRONG[name][0])
    capsys.readouterr()
    monkeypatch.setattr("ukemi.cli.defend._groups", None)  # the attacks: never reached
    assert run(["defend", str(made / "run"), *GIVEN, *FEW, "--defences", f"wrong_defence_{name}:{name}"]) == 2
    said = capsys.readouterr().err
    assert "ukemi: defences: " in said and WRONG[name][1] in said


def test_a_defence_is_named_once(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["defend", str(made / "run"), *GIVEN, *FEW, "--defences", "jpeg", "jpeg"]) == 2
    assert "defences: jpeg is given twice." in capsys.readouterr().err


def test_repair_uncertainty_trains_measures_and_says_so(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    train_set = str(made / "train/generated.safetensors")
    flags = ["--sets", train_set, "--epochs", "1", "--attacks", "fgsm", "--epsilon", "0.1", "--images", "60"]
    assert (
        run(["repair", "uncertainty", str(made / "run"), *flags, "--out", str(tmp_path / "w"), "--device", "cpu"]) == 0
    )
    assert Run.config_of(tmp_path / "w").device == "cpu"
    said = capsys.readouterr().out
    count = json.loads((tmp_path / "w/repair.json").read_text())["before"]["calibration_images"]["fgsm"]
    assert f"calibration rate, fgsm ({count} images)" in said and "under PGD" in said and "weights:" in said
    about = json.loads((tmp_path / "w/repair.json").read_text())
    success = int(read_set(Path(train_set)).success.sum())
    assert about["repair"] == "uncertainty" and about["samples"] == success
    assert about["before"]["calibration"]["fgsm"] == 0 < about["after"]["calibration"]["fgsm"]
    assert about["accuracy_gained"] == about["after"]["accuracy"] - about["before"]["accuracy"]
    told = Run.config_of(tmp_path / "w")
    assert told.objective.first == 5400 and told.objective.partners == "group"  # type: ignore[union-attr]
    assert about["repeats"] == round(5400 / 3 / success)
    kept, stored = read_set(Path(train_set)), np.load(tmp_path / "w/data.npz")
    images, labels = stored["x_train"][5400:].reshape(-1, success, 784), stored["y_train"][5400:].reshape(-1, success)
    assert len(images) == about["repeats"] and (labels == kept.labels[kept.success].numpy()).all()
    assert (images == (255 * kept.images[kept.success]).round().flatten(1).numpy()).all()
    more = ["--variant", "with-original", "--samples", str(success - 1), "--share", "0.1", "--learning-rate", "0.003"]
    assert run(["repair", "uncertainty", str(made / "run"), *flags, *more, "--out", str(tmp_path / "o")]) == 0
    other = Run.config_of(tmp_path / "o")
    assert other.objective.partners == "others" and other.learning_rate == 0.003 != told.learning_rate  # type: ignore[union-attr]
    data = load("fashion-mini").test
    models = [trained_model(Run(tmp_path / n), Run.config_of(tmp_path / n), data)[0] for n in ("w", "o")]
    images = data.batch(torch.arange(4), "cpu").images
    assert not torch.equal(models[0].eval()(images), models[1].eval()(images))


def test_what_was_before_stands_before_what_is_after() -> None:
    before = Standing(0.8, 0.3, 0.2, 60, {"fgsm": 0.0, "bim": 0.2}, {"fgsm": 12, "bim": 1})
    after = Standing(0.9, 0.5, 0.4, 60, {"fgsm": 0.7, "bim": 0.3}, {"fgsm": 12, "bim": 1})
    table = _table(Enhanced(Run(Path("run")), 30, 4, before, after))
    names, *both = ([str(cell) for cell in column.cells] for column in table.columns)
    assert names == [
        "accuracy",
        "robust accuracy, T3 (60 images)",
        "under PGD (60 images)",
        "calibration rate, fgsm (12 images)",
        "calibration rate, bim (1 image)",
        "calibration rate, mean",
    ]
    shares = [[0.8, 0.3, 0.2, 0.0, 0.2, 0.1], [0.9, 0.5, 0.4, 0.7, 0.3, 0.5]]
    assert both == [[f"{100 * share:.1f}{THIN}%" for share in column] for column in shares]
    assert str(table.caption) == "30 inputs, each 4 times an epoch"


def test_two_frozen_sets_of_one_attack_are_two_rows(made: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"{epsilon}/adversarial.safetensors" for epsilon in ("0.1", "0.2")]
    for path in paths:
        few = ["--images", "40", "--epsilon", path.parent.name, "--device", "cpu", "--out", str(path.parent)]
        assert run(["attack", str(made / "run"), "--attack", "fgsm", *few]) == 0
    flags = ["--sets", str(made / "train/generated.safetensors"), "--epochs", "1", "--images", "8"]
    transfer = ["--transfer", *map(str, paths), "--out", str(tmp_path / "w")]
    assert run(["repair", "uncertainty", str(made / "run"), *flags, *transfer]) == 0
    about = json.loads((tmp_path / "w/repair.json").read_text())
    assert list(about["before"]["calibration"]) == [f"fgsm ({path})" for path in paths]


def test_a_network_without_inner_parts_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shallow_net.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
    )
    train(TrainConfig(model="shallow_net:net", epochs=1, out=Path("run"), device="cpu"), quiet=True)
    few = ["--attack", "fgsm", "--epsilon", "0.3", "--images", "30", "--device", "cpu", "--out", "a"]
    assert run(["attack", "run", "--split", "train", *few]) == 0
    flags = ["repair", "uncertainty", "run", "--sets", "a/adversarial.safetensors", "--epochs", "1", "--images", "8"]
    flags += ["--attacks", "fgsm", "--out", "new"]
    capsys.readouterr()
    for layers, said in (
        ([], "this model shows no inner parts to mix behind; name them."),
        (["--layers", "7"], "the model has no module '7'."),
    ):
        assert run([*flags, *layers]) == 2
        assert capsys.readouterr().err == f"ukemi: layers: {said}\n"
    assert not Path("new").exists()
    assert run([*flags, "--layers", "0"]) == 0
    assert Run.config_of(Path("new")).objective.layers == ("0",)  # type: ignore[union-attr]


def test_bad_input_is_one_sentence_before_any_work_and_writes_nothing(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, test = str(made / "run"), str(made / "test/generated.safetensors")
    empty = read_set(made / "train/generated.safetensors")
    write_set(tmp_path / "other.safetensors", type(empty)(**{**vars(empty), "model": "0" * 64}))
    write_set(tmp_path / "vain.safetensors", type(empty)(**{**vars(empty), "success": empty.success & False}))
    out = ["--out", str(tmp_path / "none")]
    full = read_set(made / "test/generated.safetensors")
    write_set(tmp_path / "frozen.safetensors", replace(full, success=full.success & False))
    frozen, other = ["--transfer", str(tmp_path / "frozen.safetensors")], str(tmp_path / "other.safetensors")
    vain = str(tmp_path / "vain.safetensors")
    again = str(made / "train/../test/generated.safetensors")
    twice = ["--transfer", test, again]
    monkeypatch.setattr("ukemi.cli.uncertain.turned", None)  # attacks: never reached
    monkeypatch.setattr("ukemi.repairs.uncertain.turned_by", None)
    for flags, said in (
        (["defend"], "defend needs a run folder"),
        (["defend", own, "--defences", "wall"], "defences: 'wall' is none of squeezing"),
        (["defend", own, "--attacks"], "there is nothing to defend against"),
        (["defend", own, "--attacks", "--sets", test], "attacks: without any, --pcs-thresholds"),
        (["defend", own, *GIVEN, *FEW, "--sets", str(tmp_path / "other.safetensors")], "made for another model"),
        (["defend", own, "--sets", vain], f"sets: {vain}: there is no image in it that reached its pattern and goal."),
        (["uncertainty", own, "--sets", test, vain], f"sets: {vain}: there is no image in it that reached"),
        (["defend", own, *GIVEN, *FEW, "--out", str(tmp_path / "other.safetensors/x")], "is a file; "),
        (["repair", "uncertainty", own, "--out", str(tmp_path / "other.safetensors/x")], "is a file; "),
        (["repair", "uncertainty"], "a run folder is needed"),
        (["repair", "uncertainty", own, "--device", "tpu"], "device: 'tpu' is not there"),
        (["repair", "uncertainty", own], "sets: at least one file"),
        (["repair", "uncertainty", own, "--sets", test], "was made from the test part"),
        (["repair", "uncertainty", own, "--sets", test, test], f"sets: {test} is given twice."),
        (["defend", own, *GIVEN, *FEW, "--sets", test, again], f"sets: {test} is given twice."),
        (["uncertainty", own, *GIVEN, *FEW, "--sets", test, again], f"sets: {test} is given twice."),
        (
            ["repair", "uncertainty", own, "--sets", str(made / "train/generated.safetensors"), *twice],
            f"transfer: {test} is given twice.",
        ),
        (["repair", "uncertainty", own, "--sets", str(tmp_path / "other.safetensors")], "made for another model"),
        (
            ["repair", "uncertainty", own, "--sets", str(made / "train/generated.safetensors"), "--samples", "9999"],
            "samples: 9999 are asked for",
        ),
        (["repair", "uncertainty", own, "--sets", test, "--share", "1"], "share"),
        (
            ["repair", "uncertainty", own, "--sets", str(made / "train/generated.safetensors"), *frozen],
            f"transfer: {frozen[1]}: there is no image in it",
        ),
        (
            ["repair", "uncertainty", own, "--sets", str(made / "train/generated.safetensors"), "--transfer", other],
            f"transfer: {other}: it was made for another model",
        ),
    ):
        assert run([*flags, *([] if "--out" in flags else out)]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "none").exists()

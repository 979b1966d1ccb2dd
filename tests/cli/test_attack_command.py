"""`ukemi attack`, and attacks beside `ukemi evaluate`: what they write, what they say, and their exit codes."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ukemi.attacks.config import AttackConfig
from ukemi.cli.main import run
from ukemi.data import load
from ukemi.training import TrainConfig
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.run import Run
from ukemi.training.sets import read_set
from ukemi.training.setup import make_model

NET = """
import torch
from dataclasses import replace
from torch import nn
from ukemi.attacks import fgsm, from_callable

def net():
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 10))

def darker(model, images, labels):
    return fgsm(model, images, labels, epsilon=0.3)

def plain(model, images, labels):
    return images

def broken(model, images, labels):
    raise ValueError("no luck")

def changed(**parts):
    def attack(model, images, labels):
        found = fgsm(model, images, labels, epsilon=0.3)
        return replace(found, **{name: change(getattr(found, name)) for name, change in parts.items()})
    return attack

short = changed(images=lambda images: images[:2])
fewer = changed(success=lambda success: success[:2])
shares = changed(success=lambda success: success.float())
outside = changed(images=lambda images: images + 3)
nowhere = changed(images=lambda images: images * float("nan"))

def unlucky(model, images, labels):
    raise ValueError("no luck")

adapted = from_callable(unlucky)
"""


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    """A linear network on fashion-mini, trained for a second."""
    data = load("fashion-mini").train
    pooled = nn.functional.avg_pool2d(data.batch(torch.arange(len(data)), "cpu").images, 4).flatten(1)
    torch.manual_seed(0)
    layer = nn.Linear(49, 10)
    optimiser = torch.optim.Adam(layer.parameters(), 0.05)
    for _ in range(80):
        optimiser.zero_grad()
        nn.functional.cross_entropy(layer(pooled), data.labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return {f"2.{name}": tensor.detach() for name, tensor in layer.state_dict().items()}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: dict[str, torch.Tensor]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "tiny_attacked.py").write_text(NET)
    save_file(weights, "tiny.safetensors")


OWN = ["--model", "tiny_attacked:net", "--weights", "tiny.safetensors", "--data", "fashion-mini", "--device", "cpu"]
FEW = [*OWN, "--images", "60"]
QUICK = ["--levels", "2", "--gallery", "1", "--landscapes", "0"]
PGD = ["--attack", "pgd", "--epsilon", "8/255", "--steps", "4"]


def table(path: str) -> list[dict[str, str]]:
    """What a spreadsheet reads."""
    text = Path(path).read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_attack_writes_a_set_numbers_and_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["attack", *FEW, *PGD, "--seed", "3", "--gallery", "5"]) == 0
    said = capsys.readouterr().out
    for words in ("pgd (epsilon 8/255, steps 4)", "accuracy under attack (white-box)", "robustness", "median distance"):
        assert words in said
    assert max(map(len, said.splitlines())) <= 80
    made, found = read_set(Path("attack/adversarial.safetensors")), json.loads(Path("attack/attack.json").read_text())
    assert (made.attack, made.seed, made.data, made.split) == ("pgd", 3, "fashion-mini", "test")
    assert made.settings == {"epsilon": 8 / 255, "steps": 4}
    assert found["images"] == 60 and found["recognised"] == len(made) and found["fooled"] == int(made.success.sum()) > 0
    assert found["robustness"] == pytest.approx(1 - found["fooled"] / found["recognised"])
    assert found["attacked_accuracy"] == pytest.approx((found["recognised"] - found["fooled"]) / 60)
    assert found["model_sha256"] == made.model and found["attack"] == {"name": "pgd", **made.settings, "seed": 3}
    assert sum(row["fooled"] for row in found["classes"]) == found["fooled"]
    assert found["median_distance"] <= 8 / 255 + 1e-6 and found["forwards"] > found["backwards"] > 0
    page = Path("attack/page.html").read_text()
    assert page.count('class="trio"') == 5 and page.count("data:image/png") == 15 and 'class="column"' in page
    assert "http" not in page.split("<body")[1] and "nan" not in page.split("<body")[1].lower().replace("nano", "")


def test_attack_takes_a_run_and_is_the_same_twice() -> None:
    config = TrainConfig(model="lenet5", size=32, out=Path("here"))
    trained, data = Run.start(config), load("fashion-mini", size=32)
    model = make_model(config, data.train, data.classes, None)
    write_checkpoint(trained.weights_path, model.state_dict(), {"classes": list(data.classes)})
    flags = ["attack", "here", "--images", "40", "--device", "cpu", "--attack", "pgd", "--norm", "l2", "--steps", "2"]
    assert run([*flags, "--epsilon", "1"]) == 0
    assert run([*flags, "--epsilon", "1", "--out", "again"]) == 0
    name = "adversarial.safetensors"
    assert (Path("here/attack") / name).read_bytes() == (Path("again") / name).read_bytes()
    assert json.loads(Path("again/attack.json").read_text())["settings"]["model"] == "lenet5"


@pytest.mark.parametrize(
    "attack",
    [
        ["deepfool"],
        ["carlini-wagner", "--steps", "30", "--searches", "2"],
        ["jsma"],
        ["square", "--epsilon", "0.1", "--steps", "20"],
        ["fgsm", "--epsilon", "0"],
        ["tiny_attacked:darker"],
    ],
)
def test_every_kind_of_attack_makes_a_page(attack: list[str]) -> None:
    """Without `index`, without success, and anyone's own."""
    assert run(["attack", *FEW, "--attack", *attack]) == 0
    (out,) = Path().glob("attack*")
    found = json.loads((out / "attack.json").read_text())
    fooled = 0 if attack[0] == "fgsm" else found["fooled"]
    assert found["fooled"] == fooled and (found["median_distance"] is None) == (fooled == 0)
    assert "<html" in (out / "page.html").read_text() and found["attack"]["name"] == attack[0]


def test_a_set_is_not_written_over_by_another_attack_or_part() -> None:
    assert run(["attack", *FEW, *PGD]) == 0
    kept = Path("attack/adversarial.safetensors").read_bytes()
    for flags, place in (
        (["--attack", "fgsm", "--epsilon", "0.1"], "attack-fgsm"),
        (["--attack", "fgsm", "--epsilon", "0.1", "--split", "train"], "attack-fgsm-train"),
        ([*PGD, "--split", "train"], "attack-pgd-train"),
        (["--attack", "tiny_attacked:darker"], "attack-tiny_attacked.darker"),
    ):
        assert run(["attack", *FEW, *flags]) == 0
        made = read_set(Path(place) / "adversarial.safetensors")
        assert (made.attack, made.split) == (flags[1], "train" if "train" in flags else "test")
    assert Path("attack/adversarial.safetensors").read_bytes() == kept


def test_logits_that_are_not_finite_are_told(
    weights: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    save_file({name: tensor * torch.nan for name, tensor in weights.items()}, "tiny.safetensors")
    said = "The model gives NaN or infinite logits for 60 of 60 images; these count as wrong."
    for command in (["evaluate", *FEW, *QUICK, *PGD], ["attack", *FEW, *PGD]):
        assert run(command) == 0
        assert said in " ".join(capsys.readouterr().out.split())
    for name in ("evaluation/evaluation.json", "attack/attack.json"):
        found = json.loads(Path(name).read_text())
        assert found["not_finite"] == 60
        assert found["notes"] == [said, "No image is recognised, so nothing was attacked."]
        assert said in (Path(name).parent / "page.html").read_text()


def test_an_attack_without_a_budget_that_gives_up_is_no_robustness(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--attack", "carlini-wagner", "--steps", "2", "--searches", "1"]
    for command in (["attack", *FEW, *few], ["evaluate", *FEW, *QUICK, *few]):
        assert run(command) == 0
        assert "more steps or searches may be needed, and this is not robustness" in " ".join(
            capsys.readouterr().out.split()
        )
    for name in ("evaluation/evaluation.json", "attack-carlini-wagner/attack.json"):
        found = json.loads(Path(name).read_text())
        assert found["not_finite"] == 0 and "it has no budget, so it should fool nearly all" in found["notes"][0]
        assert found["notes"][0] in (Path(name).parent / "page.html").read_text().replace("&amp;", "&")
    assert run(["attack", *FEW, "--attack", "deepfool"]) == 0
    assert json.loads(Path("attack-deepfool/attack.json").read_text())["notes"] == []


def test_square_is_black_box(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--attack", "square", "--epsilon", "0.1", "--steps", "5"]
    for command in (["attack", *FEW, *flags], ["evaluate", *FEW, *QUICK, *flags]):
        assert run(command) == 0
        said = capsys.readouterr().out
        assert "black-box: the attack is made for this very model" in said and "white-box" not in said
    page, evaluated = (Path(folder, "page.html").read_text() for folder in ("attack-square", "evaluation"))
    assert "black-box; 95 % interval" in page and "white-box" not in page.lower()
    assert "Black-box: the attack is made for this very model, from its outputs alone" in page
    assert "Black-box: the attack is made for this very model" in evaluated and "white-box" not in evaluated.lower()


def test_more_images_than_there_are_and_the_mean_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", *OWN, "--images", "999999", *QUICK, "--mean-accuracy"]) == 0
    said = capsys.readouterr()
    found = json.loads(Path("evaluation/evaluation.json").read_text())
    many = f"{found['images']:,}"
    assert said.err == f"ukemi: images: 999,999 are asked for, but there are {many}; all of them are taken\n"
    assert f"{many} images; robust:" in said.out and f"{100 * found['mean_accuracy']:.1f}" in said.out
    assert " mean " in said.out and found["share_evaluated"] == 1
    assert max(map(len, said.out.splitlines())) <= 80
    assert run(["attack", *OWN, "--images", "999999", "--attack", "fgsm", "--epsilon", "0.1"]) == 0
    assert f"but there are {many}" in capsys.readouterr().err


def test_evaluate_under_an_attack_and_its_gate(capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--fail-under", "attacked=0.9", "accuracy=0.1", "--junit", "gate.xml"]
    assert run(["evaluate", *FEW, *QUICK, *PGD, *limits]) == 1
    said = capsys.readouterr().out
    assert "attacked 0." in said and "is under 0.9" in said and max(map(len, said.splitlines())) <= 80
    found = json.loads(Path("evaluation/evaluation.json").read_text())
    (row,) = found["attacks"]
    assert row["attack"] == "pgd" and row["norm"] == "linf" and row["images"] == 60 and found["transfer"] is None
    assert row["accuracy"] == found["accuracy"] and row["attacked_accuracy"] < 0.9
    failed = ET.parse("gate.xml").findall(".//testcase[failure]")
    assert [case.get("name") for case in failed] == ["attacked accuracy"]
    page = Path("evaluation/page.html").read_text()
    assert "Under attack" in page and "pgd (epsilon 8/255, steps 4)" in page
    assert run(["attack", *FEW, *PGD]) == 0
    again = json.loads(Path("attack/attack.json").read_text())
    assert all(again[name] == row[name] for name in ("fooled", "robustness", "median_distance", "forwards"))
    assert run(["evaluate", *FEW, *QUICK, *PGD, "--fail-under", "attacked=0"]) == 0


def test_evaluate_without_an_attack_is_as_before() -> None:
    Path("evaluation").mkdir()
    Path("evaluation/attacks.csv").write_text("of an evaluation before")
    assert run(["evaluate", *FEW, *QUICK]) == 0
    found = json.loads(Path("evaluation/evaluation.json").read_text())
    assert found["attacks"] == [] and found["transfer"] is None and not Path("evaluation/attacks.csv").exists()
    assert "Under attack" not in Path("evaluation/page.html").read_text()


def test_a_curve_over_epsilon_and_its_table() -> None:
    flags = ["--attack", "bim", "--epsilons", "8/255", "0", "2/255", "4/255", "--steps", "5"]
    assert run(["evaluate", *FEW, *QUICK, *flags]) == 0
    rows = table("evaluation/attacks.csv")
    assert [round(float(row["epsilon"]) * 255) for row in rows] == [0, 2, 4, 8]
    held = [float(row["attacked_accuracy"]) for row in rows]
    assert held == sorted(held, reverse=True) and held[0] == float(rows[0]["accuracy"]) > held[-1]
    assert rows[0]["median_distance"] == "" and rows[0]["attack"] == "bim"
    assert Path("evaluation/attacks.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    said = json.loads(Path("evaluation/evaluation.json").read_text())
    assert [one["robustness"] for one in said["attacks"]] == [float(row["robustness"]) for row in rows]
    assert said["attack_groups"][0]["configurations"] == 4
    page = Path("evaluation/page.html").read_text()
    assert "bim-linf over epsilon" in page and "8/255" in page and "the hardest of 4 attacks" in page


def test_styx_grid(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", *OWN, "--images", "8", *QUICK, "--attack", "styx"]) == 0
    rows = table("evaluation/attacks.csv")
    assert len(rows) == 70 and len({row["group"] for row in rows}) == 7
    groups = json.loads(Path("evaluation/evaluation.json").read_text())["attack_groups"]
    assert [row["configurations"] for row in groups] == [10] * 7
    own = [float(row["robustness"]) for row in rows if row["group"] == "fgsm-l2"]
    assert groups[1]["group"] == "fgsm-l2" and groups[1]["robustness_mean"] == pytest.approx(sum(own) / 10)
    assert "fgsm-l1" in capsys.readouterr().out and "bim-linf" in Path("evaluation/page.html").read_text()


def test_transfer_stands_beside_the_white_box_result(
    weights: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["attack", *FEW, *PGD]) == 0
    made = read_set(Path("attack/adversarial.safetensors"))
    capsys.readouterr()
    saved = ["--adversarial-set", "attack/adversarial.safetensors"]
    assert run(["evaluate", *FEW, *QUICK, *saved]) == 0
    (own,) = json.loads(Path("evaluation/evaluation.json").read_text())["transfer"]["sets"]
    assert own["own_model"] and own["transfer_accuracy"] == 0 and own["white_box"]["attacked_accuracy"] == 0
    assert own["images"] == int(made.success.sum()) and own["origin_sha256"] == made.model
    assert "this very model" in capsys.readouterr().out
    page = Path("evaluation/page.html").read_text()
    assert "made for this very model" in page and "Other models" not in page and "Saved adversarial images</h2>" in page
    other = {name: tensor + 0.1 * torch.randn(tensor.shape) for name, tensor in weights.items()}
    save_file(other, "other.safetensors")
    there = [*FEW[:3], "other.safetensors", *FEW[4:], "--out", "there"]
    assert run(["attack", *FEW, "--attack", "fgsm", "--epsilon", "0.1", "--out", "fast"]) == 0
    capsys.readouterr()
    assert run(["evaluate", *there, *QUICK, *saved, "fast/adversarial.safetensors"]) == 0
    both = json.loads(Path("there/evaluation.json").read_text())["transfer"]
    found, fast = both["sets"]
    assert both["also_called"] == ["empirical robustness", "calibration rate"] and fast["white_box"]["attack"] == "fgsm"
    assert both["mean_transfer_accuracy"] == (found["transfer_accuracy"] + fast["transfer_accuracy"]) / 2 > 0
    held = [one["white_box"]["attacked_accuracy"] for one in both["sets"]]
    assert both["mean_white_box_accuracy"] == sum(held) / 2
    assert not found["own_model"] and found["white_box"]["steps"] == 4 and found["white_box"]["epsilon"] == 8 / 255
    assert found["transfer_accuracy"] >= found["white_box"]["attacked_accuracy"]
    said = capsys.readouterr().out
    assert "mean of the 2 sets" in said and "transfer:" in said and "white-box:" in said and "calibration rate" in said
    assert max(map(len, said.splitlines())) <= 80
    page = Path("there/page.html").read_text()
    assert "another model" in page and "white-box: this model itself" in page and "mean of the 2 sets" in page
    assert "empirical robustness" in page and "fast/adversarial.safetensors" in page and "Under attack" not in page


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--attack", "hope"], "attack: 'hope' is none of fgsm"),
        (["--attack", "styx"], "attack: styx is a grid of attacks; `ukemi evaluate --attack styx` runs it."),
        (["--attack", "pgd"], "epsilon: pgd needs it"),
        (["--attack", "fgsm", "--epsilon", "0.1", "--steps", "3"], "steps: fgsm"),
        (["--attack", "deepfool", "--epsilon", "0.1"], "epsilon: deepfool"),
        ([*PGD[:-1], "0"], "steps: should be greater than or equal to 1, but '0' was given."),
        (["--epsilon", "2"], "epsilon: it should lie in 0 to 1 for linf, but 2 was given."),
        (["--epsilon=-1"], "epsilon: should be greater than or equal to 0"),
        (["--epsilon", "0.1", "--images", "0"], "images: should be greater than or equal to 1"),
        (["--epsilon", "0.1", "--out", "file"], "out: file is a file"),
        (["--epsilon", "0.1", "--device", "cuda:99"], "device: 'cuda:99' is not there"),
        (["--epsilon", "0.1", "--data", "nothing"], "data: 'nothing' is neither a known set"),
        (["--epsilon", "0.1", "--weights", "none.safetensors"], "no file"),
        (["--attack", "tiny_attacked:plain"], "attack: plain gives a Tensor where an Attacked is needed"),
        (["--attack", "tiny_attacked:broken"], "attack: broken failed (ValueError: no luck"),
        (["--attack", "tiny_attacked:adapted"], "attack: unlucky failed (ValueError: no luck"),
        (["--attack", "tiny_attacked:short"], "attack: attack gives images [2, 1, 28, 28] for ["),
        (["--attack", "tiny_attacked:fewer"], "attack: success of attack should be bool ["),
        (["--attack", "tiny_attacked:shares"], "but it is torch.float32 ["),
        (["--attack", "tiny_attacked:outside"], "attack: what attack gives: pixels should lie in [0, 1]"),
        (["--attack", "tiny_attacked:nowhere"], "has a pixel that is NaN or infinite"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("")
    code, err = run(["attack", *FEW, *flags]), capsys.readouterr().err
    assert code == 2 and said in err and err.count("\n") == 1 and "Traceback" not in err
    assert not list(Path().glob("attack*"))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--epsilon", "0.1"], "epsilon: it belongs to an attack, so --attack is needed beside it."),
        (["--epsilons", "0.1"], "epsilons: it belongs to an attack"),
        (["--attack", "styx", "--epsilon", "0.1"], "epsilon: the grid styx brings its own settings."),
        (["--attack", "pgd", "--epsilon", "0.1", "--epsilons", "0.1"], "epsilons: give --epsilon or --epsilons"),
        (["--attack", "pgd", "--epsilons", "0", "3"], "ukemi: epsilons: it should lie in 0 to 1"),
        (["--attack", "pgd"], "epsilon: pgd needs it"),
        (["--levels", "300"], "levels: 300 levels of t3 are 8,100,000,000 variants; at most 1,000,000 are allowed."),
        ([*PGD[:-1], "0", "--fail-under", "attacked=0.5"], "steps: should be greater than or equal to 1"),
        (["--fail-under", "attacked=0.5"], "fail-under: attacked needs --attack beside it."),
        (["--adversarial-set", "none.safetensors"], "adversarial-set: there is no file none.safetensors."),
        (["--adversarial-set", "tiny.safetensors"], "adversarial-set: tiny.safetensors was not written by ukemi."),
        (["--adversarial-set", "set.safetensors", "--split", "train"], "split: the adversarial set was made from the"),
        (["--adversarial-set", "set.safetensors", "--data", "other.npz"], "adversarial-set: it was made from other"),
    ],
)
def test_mistakes_of_evaluate_under_attack(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "set.safetensors" in flags:
        _set_and_other_data()
        capsys.readouterr()
    code, err = run(["evaluate", *FEW, *QUICK, *flags]), capsys.readouterr().err
    assert code == 2 and said in err and err.count("\n") == 1 and "Traceback" not in err
    assert not Path("evaluation").exists()


def _set_and_other_data() -> None:
    assert run(["attack", *FEW, *PGD, "--out", "made"]) == 0
    Path("made/adversarial.safetensors").rename("set.safetensors")
    data = load("fashion-mini")
    parts = {"train": data.train, "test": data.test}
    arrays = {f"x_{name}": 255 - np.asarray(part.images) for name, part in parts.items()}
    arrays |= {f"y_{name}": np.asarray(part.labels) for name, part in parts.items()}
    np.savez("other.npz", classes=np.array(data.classes), **arrays)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "attack needs a run folder, or --model"),
        (["nothing", "--epsilon", "0.1"], "run: nothing holds no run"),
        (["nothing", "--model", "demo-cnn"], "one of the two"),
        (["nothing", "--weights", "x.pt"], "weights: a run brings its own model"),
        (["--model", "demo-cnn"], "attack --model needs --data"),
    ],
)
def test_a_model_is_needed(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = run(["attack", *flags]), capsys.readouterr().err
    assert code == 2 and said in err and err.count("\n") == 1


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("attack", "evaluate"):
        with pytest.raises(SystemExit) as end:
            run([command, "--help"])
        said = capsys.readouterr().out
        flags = [f"--{name.replace('_', '-')}" for name in AttackConfig.model_fields]
        assert end.value.code == 0 and all(flag in said for flag in flags), command

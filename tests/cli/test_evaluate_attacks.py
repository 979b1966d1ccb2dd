"""Attacks and saved sets beside `ukemi evaluate`: what it writes, what it says, and its exit codes."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from attack_samples import FEW, OWN, PGD, QUICK
from safetensors.torch import load_file, save_file

from ukemi.cli.main import run
from ukemi.data import load
from ukemi.training.sets import read_set

pytestmark = pytest.mark.usefixtures("attacked_net")


def table(path: str) -> list[dict[str, str]]:
    """What a spreadsheet reads."""
    text = Path(path).read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


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
    capsys: pytest.CaptureFixture[str],
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
    other = {name: tensor + 0.1 * torch.randn(tensor.shape) for name, tensor in load_file("tiny.safetensors").items()}
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

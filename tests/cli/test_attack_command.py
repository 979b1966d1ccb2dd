"""`ukemi attack`: what it writes, what it says, and its exit codes."""

import json
from pathlib import Path

import pytest
import torch
from attack_samples import FEW, OWN, PGD, QUICK
from safetensors.torch import load_file, save_file

from ukemi.attacks.config import AttackConfig
from ukemi.cli.main import run
from ukemi.data import load
from ukemi.training import TrainConfig
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.run import Run
from ukemi.training.sets import read_set
from ukemi.training.setup import make_model

pytestmark = pytest.mark.usefixtures("attacked_net")


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
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_file({name: tensor * torch.nan for name, tensor in load_file("tiny.safetensors").items()}, "tiny.safetensors")
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

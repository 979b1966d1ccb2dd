"""Outputs of one's own model that are not in the order of the classes' names."""

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from command_samples import small

from ukemi.cli.main import run

pytestmark = pytest.mark.usefixtures("elsewhere")

LIGHT_FIRST = """
import torch
from torch import nn

class LightFirst(nn.Module):
    def __init__(self, others=0):
        super().__init__()
        self.last = nn.Linear(1, 2 + others)
        with torch.no_grad():
            self.last.weight.copy_(torch.tensor([40.0, -40.0] + [0.0] * others)[:, None])
            self.last.bias.copy_(torch.tensor([0.0, 0.0] + [-99.0] * others))

    def forward(self, images):
        return self.last(images.flatten(1).mean(1, keepdim=True) - 0.5)

def many():
    return LightFirst(2)
"""


@pytest.fixture
def flags(images: Path, tmp_path: Path) -> list[str]:
    (tmp_path / "order.py").write_text(LIGHT_FIRST)
    return ["--data", str(images), "--out", "there"]


def accuracy() -> float:
    return float(json.loads(Path("there/evaluation.json").read_text())["accuracy"])


def test_classes_say_which_output_is_which(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "--model", "order:LightFirst", *flags]) == 0
    said = capsys.readouterr()
    assert accuracy() == 0 and "0 dark, 1 light; --classes says another order." in said.err
    assert run(["evaluate", "--model", "order:LightFirst", *flags, "--classes", "light", "dark"]) == 0
    assert accuracy() == 1 and "taken for the classes" not in capsys.readouterr().err
    page = Path("there/page.html").read_text()
    assert page.index("light") < page.index("dark")


def test_a_file_may_name_more_classes_than_the_images_have(flags: list[str]) -> None:
    Path("all.txt").write_text("\ufefflight\ndark\n\n a third \nä fourth\n", encoding="utf-8")
    assert run(["evaluate", "--model", "order:many", *flags, "--classes", "all.txt"]) == 0
    assert accuracy() == 1


def test_every_command_takes_the_order(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--model", "order:LightFirst", *flags, "--classes", "light", "dark"]
    assert run(["attack", *own, "--attack", "fgsm", "--epsilon", "0"]) == 0
    told = json.loads(Path("there/attack.json").read_text())
    assert told["accuracy"] == 1
    # limits are found on validation images, which are read from the other part
    asked = ["--passes", "4", "--attacks", "fgsm", "--epsilon", "0.3", "--fuzzers", "--validation-images", "8"]
    assert run(["uncertainty", *own, *asked]) == 0
    benign = json.loads(Path("there/uncertainty.json").read_text())["sources"][0]
    assert benign["source"] == "benign" and benign["accuracy"] == 1
    # in the other order all would be wrong: a flag by itself, and a loss of 20
    assert run(["selfcheck", *own, "--steps", "1", "--queries", "1"]) == 0
    assert run(["search", *own, "--methods", "random", "--generations", "1", "--seeds", "1"]) == 0
    assert json.loads(Path("there/search.json").read_text())["clean_loss"] < 0.1
    assert "taken for the classes" not in capsys.readouterr().err


def test_a_training_goes_on_in_the_order_of_its_weights(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One epoch at next to no learning rate: the labels alone decide what is right."""
    torch.save(order_module().LightFirst().state_dict(), "net.pt")
    own = ["train", *flags, "--model", "order:LightFirst", "--weights", "net.pt", "--epochs", "1", "--batch-size", "16"]
    own += ["--learning-rate", "1e-9", "--device", "cpu"]
    assert run(own) == 0
    said = capsys.readouterr()
    assert "0 dark, 1 light; --classes says another order." in said.err and "validation accuracy 0.0%" in said.out
    Path("order.txt").write_text("light\ndark\n", encoding="utf-8")
    assert run([*own, "--classes", "order.txt", "--out", "mine"]) == 0
    said = capsys.readouterr()
    assert "taken for the classes" not in said.err and "validation accuracy 100.0%" in said.out
    Path("order.txt").unlink()  # the run has the names
    assert 'classes = ["light", "dark"]' in Path("mine/config.toml").read_text(encoding="utf-8")
    assert run(["evaluate", "mine", "--out", "there"]) == 0 and accuracy() == 1
    again = ["repair", "retrain", "mine", "--epochs", "1", "--out", "repaired"]
    assert run(again) == 0 and "taken for the classes" not in capsys.readouterr().err
    assert run(["evaluate", "repaired", "--out", "there"]) == 0 and accuracy() == 1


def order_module() -> ModuleType:
    made = ModuleType("order")
    exec(LIGHT_FIRST, made.__dict__)
    return made


def test_a_wrong_order_is_one_sentence(flags: list[str], images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["evaluate", "--model", "order:LightFirst", *flags, "--classes"]
    Path("bytes.txt").write_bytes(b"\xff\xfe\x00")
    for given, said in (
        (["light", "third"], "data: class 'dark' is none of those that the model knows: light, third."),
        (["nams.txt"], "classes: there is no file nams.txt; two names or more are needed, or a file with them."),
        (["light", "dark", "light"], "classes: 'light' stands there twice; each is the name of one output."),
        (["light", "dark", "third"], "3 classes"),
        (["bytes.txt"], "classes: bytes.txt is no text file with a name on each line."),
        ([f"class {at}" for at in range(1000)], "class 8, class 9, …."),
    ):
        assert run([*own, *given]) == 2
        assert said in capsys.readouterr().err and not Path("there").exists()
    assert run(small(images, "--out", "run")) == 0
    capsys.readouterr()
    assert run(["evaluate", "run", "--classes", "light", "dark"]) == 2
    assert capsys.readouterr().err == "ukemi: classes: a run brings its own model, so it can't stand beside run.\n"

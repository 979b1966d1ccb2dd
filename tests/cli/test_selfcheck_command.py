"""`ukemi selfcheck` as a user calls it: what it writes, what it says, and its exit codes."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from ukemi.cli.main import run
from ukemi.data import DataSet, load
from ukemi.measures.reliability import FLAGS
from ukemi.reports.selfcheck import ADVICE
from ukemi.training import TrainConfig
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.run import Run
from ukemi.training.setup import make_model

NET = """
import torch
from torch import nn
class Rounded(nn.Module):
    def forward(self, images):
        return (images * 8).round() / 8
def layers():
    return [nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 10)]
def honest():
    return nn.Sequential(nn.Identity(), *layers())
def rounded():
    return nn.Sequential(Rounded(), *layers())
def softmax():
    return nn.Sequential(nn.Identity(), *layers(), nn.Softmax(1))
"""
FEW = ["--device", "cpu", "--images", "30", "--steps", "8", "--queries", "40", "--epsilon", "4/255"]


@pytest.fixture(scope="module")
def trained(fashion: DataSet) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 10))
    images, labels = torch.as_tensor(fashion.train.images).float() / 255, fashion.train.labels
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(40):
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(net(images), labels).backward()
        optimiser.step()
    return {f"3.{name}": value.detach().clone() for name, value in net[2].state_dict().items()}


@pytest.fixture
def own(tmp_path: Path, trained: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A linear network on fashion-mini, as three models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "tiny_selfcheck.py").write_text(NET)
    save_file(trained, "tiny.safetensors")
    return ["selfcheck", "--weights", "tiny.safetensors", "--data", "fashion-mini", *FEW]


def test_a_model_to_trust_ends_with_0(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*own, "--model", "tiny_selfcheck:honest"]) == 0
    said, err = capsys.readouterr()
    assert err == ""  # no bar where there is no terminal
    assert all(name in said for name in FLAGS) and max(map(len, said.splitlines())) <= 80
    assert "No flag is raised." in said and "raised" not in said.replace("flag is raised", "")
    found = json.loads(Path("selfcheck/selfcheck.json").read_text())
    assert found["trusted"] and found["images"] == 30 and found["schema"] == 1
    assert [flag["name"] for flag in found["flags"]] == list(FLAGS)
    assert all(flag["verdict"] == "clear" and flag["sentence"] and not flag["advice"] for flag in found["flags"])
    assert found["worst_accuracy"] <= found["robust_accuracy"] <= found["accuracy"]
    assert found["forwards"] > found["backwards"] > 0 and found["settings"]["epsilon"] == pytest.approx(4 / 255)
    page = Path("selfcheck/page.html").read_text().split("<body")[1]
    assert page.count('<svg class="chart"') == 1 and "http" not in page and "nan" not in page.lower()
    assert all(name in page for name in FLAGS)


@pytest.mark.parametrize(("model", "flag"), [("rounded", "zero-gradients"), ("softmax", "probabilities")])
def test_a_raised_flag_ends_with_1(own: list[str], model: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*own, "--model", f"tiny_selfcheck:{model}", "--out", "there"]) == 1
    assert "1 of 10 flags is raised" in " ".join(capsys.readouterr().out.split())
    found = json.loads(Path("there/selfcheck.json").read_text())
    assert not found["trusted"]
    assert [(one["name"], one["advice"]) for one in found["flags"] if one["raised"]] == [(flag, ADVICE[flag])]
    assert '<span class="guess">raised</span>' in Path("there/page.html").read_text()


def test_a_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = TrainConfig(model="lenet5", size=32, out=Path("here"))
    made, data = Run.start(config), load("fashion-mini", size=32)
    model = make_model(config, data.train, data.classes, None)
    write_checkpoint(made.weights_path, model.state_dict(), {"classes": list(data.classes)})
    # weights as drawn know nothing: that is a flag
    assert run(["selfcheck", "here", *FEW, "--images", "10"]) == 1
    found = json.loads(Path("here/selfcheck/selfcheck.json").read_text())
    assert "chance-accuracy" in [flag["name"] for flag in found["flags"] if flag["raised"]]
    assert found["settings"]["model"] == "lenet5" and found["settings"]["steps"] == 8
    assert "here" in Path("here/selfcheck/page.html").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--epsilon", "0"], "epsilon: should be greater than 0"),
        (["--epsilon", "1"], "epsilon: should be less than 1"),
        (["--steps", "0"], "steps: should be greater than or equal to 1"),
        (["--queries", "0"], "queries: should be greater than or equal to 1"),
        (["--images", "0"], "images: should be greater than or equal to 1"),
        (["--tolerance", "2"], "tolerance: should be less than 1"),
        (["--device", "cuda:99"], "device: 'cuda:99' is not there"),
        (["--out", "tiny.safetensors"], "out: tiny.safetensors is a file"),
        (["--data", "nothing"], "data: 'nothing' is neither a known set"),
        (["--weights", "nothing.safetensors"], "no file"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    own: list[str], flags: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, err = run([*own, "--model", "tiny_selfcheck:honest", *flags]), capsys.readouterr().err
    assert code == 2 and said in err and err.count("\n") == 1 and "Traceback" not in err
    assert not (tmp_path / "selfcheck").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "selfcheck needs a run folder, or --model"),
        (["nothing"], "run: nothing holds no run"),
        (["nothing", "--model", "demo-cnn"], "one of the two"),
        (["nothing", "--weights", "x.pt"], "weights: a run brings its own model"),
        (["--model", "demo-cnn"], "selfcheck --model needs --data"),
    ],
)
def test_a_model_is_needed(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["selfcheck", *flags]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(["selfcheck", "--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0 and "ukemi selfcheck" in said and "--epsilon" in said
    assert run([]) == 0 and "selfcheck" in capsys.readouterr().out


def test_every_flag_has_advice() -> None:
    assert tuple(ADVICE) == FLAGS

"""`ukemi slice` as a user calls it: what it writes, what it says, and its exit codes."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ukemi import data, reports
from ukemi.cli.brought import Brought
from ukemi.cli.main import run
from ukemi.errors import UserError
from ukemi.reports.slices import layers_of, slices_glance
from ukemi.slicing import Slices, read_slices, slices_of
from ukemi.training import TrainConfig
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.run import Run
from ukemi.training.setup import make_model

NET = """
from torch import nn
def net(gated=False):
    head = [nn.GroupNorm(1, 3)] if gated else []
    return nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(1, 3, 3), nn.ReLU(), *head, nn.Flatten(), nn.Linear(75, 10))
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def network() -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(75, 10))


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    """A tiny untrained network on fashion-mini."""
    (tmp_path / "tiny_slice.py").write_text(NET)
    save_file(network().state_dict(), "tiny.safetensors")
    flags = ["--model", "tiny_slice:net", "--weights", "tiny.safetensors", "--data", "fashion-mini"]
    return ["slice", *flags, "--device", "cpu", "--samples", "200", "--profile", "300"]


def test_end_to_end(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*own, "--q", "40", "--out", "found", "--contributions"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80 and "neurons stay key" in said.replace("\n", " ")
    found = read_slices(Path("found/slices.safetensors"))
    assert found.classes == data.load("fashion-mini").classes and found.q == 40 and found.reading == "paper"
    assert found.contributions.keys() == found.synapses.keys() == {"1.weight", "4.weight"}
    told = json.loads(Path("found/slices.json").read_text())
    assert told["schema"] == 1 and told["settings"]["images"] == 200 and told["settings"]["profiled images"] == 300
    assert told["layers"]["4"]["kept"] == pytest.approx([0.4] * 10) and told["layers"]["4"]["synapses"] == 750
    assert told["overlap"] == found.overlap().tolist() and told["model_hash"] == found.model_hash
    page = Path("found/slices.html").read_text()
    assert "neurons stay key" in page and "<svg" in page
    assert "&lt;svg" not in page and "http" not in page.split("<body")[1]


def test_the_files_slices_are_those_of_python(own: list[str]) -> None:
    assert run([*own, "--reading", "nnslicer", "--theta", "0.5", "--samples", "60", "--profile", "60"]) == 0
    found = read_slices(Path("slices/slices.safetensors"))
    assert found.contributions == {} and found.theta == 0.5 and found.reading == "nnslicer"
    with pytest.raises(UserError, match="made for another model"):
        read_slices(Path("slices/slices.safetensors"), network())


def test_a_run_is_sliced_beside_its_weights(capsys: pytest.CaptureFixture[str]) -> None:
    config = TrainConfig(data="fashion-mini", model="demo-cnn", epochs=1, out=Path("run"), device="cpu")
    started = Run.start(config)
    train = data.load("fashion-mini").train
    model = make_model(config, train, train.classes, None)
    write_checkpoint(started.weights_path, model.state_dict(), {"classes": list(train.classes)})
    assert run(["slice", "run", "--samples", "150", "--profile", "100", "--device", "cpu"]) == 0
    found = read_slices(Path("run/slices/slices.safetensors"), model)
    assert list(found.neurons) == ["network.0", "network.3", "network.6", "network.10"]
    assert "run/slices/slices.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--q", "0"], "q"),
        (["--q", "101"], "q"),
        (["--theta", "1"], "theta"),
        (["--samples", "3"], "ukemi: samples: there is no sample of class"),
        (["--theta", "0.3"], "theta: the reading paper makes no use of it."),
        (["--reading", "nnslicer", "--q", "50"], "q: the reading nnslicer makes no use of it."),
        (["--out", "tiny.safetensors"], "out: tiny.safetensors is a file; a folder is needed"),
        (["--out", "tiny.safetensors/in"], "tiny.safetensors/in can't be made in it"),
    ],
)
def test_bad_flags_end_with_2_and_write_nothing(
    own: list[str], flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name for path in Path().iterdir()}
    try:
        code = run([*own, *flags])
    except SystemExit as stopped:  # tyro's own way to end
        code = int(str(stopped.code))
    told = capsys.readouterr()
    assert code == 2 and said in told.err + told.out
    assert {path.name for path in Path().iterdir()} - before <= {"__pycache__"}


def test_a_layer_that_cannot_be_sliced_is_named(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("gated.toml").write_text("[model_arguments]\ngated = true\n")
    flags = [flag for flag in own if flag not in ("--weights", "tiny.safetensors")]
    assert run([*flags, "--config", "gated.toml"]) == 2
    assert "layer '3' (GroupNorm) can't be sliced" in capsys.readouterr().err


def test_a_class_without_images_is_a_mistake_in_the_data(
    own: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = data.load("fashion-mini").test
    few = whole.take((whole.labels != 4).nonzero().flatten())
    module = sys.modules["ukemi.cli.slice"]
    monkeypatch.setattr(module, "brought", lambda *told, **options: Brought(network(), few, {}))
    assert run(own[:-4]) == 2  # all images
    assert capsys.readouterr().err == "ukemi: data: there is no sample of class 'Coat' to slice by.\n"


def test_model_and_run_are_needed_one_or_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["slice"]) == 2 and "slice needs a run folder, or --model" in capsys.readouterr().err
    assert run(["slice", "--model", "demo-cnn"]) == 2 and "needs --data" in capsys.readouterr().err
    assert run(["slice", "there", "--weights", "w.pt"]) == 2 and "weights: a run brings" in capsys.readouterr().err


@pytest.fixture
def small() -> Slices:
    kept = torch.tensor([[[1, 1, 0], [0, 0, 0]], [[0, 1, 0], [0, 0, 0]]]).bool()
    return Slices(("x", "<y>"), {"a.weight": kept}, {"a": kept.any(2)}, {}, q=30.0)


def test_layers_are_counted(small: Slices) -> None:
    (layer,) = layers_of(small)
    assert layer.synapses == 6 and layer.kept.tolist() == pytest.approx([2 / 6, 1 / 6])
    assert layer.by_every == pytest.approx(1 / 6) and layer.by_none == pytest.approx(4 / 6)
    assert layer.neurons == 2 and layer.key.tolist() == [0.5, 0.5] and layer.key_to_every == 0.5


def test_the_glance_says_how_many_neurons_stay_key(small: Slices) -> None:
    first, second, third = (said.replace("\N{NARROW NO-BREAK SPACE}", " ") for said in slices_glance(small))
    assert first == "At q = 30 on average 1.0 of 2 neurons stay key for a class (50.0 %)."
    assert second == "Of 6 synapses 16.7 % are in every class's slice and 66.7 % in none."
    assert third.startswith("Two classes share 50.0 % of what either keeps")
    whole = Slices(("x",), {"a.weight": torch.ones(1, 2, 2).bool()}, {"a": torch.ones(1, 2).bool()}, {})
    assert slices_glance(whole)[0].endswith("; a loss over key neurons is then one over all.")
    assert len(slices_glance(whole)) == 2


def test_pages_of_few_and_many_classes_are_well_formed(small: Slices, tmp_path: Path) -> None:
    many = 70
    kept = torch.rand(many, 5, 4) < 0.4
    names = tuple(f"class {number}" for number in range(many))
    large = Slices(names, {"b.weight": kept}, {"b": kept.any(2)}, {}, reading="nnslicer")
    one = slices_of(network(), data.load("fashion-mini").test.take(torch.arange(40)), classes=[0])
    for at, found in enumerate((small, large, one)):
        folder = tmp_path / str(at)
        reports.write_slices_report(folder, found, title="a & b", settings={}, seconds=1.0, device="cpu")
        page = (folder / "slices.html").read_text()
        assert "a &amp; b" in page and "<y>" not in page
        for svg in page.split("<svg")[1:]:
            ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")
    assert (tmp_path / "1" / "slices.html").read_text().count(">class ") == 4 * 35  # every second name

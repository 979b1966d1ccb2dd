"""`ukemi search` as a user calls it: what it writes, what it says, and its exit codes."""

import json
from pathlib import Path

import pytest
from safetensors.torch import save_file
from torch import nn

from ukemi.cli.main import run
from ukemi.cli.search import method_of
from ukemi.data import load
from ukemi.errors import UserError
from ukemi.measures.inner import SEARCHES
from ukemi.training import TrainConfig
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.run import Run
from ukemi.training.setup import make_model

NET = """
from torch import nn
def net():
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 10))
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    """A tiny untrained network on fashion-mini."""
    (tmp_path / "tiny_search.py").write_text(NET)
    layer = nn.Linear(49, 10)
    save_file({f"2.{name}": tensor.detach() for name, tensor in layer.state_dict().items()}, "tiny.safetensors")
    flags = ["--model", "tiny_search:net", "--weights", "tiny.safetensors", "--data", "fashion-mini"]
    return ["search", *flags, "--device", "cpu", "--images", "12"]


def test_all_methods_end_to_end(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*own, "--generations", "9", "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert all(f" {name} " in said for name in (*SEARCHES, "the grid")) and max(map(len, said.splitlines())) <= 80
    found = json.loads(Path("search/search.json").read_text())
    assert found["images"] == 12 and found["variants"] == 81 and found["space"] == "t3" and found["seeds"] == [0, 1]
    assert found["forwards_per_image"] == 90 and list(found["methods"]) == list(SEARCHES)
    for name, one in found["methods"].items():
        curve = one["curve"]
        assert one["forwards_per_image"] == 90 and len(curve["best_loss"]) == (90 if name == "random" else 9)
        assert curve["best_loss"] == sorted(curve["best_loss"])
        assert one["best_loss"]["mean"] == pytest.approx(curve["best_loss"][-1])
        assert one["share_of_grid"]["mean"] == pytest.approx(one["best_loss"]["mean"] / found["grid_loss"])
        assert one["share_of_grid_at_its_passes"]["mean"] <= one["share_of_grid"]["mean"]
        assert one["trained_loss"]["mean"] <= one["best_loss"]["mean"] and one["best_loss"]["deviation"] >= 0
        assert 0 <= one["reached"]["mean"] <= 1
    page = Path("search/page.html").read_text()
    body = page.split("<body")[1]
    assert page.count('<svg class="chart"') == 2 and "http" not in body and "sensei-released" in body
    assert "after 81 passes" in body and "nan" not in body.lower().replace("nano", "")


def test_a_run_folder_with_a_named_grid_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    config = TrainConfig(model="lenet5", size=32, out=Path("here"), space="t2")
    made, data = Run.start(config), load("fashion-mini", size=32)
    model = make_model(config, data.train, data.classes, None)
    write_checkpoint(made.weights_path, model.state_dict(), {"classes": list(data.classes)})
    flags = ["--images", "5", "--generations", "4", "--seeds", "1", "--grid", "t2-27", "--device", "cpu"]
    assert run(["search", "here", *flags, "--methods", "worst-of,k=4", "ukemi,edge=1/2,keep=0.2", "worst-of,k=30"]) == 0
    assert "passes" in capsys.readouterr().out
    found = json.loads(Path("here/search/search.json").read_text())
    methods = found["methods"]
    assert list(methods) == ["worst-of,k=4", "ukemi,edge=1/2,keep=0.2", "worst-of,k=30"]
    assert [one["forwards_per_image"] for one in methods.values()] == [40, 40, 30]
    assert found["variants"] == 27 and methods["worst-of,k=4"]["best_loss"]["deviation"] is None
    assert methods["worst-of,k=30"]["share_of_grid_at_its_passes"]["mean"] is None
    assert found["settings"]["model"] == "lenet5" and found["settings"]["generations"] == 4
    assert "here" in Path("here/search/page.html").read_text()


def test_one_generation_of_one_method_is_enough(own: list[str]) -> None:
    assert run([*own, "--methods", "worst-of", "--generations", "1", "--seeds", "1", "--images", "1"]) == 0
    assert 'class="chart"' in Path("search/page.html").read_text()


def test_methods_are_read_with_their_settings() -> None:
    assert method_of("worst-of,k=20").k == 20  # type: ignore[attr-defined]
    assert method_of("own,of=mine:Net,share=0.5").model_extra == {"share": 0.5}
    ukemi = method_of("ukemi,edge=1/4,identity=true,fitness=margin")
    assert (ukemi.edge, ukemi.identity, ukemi.fitness) == (0.25, True, "margin")  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"augmenter\.warm-up is not a known field"):
        method_of("sensei,warm-up=2")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--methods", "random", "random"], "methods: random is given twice."),
        (["--methods", "luck"], "methods: 'luck' is none of random, worst-of, sensei"),
        (["--methods", "standard"], "methods: 'standard' is none of random"),
        (["--methods", "worst-of,k"], "should have the form NAME,SETTING=VALUE"),
        (["--methods", "worst-of,k=0"], "augmenter.k: should be greater than or equal to 1"),
        (["--generations", "0"], "generations: should be greater than or equal to 1"),
        (["--seeds", "0"], "seeds: should be greater than or equal to 1"),
        (["--images", "0"], "images: should be greater than or equal to 1"),
        (["--grid", "nope"], "grid: 'nope' is none of"),
        (["--levels", "300"], "levels: 300 levels of t3 are 8,100,000,000 variants"),
        (["--space", "t9"], "space: 't9' is none of"),
        (["--device", "cuda:99"], "device: 'cuda:99' is not there"),
        (["--out", "file"], "out: file is a file"),
        (["--data", "nothing"], "data: 'nothing' is neither a known set"),
        (["--weights", "nothing.safetensors"], "no file"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    own: list[str], flags: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path("file").write_text("")
    code, err = run([*own, *flags]), capsys.readouterr().err
    assert code == 2 and said in err and err.count("\n") == 1 and "Traceback" not in err
    assert not (tmp_path / "search").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "search needs a run folder, or --model"),
        (["nothing"], "run: nothing holds no run"),
        (["nothing", "--model", "demo-cnn"], "one of the two"),
        (["nothing", "--weights", "x.pt"], "weights: a run brings its own model"),
        (["--model", "demo-cnn"], "search --model needs --data"),
        (["--model", "demo-cnn", "--data", "fashion-mini"], "give --weights"),
    ],
)
def test_a_model_is_needed(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", *flags]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(["search", "--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0 and "ukemi search" in said and "--methods" in said
    assert run([]) == 0 and "search" in capsys.readouterr().out

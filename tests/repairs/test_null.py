"""Null controls: as far as the repair, on the same weights, and as long."""

import json
import shutil
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch

from ukemi import UserError
from ukemi.cli.main import run as command
from ukemi.repairs import Dare, dare, null_control, random_change, retrain
from ukemi.repairs.more import read_about
from ukemi.repairs.null import _normal
from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint
from ukemi.training.setup import load_sets

sys.path.insert(0, str(Path(__file__).parent))
from history_net import residual


def test_the_change_has_the_same_norm_on_the_same_weights() -> None:
    model = residual()
    tuned = {name: one.clone() for name, one in model.state_dict().items()}
    moving = torch.rand_like(tuned["dense.weight"]) < 0.4
    tuned["dense.weight"] += torch.where(moving, torch.randn_like(tuned["dense.weight"]), 0)
    tuned["second.weight"] += 0.1 * torch.randn_like(tuned["second.weight"])
    tuned["norm.running_mean"] += 1  # a buffer: not ours to move
    found = random_change(model, tuned, seed=3)
    before = model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], found[name])}
    assert changed == {"dense.weight", "second.weight"}
    assert torch.equal(found["dense.weight"] != before["dense.weight"], moving)
    for name in changed:
        ours, theirs = (one[name] - before[name] for one in (found, tuned))
        assert float(ours.norm()) == pytest.approx(float(theirs.norm()), rel=1e-5)
        assert not torch.allclose(ours, theirs)
    again, other = random_change(model, tuned, seed=3), random_change(model, tuned, seed=4)
    assert torch.equal(again["dense.weight"], found["dense.weight"])
    assert not torch.equal(other["dense.weight"], found["dense.weight"])


def test_its_numbers_are_normal() -> None:
    drawn = _normal(torch.empty(200, 1000), 0, 0)
    assert abs(float(drawn.mean())) < 0.01 and float(drawn.std()) == pytest.approx(1, abs=0.01)
    for limit, share in ((1.0, 0.8413), (-2.0, 0.0228)):
        assert float((drawn < limit).double().mean()) == pytest.approx(share, abs=0.004)
    assert not torch.equal(drawn, _normal(torch.empty(200, 1000), 0, 1))


def test_another_network_is_refused() -> None:
    with pytest.raises(UserError, match=r"like: it is another network \(first.weight is not \[4, 1, 3, 3\] there\)"):
        random_change(residual(), {"first.weight": torch.zeros(2)})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("null")
    told = {"model": "demo-cnn", "epochs": 3, "batch_size": 500, "history": 2, "validation": 0.2, "device": "cpu"}
    run = train(TrainConfig(**told, out=folder / "run"), quiet=True)  # type: ignore[arg-type]
    settings = Dare(samples=300, learning_rates=(1e-4,), epochs=2, batch_size=64)
    return run, dare(run, settings, out=folder / "tuned").run


def test_random_writes_a_run(made: tuple[Run, Run], tmp_path: Path) -> None:
    run, tuned = made
    done = null_control(run, tuned, out=tmp_path / "null")
    states = [read_checkpoint(one.weights_path).tensors for one in (run, tuned, done)]
    moved = [{name for name in states[0] if not torch.equal(states[0][name], one[name])} for one in states[1:]]
    assert moved[0] == moved[1] and len(moved[0]) == 3
    for name in moved[0]:
        theirs, ours = ((one[name] - states[0][name]).norm().item() for one in states[1:])
        assert ours == pytest.approx(theirs, rel=1e-4)
    assert read_about(done)["like"] == str(tuned.folder.resolve())


def test_continued_trains_as_long(made: tuple[Run, Run], tmp_path: Path) -> None:
    run, tuned = made
    done = null_control(run, tuned, kind="continued", out=tmp_path / "null", quiet=True)
    config, about = Run.config_of(done.folder), read_about(tuned)
    assert (config.epochs, config.learning_rate, config.batch_size) == (about["epochs"], 1e-4, 64)
    assert config.optimiser == "adam" and len(load_sets(config).train) == about["samples"] == 300
    assert len(done.read_log()) == about["epochs"]
    said = read_about(done)
    assert (said["repair"], said["kind"], said["images"]) == ("null", "continued", 300)
    assert said["origin_model"] == about["origin_model"] and said["like"] == str(tuned.folder.resolve())


def test_a_repair_by_one_image_has_its_control(made: tuple[Run, Run], tmp_path: Path) -> None:
    """Training needs two."""
    run, tuned = made
    shutil.copytree(tuned.folder, tmp_path / "tuned")
    about = tmp_path / "tuned" / "repair.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "samples": 1, "batch_size": 1}))
    done = null_control(run, Run(tmp_path / "tuned"), kind="continued", out=tmp_path / "null", quiet=True)
    assert len(load_sets(Run.config_of(done.folder)).train) == 2 and read_about(done)["images"] == 2


@pytest.mark.parametrize("kind", ["random", "continued"])
def test_a_further_training_has_its_controls_too(kind: Literal["random", "continued"], tmp_path: Path) -> None:
    told = {"model": "demo-cnn", "epochs": 1, "batch_size": 500, "device": "cpu", "validation": 0}
    run = train(TrainConfig(**told, out=tmp_path / "run"), quiet=True)  # type: ignore[arg-type]
    done = retrain(run, epochs=1, quiet=True).run
    null = null_control(run, done, kind=kind, out=tmp_path / "null", quiet=True)
    assert read_about(null)["origin_model"] == read_about(done)["origin_model"]
    if kind == "continued":
        config = Run.config_of(null.folder)
        assert (config.optimiser, config.batch_size) == ("sgd", 500) and len(load_sets(config).train) == 6000


def test_the_command(made: tuple[Run, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, tuned = (str(one.folder) for one in made)
    other = tmp_path / "other"
    shutil.copytree(run, other)
    assert command(["repair", "null", run, "--like", tuned, "--seed", "2", "--out", str(tmp_path / "n")]) == 0
    assert "ukemi evaluate" in capsys.readouterr().out
    for wrong, why in (
        (["repair", "null", run], "two run folders are needed"),
        (["repair", "null", str(tmp_path / "n"), "--like", tuned], "was made from another model than this run's"),
        (["repair", "null", run, "--like", run, "--kind", "continued"], "is the run itself"),
        (["repair", "null", run, "--like", str(other)], "is no repair of"),
        (["repair", "null", run, "--like", str(tmp_path / "nowhere")], "is no repair of"),
    ):
        assert command([*wrong, "--out", str(tmp_path / "x")]) == 2
        assert why in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("3", r"like: .* has no readable repair.json"),
        ("[]", r"like: .* has no readable repair.json"),
        ('{"samples": "many"}', r"like: repair.json in .* doesn't say its images, so"),
        ('{"epochs": null}', r"like: repair.json in .* doesn't say its epochs, so"),
    ],
)
def test_a_repair_that_says_nonsense_is_named(made: tuple[Run, Run], said: str, why: str, tmp_path: Path) -> None:
    run, tuned = made
    shutil.copytree(tuned.folder, tmp_path / "tuned")
    about, told = tmp_path / "tuned" / "repair.json", json.loads(said)
    about.write_text(json.dumps({**json.loads(about.read_text()), **told}) if isinstance(told, dict) else said)
    with pytest.raises(UserError, match=why):
        null_control(run, Run(tmp_path / "tuned"), kind="continued", out=tmp_path / "null", quiet=True)
    assert not (tmp_path / "null").exists()

"""Fine-tuning on adversarial sets."""

from pathlib import Path

import pytest
import torch

from ukemi import UserError
from ukemi.attacks.config import AttackConfig
from ukemi.cli.main import run as command
from ukemi.measures.attacks import under_attack
from ukemi.repairs import fine_tune
from ukemi.training import Run, TrainConfig, train
from ukemi.training.sets import Recorder, write_set
from ukemi.training.setup import load_sets, trained_model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and a set that fools it."""
    folder = tmp_path_factory.mktemp("tuned")
    config = TrainConfig(model="lenet5", epochs=2, batch_size=500, validation=0, out=folder / "run", device="cpu")
    finished = train(config, quiet=True)
    model, data = trained_model(finished, config, load_sets(config).train)
    few, told = data.take(torch.arange(200)), AttackConfig(attack="fgsm", epsilon=0.05)
    recorder = Recorder(told.made())
    under_attack(model, few, recorder)
    write_set(folder / "set.safetensors", recorder.set(model, few, told, data="fashion-mini", split="train"))
    return folder / "run", folder / "set.safetensors"


@pytest.mark.parametrize("clean", [False, True])
def test_the_model_learns_what_fooled_it(clean: bool, made: tuple[Path, Path], tmp_path: Path) -> None:
    run, path = made
    done = fine_tune(Run(run), [path], epochs=6, learning_rate=1e-3, clean=clean, out=tmp_path / "more", quiet=True)
    config = Run.config_of(done.folder)
    assert config.optimiser == "adam" and config.schedule == "constant"
    tuned = load_sets(config)
    assert len(tuned.train) >= 6000 if clean else 10 < len(tuned.train) <= 200
    log = done.read_log()
    assert log[-1]["loss"] < log[0]["loss"]


def test_a_set_of_another_model_is_refused_and_nothing_written(made: tuple[Path, Path], tmp_path: Path) -> None:
    other = TrainConfig(model="lenet5", epochs=1, batch_size=1000, validation=0, seed=5, out=tmp_path / "other")
    train(other, quiet=True)
    with pytest.raises(UserError, match=r"adversarial-set: .*model"):
        fine_tune(Run(tmp_path / "other"), [made[1]], out=tmp_path / "more", quiet=True)
    assert not (tmp_path / "more").exists()


def test_the_command(made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = made
    flags = ["--epochs", "1", "--out", str(tmp_path / "t")]
    assert command(["repair", "adversarial", str(run), "--sets", str(path), *flags]) == 0
    assert "weights:" in capsys.readouterr().out
    for wrong, said in (
        (["repair", "adversarial", str(run)], "sets: at least one file"),
        (["repair", "adversarial"], "a run folder is needed"),
        (["repair", "adversarial", str(run), "--sets", "none.safetensors"], "there is no file"),
    ):
        assert command(wrong) == 2
        assert said in " ".join(capsys.readouterr().err.split())

"""Retraining on natural variants: what is added, and that the model goes on from its weights."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from ukemi import T3, UserError, vary
from ukemi.cli.main import run as command
from ukemi.data import DataSet, load
from ukemi.repairs import retrain
from ukemi.repairs.retraining import fooling
from ukemi.training import Run, TrainConfig, train
from ukemi.training.setup import trained_model


def test_what_fools_is_the_worst_of_all_draws(tiny_net: nn.Module, fashion: DataSet) -> None:
    data, model = fashion.train.take(torch.arange(12)), tiny_net.eval()
    black = torch.arange(12) % 2 == 0  # no variant of these looks any different, so nothing fools the model there
    pixels = data.images[torch.arange(12)].masked_fill(black[:, None, None, None], 0)
    with torch.no_grad():
        said = model(pixels.float() / 255).argmax(1)
    data = replace(data, images=pixels, labels=torch.where(black, said, data.labels))
    genes, fooled = fooling(model, data, T3, rounds=3, seed=5)
    assert not bool(fooled[black].any()) and bool(fooled.any())
    images = data.batch(torch.arange(12), "cpu").images
    for at in range(12):
        drawn = torch.cat([T3.sample(data.index[at : at + 1], 10, seed=5, epoch=epoch)[0] for epoch in range(3)])
        with torch.no_grad():
            logits = model(vary(images[at].expand(30, -1, -1, -1), drawn, T3))
        losses = nn.functional.cross_entropy(logits, data.labels[at].expand(30), reduction="none")
        wrong = logits.argmax(1) != data.labels[at]
        assert bool(fooled[at]) == bool(wrong.any())
        if wrong.any():
            best = torch.where(wrong, losses, -torch.inf).argmax()
            assert torch.allclose(genes[at], drawn[best])
        else:
            assert torch.equal(genes[at], T3.identity())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "plain"
    train(TrainConfig(model="lenet5", epochs=2, batch_size=500, validation=0, out=out, device="cpu"), quiet=True)
    return out


def test_the_set_grows_and_the_model_goes_on(finished: Path, tmp_path: Path) -> None:
    done = retrain(Run(finished), epochs=1, out=tmp_path / "more", quiet=True)
    assert 0 < done.fooling <= done.samples == 6000
    assert done.forwards == 10 * 2 * 6000 and done.search == 10 * 6000
    grown = load(tmp_path / "more" / "data.npz")
    assert len(grown.train) == 6000 + done.fooling and grown.classes == load("fashion-mini").classes
    assert torch.equal(grown.train.images[torch.arange(6000)], load("fashion-mini").train.images[torch.arange(6000)])
    config = Run.config_of(done.run.folder)
    assert config.schedule == "constant" and config.learning_rate == pytest.approx(0.001)
    before, _ = trained_model(Run(finished), Run.config_of(finished), grown.test)
    after, _ = trained_model(done.run, config, grown.test)
    moved = [(a - b).abs().max().item() for a, b in zip(before.parameters(), after.parameters(), strict=True)]
    assert 0 < max(moved) < 0.2  # on from the run's weights, a little
    with pytest.raises(UserError, match="already holds a run"):
        retrain(Run(finished), out=tmp_path / "more", quiet=True)


def test_the_command(finished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command(["repair", "retrain", str(finished), "--epochs", "1", "--out", str(tmp_path / "r")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "have a variant that fools the model" in said and "SENSEI would have spent 60,000" in said
    assert (tmp_path / "r" / "training.html").exists()
    assert command(["repair", "--help"]) == 0 and "retrain" in capsys.readouterr().out
    for wrong, why in (
        (["repair", "pray"], "repair: 'pray' is none of retrain"),
        (["repair", "retrain", str(tmp_path / "none")], "holds no run"),
        (["repair", "retrain"], "a run folder is needed"),
        (["repair", "retrain", str(finished), "--out", str(finished)], "already holds a run"),
        (["repair", "retrain", str(finished), "--device", "tpu"], "device: 'tpu' is not there"),
    ):
        assert command(wrong) == 2
        err = capsys.readouterr().err
        assert why in err and err.count("\n") == 1


def test_a_run_of_another_machine_goes_on_here(finished: Path, tmp_path: Path) -> None:
    away = Path(shutil.copytree(finished, tmp_path / "away"))
    (away / "config.toml").write_text((away / "config.toml").read_text().replace('device = "cpu"', 'device = "cuda:7"'))
    with pytest.raises(UserError, match="device: 'cuda:7' is not there"):
        retrain(Run(away), epochs=1, quiet=True)
    assert command(["repair", "retrain", str(away), "--epochs", "1", "--device", "cpu"]) == 0
    assert Run.config_of(tmp_path / "away-retrained").device == "cpu" == Run.config_of(finished).device

"""The history of a run: which epochs are kept, that they are whole, and that a foreign one is refused."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ukemi import T2, UserError
from ukemi.cli.main import run as command
from ukemi.data import load
from ukemi.training import Run, TrainConfig, history, train
from ukemi.training.checkpoints import read_checkpoint
from ukemi.training.history import History, history_path, keep, kept_epochs, rounded, size_on_disk
from ukemi.training.setup import load_sets, trained_model


def settings(out: Path, **more: Any) -> TrainConfig:
    """For a run on 200 images that lie beside it."""
    few = out.parent / "few.npz"
    if not few.exists():
        data = load("fashion-mini").train.take(torch.arange(0, 6000, 30))
        pixels, labels = data.images[torch.arange(200)].numpy(), data.labels.numpy()
        out.parent.mkdir(parents=True, exist_ok=True)
        np.savez(few, x_train=pixels, y_train=labels, x_test=pixels[:20], y_test=labels[:20])
    usual = {"data": str(few), "model": "lenet5", "epochs": 3, "batch_size": 90, "history": 2, "device": "cpu"}
    return TrainConfig(**{**usual, **more, "out": out})


def copied(run: Run, folder: Path, **changes: str) -> Run:
    """The run with some lines of its config changed."""
    shutil.copytree(run.folder, folder)
    text = (folder / "config.toml").read_text()
    for name, value in changes.items():
        text = re.sub(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
    (folder / "config.toml").write_text(text)
    return Run(folder)


def network(classes: int, hidden: int | None = None) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, classes))


def small(out: Path, **more: Any) -> Run:
    return train(settings(out, **more), quiet=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small(tmp_path_factory.mktemp("history") / "run")


def model_of(run: Run) -> nn.Module:
    config = Run.config_of(run.folder)
    return trained_model(run, config, load_sets(config).test)[0]


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("epochs", "given", "expected"),
    [(200, "half", range(101, 201)), (5, "half", range(3, 6)), (5, 2, range(4, 6)), (5, 0, range(6, 6)), (1, 1, [1])],
)
def test_which_epochs_are_kept(epochs: int, given: Any, expected: Any) -> None:
    assert list(kept_epochs(TrainConfig(epochs=epochs, history=given))) == list(expected)


@pytest.mark.parametrize("wrong", [-1, 1.5, "all", True, 21])
def test_a_history_that_cannot_be_kept_is_refused(wrong: Any) -> None:
    with pytest.raises(UserError, match=r"^history: .*(half, or a number of epochs|of the run's 20 epochs)"):
        TrainConfig(epochs=20, history=wrong)


def test_the_last_epochs_are_kept_and_the_last_is_the_model(made: Run) -> None:
    found = History(made)
    assert (
        found.epochs == [2]
        and found.last == 3
        and sorted(path.name for path in made.history.iterdir())
        == [
            "epoch-0002.safetensors",
            "epoch-0003.safetensors",
        ]
    )
    model = model_of(made)
    assert same(found.weights(3), model.state_dict())
    assert not same(found.weights(2), found.weights(3))
    found.check(model)
    log = made.read_log()
    assert "history_seconds" not in log[0] and all(line["history_seconds"] >= 0 for line in log[1:])


def test_an_epochs_weights_are_those_that_a_shorter_run_ends_with(made: Run, tmp_path: Path) -> None:
    """A constant rate does not know how long the run is."""
    whole = small(tmp_path / "long", schedule="constant", learning_rate=0.01)
    short = small(tmp_path / "short", schedule="constant", learning_rate=0.01, epochs=2, history=0)
    assert same(History(whole).weights(2), read_checkpoint(short.weights_path).tensors)


def test_with_an_average_the_average_is_kept(tmp_path: Path) -> None:
    run = small(tmp_path / "run", average=0.5)
    assert same(History(run).weights(3), read_checkpoint(run.weights_path).tensors)
    History(run).check(model_of(run))


def test_buffers_belong_to_it_and_bfloat16_rounds_parameters_alone(tmp_path: Path) -> None:
    run = small(tmp_path / "run", model="demo-cnn", history_precision="bfloat16")
    model, found = model_of(run), History(run).weights(3)
    parameters = dict(model.named_parameters())
    assert any("running_var" in name for name in found)
    for name, tensor in model.state_dict().items():
        expected = tensor.bfloat16().float() if name in parameters else tensor
        assert torch.equal(found[name], expected)
    History(run).check(model)
    half = sum(path.stat().st_size for path in run.history.iterdir())
    assert half < 0.6 * sum(4 * tensor.numel() for tensor in model.state_dict().values()) * 2


def test_the_size_is_said_before_and_a_full_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, model = settings(tmp_path / "a" / "run"), nn.Linear(500, 1000, bias=False)
    assert size_on_disk(config, model) == "history: the weights of the last 2 epochs, 2.0 MB each, 4.0 MB in all."
    assert size_on_disk(config, nn.Linear(10, 30)).endswith(" 2 epochs, 1.3 kB each, 2.6 kB in all.")
    flags = ["--model", "lenet5", "--epochs", "1", "--batch-size", "2700", "--device", "cpu", "--history", "half"]
    assert command(["train", *flags, "--history-precision", "bfloat16", "--out", str(tmp_path / "b")]) == 0
    assert "history: the weights of the last 1 epochs" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(history.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 10**6}))
    with pytest.raises(UserError, match=r"history: .* MB are needed, but 1.0 MB are free"):
        train(settings(tmp_path / "c", epochs=30, history=30), quiet=True)
    assert not (tmp_path / "c").exists()


def test_no_history_and_an_incomplete_one(made: Run, tmp_path: Path) -> None:
    bare = copied(made, tmp_path / "bare", history="0")
    with pytest.raises(UserError, match=r"history: .*bare kept none; train with --history half"):
        History(bare)
    with pytest.raises(UserError, match=r"history: .*one kept the finished model alone; .* half, for 3 epochs or more"):
        History(copied(made, tmp_path / "one", history="1"))
    cut = copied(made, tmp_path / "cut")
    history_path(cut, 2).unlink()
    with pytest.raises(UserError, match=r"history: .*cut lacks epoch 2"):
        History(cut)
    torn = copied(made, tmp_path / "torn")
    history_path(torn, 2).write_bytes(history_path(made, 2).read_bytes()[:200])
    with pytest.raises(UserError, match=r"^history: .*epoch-0002.safetensors is truncated"):
        History(torn).weights(2)


def test_a_history_of_another_model_is_refused(made: Run, tmp_path: Path) -> None:
    other = model_of(made)
    with torch.no_grad():
        next(other.parameters()).add_(1e-6)
    with pytest.raises(UserError, match=r"belongs to another model \(the values of .* are not those"):
        History(made).check(other)
    with pytest.raises(UserError, match=r"belongs to another model \(.* is .*absent"):
        History(made).check(nn.Linear(2, 2))


def test_a_file_of_a_run_with_another_seed_is_refused(made: Run, tmp_path: Path) -> None:
    config = Run.config_of(made.folder)
    fields = {name: getattr(config, name) for name in type(config).model_fields}
    other = train(TrainConfig(**{**fields, "seed": config.seed + 1, "out": tmp_path / "other"}), quiet=True)
    run = copied(made, tmp_path / "run")
    assert History(run).weights(2)  # a run that was moved keeps its history
    history_path(run, 2).write_bytes(history_path(other, 2).read_bytes())
    with pytest.raises(UserError, match=r"^history: .*epoch-0002.safetensors belongs to a run with other settings"):
        History(run).weights(2)


@pytest.mark.parametrize(
    "told",
    [
        {"genes": T2.genes, "space": "t6"},
        {"model": "test_history:network", "model_arguments": {"hidden": None, "classes": 10}},
    ],
)
def test_a_run_knows_its_files_though_its_config_says_less_than_it_was_told(told: Any, tmp_path: Path) -> None:
    run = small(tmp_path / "run", **told)
    assert History(run).weights(2)


def test_a_damaged_or_renamed_file_is_never_read(made: Run, tmp_path: Path) -> None:
    run = copied(made, tmp_path / "run")
    first, last = history_path(run, 2), history_path(run, 3)
    first.write_bytes(last.read_bytes())
    with pytest.raises(UserError, match="doesn't hold the weights of epoch 2"):
        History(run).weights(2)
    first.write_bytes(last.read_bytes()[:-50])
    with pytest.raises(UserError, match="truncated"):
        History(run).weights(2)


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    config, model = settings(tmp_path / "run"), nn.Linear(2, 2)
    run = Run.start(config)
    run.history.mkdir()
    (run.history / "epoch-0001.safetensors.partial").write_bytes(b"half")
    keep(config, run, model, 2)
    assert [path.name for path in run.history.iterdir()] == ["epoch-0002.safetensors"]
    assert same(read_checkpoint(history_path(run, 2)).tensors, rounded(model, "float32"))


def test_a_historical_file_in_the_models_place_is_named(made: Run, tmp_path: Path) -> None:
    """It has the weights, but doesn't say what they tell apart."""
    run = copied(made, tmp_path / "run")
    shutil.copy(history_path(run, 2), run.weights_path)
    with pytest.raises(UserError, match=r"checkpoint: .*model.safetensors is no finished model \(it names no cl"):
        model_of(run)

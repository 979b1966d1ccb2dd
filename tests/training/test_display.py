"""The progress bar of a training."""

from pathlib import Path

import pytest

from ukemi.training import TrainConfig, train
from ukemi.training.display import Display


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")


@pytest.mark.usefixtures("terminal")
def test_brackets_in_the_name_of_a_run_and_in_a_note_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(Path("runs/net[red]"), 1, quiet=False) as display:
        display.note("runs/net[/bold] is there")
    said = capsys.readouterr().err
    assert "net[red]" in said and "runs/net[/bold] is there" in said


def test_a_log_file_gets_lines_and_no_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 12))
    monkeypatch.setattr("ukemi.training.display.monotonic", lambda: next(clock))
    with Display(Path("runs/net[red]"), 5, quiet=False) as display:
        for epoch in range(5):
            display.epoch_done({"epoch": epoch, "loss": 0.5, "accuracy": 0.25, "validation_accuracy": 0.125})
    numbers = "of 5, loss 0.500, accuracy 25.0%, validation 12.5%"
    assert capsys.readouterr().err.splitlines() == [f"net[red]: epoch {at} {numbers}" for at in (3, 5)]
    with Display(Path("net"), 1, quiet=True) as display:
        display.epoch_done({"epoch": 0, "loss": 0.5, "accuracy": 0.25})
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("terminal")
def test_a_training_that_is_finished_is_shown_as_whole(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path
) -> None:
    config = TrainConfig(data=str(small), epochs=1, batch_size=32, out=tmp_path / "run", device="cpu")
    train(config, quiet=True)
    train(config, resume=True)
    assert "100%" in capsys.readouterr().err

"""The progress bar of a training."""

from pathlib import Path

import pytest

from ukemi.training import TrainConfig, train
from ukemi.training.display import Display


def test_brackets_in_the_name_of_a_run_and_in_a_note_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(Path("runs/net[red]"), 1, quiet=False) as display:
        display.note("runs/net[/bold] is there")
    said = capsys.readouterr().err
    assert "net[red]" in said and "runs/net[/bold] is there" in said


def test_a_training_that_is_finished_is_shown_as_whole(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path
) -> None:
    config = TrainConfig(data=str(small), epochs=1, batch_size=32, out=tmp_path / "run", device="cpu")
    train(config, quiet=True)
    train(config, resume=True)
    assert "100%" in capsys.readouterr().err

"""`mutator = "auto"`: what is tried, what ranks, what the run keeps, and that no test image is looked at."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ukemi import Styx, UserError
from ukemi.augmenters import mutated
from ukemi.augmenters.styx import StyxConfig
from ukemi.cli.main import run
from ukemi.data import labelled
from ukemi.training import Run, TrainConfig, TrainingStopped, choose_mutator, choosing, train


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two classes that differ in brightness: 160 images of 12 x 12; the test images are nonsense."""
    generator = np.random.default_rng(1)
    labels = np.arange(200) % 2
    pixels = (60 + 90 * labels[:, None, None] + generator.integers(0, 50, (200, 12, 12))).astype(np.uint8)
    path = tmp_path / "small.npz"
    np.savez(path, x_train=pixels[:160], y_train=labels[:160], x_test=255 - pixels[160:], y_test=labels[160:])
    return path


def config(small: Path, **changed: Any) -> TrainConfig:
    values: dict[str, Any] = {"data": str(small), "epochs": 2, "batch_size": 32, "learning_rate": 0.05, "device": "cpu"}
    values |= {"augmenter": StyxConfig(mutator="auto", masks="image"), "validation": 0.25, "out": small.parent / "run"}
    return TrainConfig(**(values | changed))


def test_every_mutator_at_every_ratio_is_tried_and_the_best_is_trained(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "RATIOS", ())
    heard: list[tuple[int, int]] = []
    choice = choose_mutator(config(small, epochs=10), report=lambda done, total: heard.append((done, total)))
    tried = {(one.mutator, one.data_ratio, one.pixel_ratio) for one in choice.ranking}
    assert tried == {(name, 0.5, 0.1) for name in ("zero", "average", "random", "gaussian", "mixture")}
    held = [one.attacked_accuracy for one in choice.ranking]
    assert held == sorted(held, reverse=True) and held[0] > 0.2 and choice.without.mutator == "none"
    assert all(one.attacked_accuracy <= one.accuracy for one in choice.ranking)
    assert choice.ranking[0].accuracy > 0.9  # on the test images, which are inverted, it would be near 0
    assert heard == [(at, 6) for at in range(1, 7)] and (choice.epochs, choice.images) == (1, 40)
    best, chosen = choice.ranking[0], choice.config.augmenter
    assert isinstance(chosen, StyxConfig) and chosen.masks == "image"
    assert (chosen.mutator, chosen.data_ratio, chosen.pixel_ratio) == (best.mutator, best.data_ratio, best.pixel_ratio)
    assert choice.config.epochs == 10 and not choice.config.folder().exists()


def test_the_given_ratios_are_tried_first_and_only_validation_images_decide(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    def held(short: TrainConfig, finished: Run) -> tuple[float, float, float]:
        assert isinstance(finished, Run) and not finished.folder.is_relative_to(small.parent / "run")
        mutator = getattr(short.augmenter, "mutator", "none")
        seen.append((mutator, short.epochs))
        return 1.0, 0.7 if mutator == "average" else 0.5, 1.0

    monkeypatch.setattr(choosing, "_held", held)
    monkeypatch.setattr(choosing, "train", lambda short, quiet: Run(short.folder()))
    settings = {"schedule": "step", "drops": (20, 30), "epochs": 31}
    choice = choose_mutator(config(small, augmenter=StyxConfig(mutator="auto", pixel_ratio=0.2), **settings))
    assert len(choice.ranking) == 20 and seen[0] == ("none", 4) and {epochs for _, epochs in seen} == {4}
    first = choice.ranking[0]
    assert (first.mutator, first.data_ratio, first.pixel_ratio) == ("average", 0.5, 0.2)


def test_a_candidate_that_breaks_down_holds_nowhere(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(short: TrainConfig, quiet: bool) -> Run:
        if getattr(short.augmenter, "mutator", "") == "zero":
            raise TrainingStopped("a loss is not finite")
        return Run(short.folder())

    monkeypatch.setattr(choosing, "RATIOS", ())
    monkeypatch.setattr(choosing, "train", broken)
    monkeypatch.setattr(choosing, "_held", lambda short, finished: (1.0, 0.5, 0.5))
    last = choose_mutator(config(small)).ranking[-1]
    assert (last.mutator, last.accuracy, last.attacked_accuracy, last.robustness) == ("zero", 0, 0, 0)


def test_the_command_prints_keeps_and_resumes(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(choosing, "RATIOS", ())
    out = small.parent / "run"
    flags = ["train", "--data", str(small), "--augmenter", "styx", "--augmenter.mutator", "auto", "--device", "cpu"]
    flags += ["--epochs", "1", "--batch-size", "32", "--out", str(out)]
    assert run(flags) == 0
    said = capsys.readouterr().out
    kept = json.loads((out / "mutators.json").read_text())
    assert len(kept["ranking"]) == 5 and kept["chosen"] == kept["ranking"][0] and kept["schema"] == 1
    assert kept["validation_images"] == 16 and kept["without_mutation"]["mutator"] == "none"
    rows = [line.split()[0] for line in said.splitlines() if "%" in line][:6]
    assert (
        rows == [*(one["mutator"] for one in kept["ranking"]), "none"]
        and "under attack" in said
        and max(map(len, said.splitlines()[:15])) <= 80
    )
    trained = Run.config_of(out).augmenter
    assert isinstance(trained, StyxConfig) and trained.mutator == kept["chosen"]["mutator"]
    assert run(["train", "--resume", str(out)]) == 0
    capsys.readouterr()
    assert run(flags) == 2 and "already holds a run" in capsys.readouterr().err


def test_mistakes(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["train", "--data", str(small), "--augmenter", "styx", "--augmenter.mutator", "auto", "--validation", "0"]
    assert run([*flags, "--out", str(small.parent / "x")]) == 2
    said = capsys.readouterr().err
    assert "validation: mutator auto ranks by validation images, so it should be above 0." in said
    assert not (small.parent / "x").exists()
    with pytest.raises(UserError, match=r"^augmenter\.mutator: auto is for `ukemi train`"):
        train(config(small), quiet=True)
    with pytest.raises(UserError, match=r"^augmenter\.mutator: there is something to choose only"):
        choose_mutator(config(small, augmenter=StyxConfig()))
    with pytest.raises(UserError, match="auto is for"):
        Styx("auto")
    with pytest.raises(UserError, match=r"^mutator: auto is for"):
        mutated(labelled(torch.zeros(4, 1, 8, 8), torch.arange(4) % 2, ["a", "b"]), mutator="auto")
    assert not (small.parent / "run").exists()

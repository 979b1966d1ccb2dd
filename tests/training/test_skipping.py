"""What the loop does for a search that skips: it plans, observes with plain logits, and logs what was saved."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ukemi import Sensei
from ukemi.objectives import Consistency
from ukemi.training import TrainConfig, loop, train

SAMPLES = 86
"""of the 96 images of `small`, a tenth is kept aside"""


def config(small: Path, out: Path, **changed: Any) -> TrainConfig:
    values: dict[str, Any] = {"data": str(small), "model": "lenet5", "epochs": 4, "batch_size": 43, "device": "cpu"}
    return TrainConfig(**(values | {"learning_rate": 1e-3, "out": out} | changed))


@pytest.mark.parametrize("when", ["batch", "epoch"])
@pytest.mark.parametrize(("objective", "extra"), [("cross-entropy", 0), ("consistency", 0), ("mixup", 1)])
def test_passes_and_seconds_saved_are_logged(
    objective: str, extra: int, when: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A threshold that all hold: one search, then none. A mixture says nothing of a sample, which costs a pass."""
    monkeypatch.setattr(loop, "seconds_per_image", lambda model, images: 0.5)
    search = {"name": "sensei-sa", "population": 4, "threshold": 100.0, "when": when}
    log = train(config(small, tmp_path / "run", augmenter=search, objective={"name": objective}), quiet=True).read_log()
    for epoch, line in enumerate(log):
        asked = extra * (epoch + 1)
        assert line["scoring_forwards"] == SAMPLES * (5 * (epoch > 0) + asked)
        saved = SAMPLES * (4 * epoch - 5 * (epoch > 0) - asked)
        assert line.get("scoring_forwards_saved", 0) == saved
        assert line.get("scoring_seconds_saved", 0) == pytest.approx(0.5 * saved)


def without_dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 4))


@pytest.mark.parametrize("objective", ["cross-entropy", "mixup"])
def test_what_is_observed_are_the_logits_of_the_trained_images_unmixed(
    objective: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    augment, observe = Sensei.augment, Sensei.observe
    given: list[tuple[nn.Module, Tensor, Tensor]] = []
    steps = []

    def augmented(self: Sensei, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        given.append((model, augment(self, model, images, labels, index, epoch), index))
        return given[-1][1]

    def observed(self: Sensei, index: Tensor, logits: Tensor, labels: Tensor) -> None:
        model, images, asked = given[-1]
        with torch.no_grad():
            steps.append(torch.allclose(model(images), logits, atol=1e-4) and torch.equal(index, asked))
        observe(self, index, logits, labels)

    monkeypatch.setattr(Sensei, "augment", augmented)
    monkeypatch.setattr(Sensei, "observe", observed)
    search = {"name": "sensei-sa", "population": 2}
    # weights that rest give after the step what they gave in it
    settings = {"augmenter": search, "objective": {"name": objective}, "learning_rate": 1e-30, "epochs": 2}
    settings["model"] = "test_skipping:without_dropout"
    train(config(small, tmp_path / "run", **settings), quiet=True)
    assert steps == [True] * 4


def test_clean_images_are_flipped_as_their_variants_are(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, seen = Consistency.__call__, []

    def called(self: Consistency, model: nn.Module, images: Tensor, *rest: Any) -> Any:
        clean = rest[3]
        seen.append(torch.equal(images, clean) and model.training)
        return asked(self, model, images, *rest)

    monkeypatch.setattr(Consistency, "__call__", called)
    settings = {"augmenter": {"name": "standard"}, "objective": {"name": "consistency"}, "flips": True, "epochs": 2}
    train(config(small, tmp_path / "run", **settings), quiet=True)
    assert seen == [True] * 4

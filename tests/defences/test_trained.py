"""Defences that train: distillation and label smoothing."""

from pathlib import Path

import pytest
import torch

from ukemi import UserError
from ukemi.data import load
from ukemi.defences import Setting, defence_of, distilled, smoothed
from ukemi.defences.trained import TEMPERATURE
from ukemi.models import create
from ukemi.training import Run, TrainConfig, train
from ukemi.training.sets import weights_hash
from ukemi.training.setup import load_sets, trained_model


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("defended") / "plain"
    return train(TrainConfig(epochs=2, batch_size=200, out=out, device="cpu", seed=3), quiet=True)


def test_a_student_learns_what_its_teacher_says_and_both_are_kept(finished: Run, tmp_path: Path) -> None:
    done = distilled(finished, tmp_path / "d", temperature=10)
    teacher, student = Run.config_of(tmp_path / "d" / "teacher"), Run.config_of(done.folder)
    assert teacher.objective.temperature == student.objective.temperature == 10  # type: ignore[union-attr]
    assert student.objective.teacher == str((tmp_path / "d/teacher/model.safetensors").resolve())  # type: ignore[union-attr]
    assert student.epochs == 2 and student.seed == 3 and student.model == "demo-cnn"
    weights = done.weights_path.stat().st_mtime_ns
    assert distilled(finished, tmp_path / "d", temperature=10).weights_path.stat().st_mtime_ns == weights  # not again
    with pytest.raises(UserError, match=r"^defences: .*teacher was trained with objective .*10.* remove that folder"):
        distilled(finished, tmp_path / "d", temperature=30)
    assert TEMPERATURE == 20
    data = load_sets(student).train.take(torch.arange(300))
    answers = []
    for folder in ("teacher", "student"):
        model, own = trained_model(Run(tmp_path / "d" / folder), Run.config_of(tmp_path / "d" / folder), data)
        with torch.no_grad():
            answers.append(model.eval()(own.batch(torch.arange(300), "cpu").images).argmax(1))
    assert float((answers[0] == answers[1]).double().mean()) > 0.6


def test_smoothed_labels_and_the_registry(finished: Run) -> None:
    data = load("fashion-mini").train.take(torch.arange(100))
    model, _ = trained_model(finished, Run.config_of(finished.folder), data)
    worn = defence_of("label-smoothing", Setting(model, data, run=finished))
    folder = finished.folder / "defences" / "label-smoothing"
    assert Run.config_of(folder).smoothing == 0.1 and isinstance(worn, torch.nn.Module)
    with pytest.raises(UserError, match=r"label-smoothing was trained with smoothing 0\.1, but 0\.0 is wanted now;"):
        smoothed(finished, folder, smoothing=0.0)
    own, _ = trained_model(Run(folder), Run.config_of(folder), data)
    images = data.batch(torch.arange(4), "cpu").images
    assert torch.equal(worn.eval()(images), own.eval()(images))


def test_they_train_where_the_model_is_and_not_where_the_run_was(tmp_path: Path) -> None:
    beside = {"history": 1, "robust_every": 1}  # which a defence has no use for
    run = Run.start(TrainConfig(epochs=1, batch_size=1000, out=tmp_path / "run", device="cpu", **beside))  # type: ignore[arg-type]
    told = run.folder / "config.toml"
    told.write_text(told.read_text().replace('device = "cpu"', 'device = "cuda:63"'))
    data = load("fashion-mini").train.take(torch.arange(100))
    setting = Setting(create("demo-cnn", classes=10, channels=1, size=data.size), data, run=run)
    worn = defence_of("label-smoothing", setting)
    assert isinstance(worn, torch.nn.Module) and Run.config_of(run.folder).device == "cuda:63"
    own = run.folder / "defences" / "label-smoothing"
    trained = Run.config_of(own)
    assert (trained.device, trained.history, trained.robust_every) == ("cpu", 0, 0)
    (own / "model.safetensors").unlink()  # one that was stopped on another device goes on here
    told = own / "config.toml"
    told.write_text(told.read_text().replace('device = "cpu"', 'device = "cuda:63"'))
    again = defence_of("label-smoothing", setting)
    assert isinstance(again, torch.nn.Module)
    assert weights_hash(again) == weights_hash(worn)


def test_a_run_with_another_loss_is_refused(tmp_path: Path) -> None:
    told = TrainConfig(model="lenet5", epochs=1, objective={"name": "mixup"}, out=tmp_path / "mixed")
    with pytest.raises(UserError, match="cross-entropy, but it is mixup"):
        smoothed(Run.start(told), tmp_path / "s")
    assert not (tmp_path / "s").exists()

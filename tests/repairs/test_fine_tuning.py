"""Fine-tuning on adversarial sets."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ukemi.data
from ukemi import UserError
from ukemi.attacks.config import AttackConfig
from ukemi.cli.main import run as command
from ukemi.measures.attacks import under_attack
from ukemi.models import create
from ukemi.repairs import fine_tune, fine_tune_grid
from ukemi.repairs.more import read_about
from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import newest
from ukemi.training.sets import Recorder, read_set, write_set
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
    found = read_set(path)
    fooling = found.images[found.success]
    assert 10 < len(fooling) < len(found)  # what the model withstood is left out
    assert len(tuned.train) == len(fooling) + 6000 * clean
    assert torch.equal(tuned.train.images[torch.arange(len(fooling))], fooling)
    log = done.read_log()
    assert log[-1]["loss"] < log[0]["loss"]


def test_a_repaired_run_can_be_moved(made: tuple[Path, Path], tmp_path: Path) -> None:
    run, path = made
    done = fine_tune(Run(run), [path], epochs=2, out=tmp_path / "more", quiet=True)
    weights = done.weights_path.read_bytes()
    moved = Run((tmp_path / "far" / "away").absolute())
    moved.folder.parent.mkdir()
    done.folder.rename(moved.folder)
    assert Run.plain_config_of(moved.folder).data == str(moved.folder / "data.npz")
    assert command(["evaluate", str(moved.folder), "--images", "20", "--grid", "t2-27"]) == 0
    moved.weights_path.unlink()
    newest(moved.checkpoints)[0].unlink()
    assert command(["train", "--resume", str(moved.folder)]) == 0
    assert moved.weights_path.read_bytes() == weights
    again = ["--config", str(moved.folder / "config.toml"), "--epochs", "1", "--out", str(tmp_path / "again")]
    assert command(["train", *again]) == 0


def test_a_config_of_before_names_its_data_in_full(tmp_path: Path) -> None:
    there = Run.start(TrainConfig(out=tmp_path / "run"))
    text = (there.folder / "config.toml").read_text().replace('"fashion-mini"', '"/old/place/data.npz"')
    (there.folder / "config.toml").write_text(text)
    assert Run.config_of(there.folder).data == "/old/place/data.npz"


def test_a_set_of_another_model_is_refused_and_nothing_written(made: tuple[Path, Path], tmp_path: Path) -> None:
    other = TrainConfig(model="lenet5", epochs=1, batch_size=1000, validation=0, seed=5, out=tmp_path / "other")
    train(other, quiet=True)
    with pytest.raises(UserError, match=r"^sets: .*set.safetensors: it was made for another model"):
        fine_tune(Run(tmp_path / "other"), [made[1]], out=tmp_path / "more", quiet=True)
    assert not (tmp_path / "more").exists()


def test_a_single_image_and_images_of_another_size_are_refused_and_nothing_written(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    run, path = made
    found = read_set(path)
    one = torch.arange(len(found)) == found.success.nonzero()[0, 0]
    write_set(tmp_path / "one.safetensors", replace(found, success=found.success & one))
    large = torch.nn.functional.pad(found.images, (2, 2, 2, 2))
    write_set(tmp_path / "large.safetensors", replace(found, images=large))
    wide = r"^sets: .*large.safetensors: its images are \[1, 32, 32\], those of the run \[1, 28, 28\]\.$"
    for names, said in (
        (["one"], r"^sets: there is one image in them that fools the model; at least two are needed\.$"),
        (["large"], wide),
        (["one", "large"], wide),
    ):
        with pytest.raises(UserError, match=said):
            fine_tune(Run(run), [tmp_path / f"{name}.safetensors" for name in names], out=tmp_path / "more", quiet=True)
        assert not (tmp_path / "more").exists()


def test_the_command(made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = made
    flags = ["--epochs", "1", "--out", str(tmp_path / "t"), "--device", "cpu"]
    assert command(["repair", "adversarial", str(run), "--sets", str(path), *flags]) == 0
    assert Run.config_of(tmp_path / "t").device == "cpu"
    said = capsys.readouterr().out
    assert "weights:" in said and "accuracy on 1,000 test images: " in said and " before, " in said
    assert read_about(Run(tmp_path / "t"))["splits"] == ["train"]
    for wrong, said in (
        (["repair", "adversarial", str(run), "--sets", str(tmp_path)], f"sets: {tmp_path} is a folder; a file is"),
        (["repair", "adversarial", str(run)], "sets: at least one file"),
        (["repair", "adversarial"], "a run folder is needed"),
        (["repair"], "repair: a way is needed, one of retrain, adversarial, dare, null, uncertainty"),
        (["repair", "dare", str(run), "--epsilon", "0.1"], "epsilon belongs to the variant dare-adv"),
        (["repair", "adversarial", str(run), "--sets", "none.safetensors"], "ukemi: sets: there is no file"),
        (["repair", "adversarial", str(run), "--sets", str(path), "--device", "tpu"], "device: 'tpu' is not there"),
    ):
        assert command(wrong) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_a_set_of_test_images_is_told(
    made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, path = made
    write_set(tmp_path / "leak.safetensors", replace(read_set(path), split="test"))
    flags = ["--epochs", "1", "--out", str(tmp_path / "t")]
    warned = "sets: some were made from the test part, so the model was trained on images that it is tested on"
    for own, leaks in (([path], False), ([path, tmp_path / "leak.safetensors"], True)):
        flags[-1] += "x"
        assert command(["repair", "adversarial", str(run), "--sets", *map(str, own), *flags]) == 0
        assert (warned in " ".join(capsys.readouterr().err.split())) == leaks
        assert ("test" in read_about(Run(Path(flags[-1])))["splits"]) == leaks


def test_a_grid_of_fine_tuning_trains_every_layer_and_keeps_the_best() -> None:
    data = ukemi.data.load("fashion-mini").train
    few, selection = data.take(torch.arange(300)), data.take(torch.arange(300, 500))
    torch.manual_seed(0)
    model = create("lenet5", classes=10, channels=1, size=(28, 28)).eval()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    scores = iter([1.0, 3.0, 2.0, 0.0])
    grid = {"learning_rates": (1e-3, 1e-4), "epochs": 2, "batch_size": 64}
    found = [
        fine_tune_grid(model, few, selection, score=score, allowed_drop=1.0, **grid)  # type: ignore[arg-type]
        for score in (lambda one: next(scores), lambda one: 0.0)
    ]
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items()) and not model.training
    first, second = found
    assert [(one.learning_rate, one.epoch) for one in first.trials] == [(1e-3, 1), (1e-3, 2), (1e-4, 1), (1e-4, 2)]
    assert first.best is not None and (first.best.learning_rate, first.best.epoch) == (1e-3, 2)
    assert second.best is not None and second.best.epoch == 1  # the first of equals
    moved = [name for name, one in model.named_parameters() if not torch.equal(one, first.state[name])]
    assert moved == [name for name, _ in model.named_parameters()]
    assert first.trials[1].loss < first.trials[0].loss
    assert first.trials == tuple(replace(one, score=first.trials[at].score) for at, one in enumerate(second.trials))

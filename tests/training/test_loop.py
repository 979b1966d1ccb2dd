"""The loop: what it learns, what it logs, what its switches do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ukemi import Random, UserError, measures
from ukemi.augmenters import AUGMENTERS
from ukemi.data import Data, labelled
from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint
from ukemi.training.sets import weights_hash
from ukemi.training.setup import batches_of_epoch, fixed_subset, in_classes, load_sets, make_model, trained_model
from ukemi.uncertainty import dropouts_of


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two classes that differ in brightness: 160 images of 12 x 12."""
    generator = np.random.default_rng(1)
    labels = np.arange(200) % 2
    pixels = (60 + 90 * labels[:, None, None] + generator.integers(0, 50, (200, 12, 12))).astype(np.uint8)
    path = tmp_path / "small.npz"
    np.savez(path, x_train=pixels[:160], y_train=labels[:160], x_test=pixels[160:], y_test=labels[160:])
    return path


def config(small: Path, **changed: Any) -> TrainConfig:
    values: dict[str, Any] = {"data": str(small), "epochs": 3, "batch_size": 32, "learning_rate": 0.05, "device": "cpu"}
    return TrainConfig(**(values | {"out": small.parent / "run"} | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"optimiser": "adam", "learning_rate": 1e-3},
        {"optimiser": "adamw", "learning_rate": 1e-3, "schedule": "cosine"},
        {"optimiser": "rmsprop", "learning_rate": 1e-3, "weight_decay": 0},
        {"optimiser": "adadelta", "learning_rate": 1.0, "weight_decay": 0, "schedule": "constant"},
        {"schedule": "step", "smoothing": 0.1, "momentum": 0.0},
        {"schedule": "constant", "precision": "bfloat16", "channels_last": True},
    ],
    ids=["sgd", "adam", "adamw", "rmsprop", "adadelta", "step", "bfloat16"],
)
def test_it_learns_and_the_log_is_true(small: Path, changed: dict[str, Any]) -> None:
    chosen = config(small, robust_every=2, **changed)
    run = train(chosen, quiet=True)
    log = run.read_log()
    assert [line["epoch"] for line in log] == [0, 1, 2] and log[2]["loss"] < log[0]["loss"]
    assert ["robust_accuracy" in line for line in log] == [False, True, True]
    sets = load_sets(chosen)
    assert sets.validation is not None
    model, _ = trained_model(run, chosen, sets.train)
    found = measures.accuracy(model, sets.validation, torch.device("cpu"))
    assert log[2]["validation_accuracy"] == found[0] and log[2]["validation_loss"] == pytest.approx(found[1], rel=1e-3)
    robust = measures.robustness_of(model, fixed_subset(sets.validation, 500, 0), chosen.chosen_space())
    assert log[2]["robust_accuracy"] == robust.robust_accuracy
    assert log[2]["accuracy"] > 0.9


def test_the_same_seed_gives_the_same_run_and_another_seed_another(small: Path) -> None:
    runs = [
        train(config(small, seed=seed, out=small.parent / f"run{at}"), quiet=True) for at, seed in enumerate((3, 3, 4))
    ]
    weights = [run.weights_path.read_bytes() for run in runs]
    assert weights[0] == weights[1] and weights[0] != weights[2]


def test_a_gradient_is_as_long_as_it_may_be(small: Path) -> None:
    plain: dict[str, Any] = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "epochs": 1, "validation": 0}
    moved = {}
    for clip in (0, 1e9, 1e-4):
        run = train(config(small, clip=clip, out=small.parent / f"clip{clip}", **plain), quiet=True)
        moved[clip] = read_checkpoint(run.weights_path).tensors
    learnt = [name for name in moved[0] if name.endswith(("weight", "bias"))]
    assert all(torch.equal(moved[0][name], moved[1e9][name]) for name in learnt)
    train_set = load_sets(config(small, **plain)).train
    started = make_model(config(small, **plain), train_set, train_set.classes, None).state_dict()
    away = torch.cat([(moved[1e-4][name] - started[name]).flatten() for name in learnt]).norm()
    assert 0 < away <= 5 * 0.05 * 1e-4 * 1.001  # five steps of the learning rate


def test_scoring_passes_are_counted(small: Path) -> None:
    chosen = config(small, augmenter=AUGMENTERS["worst-of"](k=4), validation=0)  # type: ignore[call-arg]
    assert [line["scoring_forwards"] for line in train(chosen, quiet=True).read_log()] == [640, 1280, 1920]
    ahead = AUGMENTERS["worst-of"](k=4, when="epoch")  # type: ignore[call-arg]
    other = config(small, augmenter=ahead, validation=0, out=small.parent / "other")
    assert [line["scoring_forwards"] for line in train(other, quiet=True).read_log()] == [640, 1280, 1920]


def test_tensorboard_files_are_written(small: Path) -> None:
    run = train(config(small, tensorboard=True, epochs=1), quiet=True)
    assert list((run.folder / "tensorboard").glob("events.out.tfevents.*"))


class LooksFirst(Random):
    """Asks the model about the data before each epoch."""

    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        assert not model.training
        with torch.no_grad():
            model(data.batch(torch.arange(8), "cpu").images)


def test_an_own_method_may_ask_the_model_before_an_epoch(small: Path) -> None:
    """As in training mode: statistics of BatchNorm would move, and masks of dropout be drawn."""
    plain, asked = (
        train(config(small, augmenter=AUGMENTERS["own"](of=of), out=small.parent / of.__name__), quiet=True)  # type: ignore[call-arg]
        for of in (Random, LooksFirst)
    )
    first, second = (read_checkpoint(run.weights_path).tensors for run in (plain, asked))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports what torch calls old
def test_a_compiled_network_learns_the_same(small: Path) -> None:
    plain = train(config(small, epochs=1), quiet=True)
    compiled = train(config(small, epochs=1, compile=True, out=small.parent / "compiled"), quiet=True)
    assert compiled.read_log()[0]["loss"] == pytest.approx(plain.read_log()[0]["loss"], rel=1e-3)


def test_training_starts_from_given_weights(small: Path) -> None:
    first = train(config(small), quiet=True)
    again = config(small, weights=first.weights_path, epochs=1, learning_rate=1e-9, out=small.parent / "again")
    assert train(again, quiet=True).read_log()[0]["accuracy"] > 0.9
    with pytest.raises(UserError, match=r"weights: .*which the model"):
        train(config(small, weights=first.weights_path, model="nin", size=32, out=small.parent / "x"), quiet=True)


@given(st.integers(1, 500), st.integers(2, 128), st.integers(0, 9))
def test_an_epoch_sees_every_sample_once_but_for_a_short_tail(count: int, size: int, epoch: int) -> None:
    batches = batches_of_epoch(count, size, 0, epoch)
    seen = torch.cat(batches)
    assert len(seen.unique()) == len(seen)
    assert all(len(batch) == size for batch in batches[:-1]) and len(batches[-1]) <= size
    missing = count - len(seen)
    assert missing == 0 or (0 < missing < max(2, size / 4) and len(batches[-1]) == size)
    assert count == 1 or min(map(len, batches)) > 1


def test_labels_follow_the_names_of_the_classes() -> None:
    data = labelled(torch.zeros(4, 1, 8, 8), torch.tensor([0, 1, 1, 0]), ["cat", "dog"])
    moved = in_classes(data, ["ant", "dog", "cat"])
    assert moved.labels.tolist() == [2, 1, 1, 2] and moved.classes == ("ant", "dog", "cat")
    assert in_classes(data, ["cat", "dog"]) is data
    with pytest.raises(UserError, match="class 'dog' is none of those that the model knows: cat, cow"):
        in_classes(data, ["cat", "cow"])


def test_a_config_goes_round_through_its_file(small: Path) -> None:
    chosen = config(small, space="t6-continuous", drops=(1, 2), schedule="step", weights=None)
    run = Run.start(chosen)
    assert Run.config_of(run.folder) == chosen
    with pytest.raises(UserError, match="already holds a run"):
        Run.start(chosen)


def test_a_run_is_measured_in_the_layout_that_it_was_trained_in(small: Path) -> None:
    chosen = config(small, model="resnet20", epochs=1, channels_last=True)
    run = train(chosen, quiet=True)
    data = load_sets(chosen).test
    last, plain = (trained_model(run, chosen.model_copy(update={"channels_last": on}), data)[0] for on in (True, False))
    maps = [layer.weight for layer in last.modules() if isinstance(layer, nn.Conv2d)][1:]
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in maps)
    assert sum(not weight.is_contiguous() for weight in maps) == 18  # all that are larger than 1 x 1
    assert weights_hash(last) == weights_hash(plain)  # saved sets fit either
    images = data.batch(torch.arange(16), "cpu").images
    torch.testing.assert_close(last.eval()(images), plain.eval()(images), rtol=1e-4, atol=1e-5)


def test_dropout_before_the_classifier_is_part_of_the_run(small: Path) -> None:
    chosen = config(small, model="resnet20", epochs=1, dropout=0.2)
    run = train(chosen, quiet=True)
    assert Run.config_of(run.folder).dropout == 0.2
    model, data = trained_model(run, Run.config_of(run.folder), load_sets(chosen).test)
    layers = dropouts_of(model)
    assert [layer.p for layer in layers] == [0.2]
    images = data.batch(torch.arange(8), "cpu").images
    assert torch.equal(model.eval()(images), model(images))
    assert not torch.equal(model.train()(images), model(images))
    with pytest.raises(UserError, match="dropout: lenet5 has dropout of its own"):
        train(config(small, model="lenet5", dropout=0.2, out=small.parent / "other"), quiet=True)
    assert not (small.parent / "other").exists()


class Aside(nn.Module):
    """A side head that no answer has a part of stands behind the head."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.aside = nn.Linear(144, 4), nn.Linear(144, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


def test_dropout_stands_before_the_layer_that_answers(small: Path) -> None:
    chosen = config(small, model="test_loop:Aside", dropout=0.2)
    data = load_sets(chosen).train
    names = dict(make_model(chosen, data, data.classes, None).named_modules())
    assert "head.inserted_dropout" in names and "aside.inserted_dropout" not in names

"""Trainings on two ranks do what one rank does: the same order, proposals and population, and the same weights."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ukemi.ranks import Ranks
from ukemi.training import Run
from ukemi.training.checkpoints import read_checkpoint
from ukemi.training.setup import batches_of_epoch
from ukemi.training.spent import BINS

sys.path.insert(0, str(Path(__file__).parent))
from rank_runs import AUGMENTERS, EPOCHS, IMAGES, assert_alike, joined_steps, last, run_ranks, settings, write_images


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data") / "small.npz")


@pytest.mark.parametrize("augmenter", AUGMENTERS)
def test_two_ranks_do_what_one_does(
    augmenter: str, processes: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    found = {
        size: run_ranks(
            processes, settings(images, tmp_path / str(size), augmenter=AUGMENTERS[augmenter]), size, tmp_path
        )
        for size in (1, 2)
    }
    assert [rank["said"] for size in found for rank in found[size]] == ["", "", ""]
    assert joined_steps(found[1]) == joined_steps(found[2]) and len(joined_steps(found[1])) == 5 * EPOCHS
    assert sorted(found[1][0]["proposals"]) == sorted(found[2][0]["proposals"] + found[2][1]["proposals"])
    assert_alike(tmp_path / "1", tmp_path / "2")
    logs = [Run(tmp_path / size).read_log() for size in ("1", "2")]
    assert [line["scoring_forwards"] for line in logs[0]] == [line["scoring_forwards"] for line in logs[1]]
    if augmenter in ("worst-of", "sensei"):  # the work of scoring is halved: rows that went through the network
        epochs = EPOCHS - AUGMENTERS[augmenter].get("warmup", 0)
        rows = [rank["scored"] for rank in (*found[1], *found[2])]
        assert rows == [3 * share * epochs for share in (IMAGES, 19, 18)]
        assert rows == [sum(step[4] for step in rank["steps"]) for rank in (*found[1], *found[2])]


@pytest.fixture(autouse=True)
def _own_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_ranks_without_a_row_take_part(processes: Any, images: Path, tmp_path: Path) -> None:
    """37 images in batches of 5 leave 2 for 4 ranks: none is lost, none repeated, and the weights are those of one."""
    changes = {"batch_size": 5, "epochs": 2, "augmenter": AUGMENTERS["sensei-released"]}
    found = {
        size: run_ranks(processes, settings(images, tmp_path / str(size), **changes), size, tmp_path) for size in (1, 4)
    }
    assert [len(step[2]) for step in found[4][3]["steps"]] == 2 * ([1] * 7 + [0])
    steps = joined_steps(found[4])
    assert steps == joined_steps(found[1])
    for epoch in range(2):
        expected = torch.cat(batches_of_epoch(IMAGES, 5, 0, epoch)).tolist()
        assert [at for step in steps[8 * epoch : 8 * epoch + 8] for at in step[0]] == expected
        assert sorted(expected) == list(range(IMAGES))
    assert_alike(tmp_path / "1", tmp_path / "4")


def test_a_short_tail_is_left_out_on_any_number_of_ranks(processes: Any, images: Path, tmp_path: Path) -> None:
    """37 images in batches of 17 leave 3, less than a quarter: no rank takes them in this epoch, others in the next."""
    changes = {"batch_size": 17, "epochs": 4, "augmenter": AUGMENTERS["sensei"]}
    found = {
        size: run_ranks(processes, settings(images, tmp_path / str(size), **changes), size, tmp_path) for size in (1, 2)
    }
    steps = joined_steps(found[2])
    assert steps == joined_steps(found[1]) and [len(samples) for samples, _ in steps] == [17] * 2 * 4
    left_out = []
    for first, second in zip(steps[::2], steps[1::2], strict=True):
        left_out.append(set(range(IMAGES)) - set(first[0]) - set(second[0]))
    assert [len(samples) for samples in left_out] == [3] * 4 and len(set().union(*left_out)) > 3
    assert [line["images"] for line in Run(tmp_path / "2").read_log()] == [34] * 4
    assert_alike(tmp_path / "1", tmp_path / "2")


@pytest.fixture(scope="module")
def teacher(processes: Any, images: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("teacher")
    run_ranks(processes, settings(images, folder / "run", epochs=2), 1, folder)
    return str(Run(folder / "run").weights_path)


@pytest.mark.parametrize(
    "objective",
    [
        {"name": "consistency", "kind": "l2"},
        {"name": "adversarial", "steps": 2},
        {"name": "distillation", "temperature": 3.0},
        {"name": "distillation", "temperature": 3.0, "teacher": "given"},
        {"name": "grouped-mixup", "first": IMAGES, "layers": ["convolution"]},  # nobody is in the group
    ],
    ids=["consistency", "adversarial", "distillation", "distillation-teacher", "grouped-mixup"],
)
def test_objectives_on_two_ranks(
    processes: Any, images: Path, teacher: str, tmp_path: Path, objective: dict[str, Any]
) -> None:
    objective = objective | ({"teacher": teacher} if "teacher" in objective else {})
    changes: dict[str, Any] = {"objective": objective, "epochs": 2, "average": 0.9, "history": 2}
    changes |= {"augmenter": AUGMENTERS["sensei-sa"], "validation": 0.2, "robust_every": 1}
    for size in (1, 2):
        found = run_ranks(processes, settings(images, tmp_path / str(size), **changes), size, tmp_path)
        assert [rank["said"] for rank in found] == [""] * size
    assert_alike(tmp_path / "1", tmp_path / "2")
    one, two = (Run(tmp_path / size).read_log() for size in ("1", "2"))
    for name in ("validation_accuracy", "robust_accuracy", "accuracy", "images"):
        assert [line[name] for line in one] == [line[name] for line in two], name
    for name in ("validation_loss", "loss"):
        assert [line[name] for line in one] == pytest.approx([line[name] for line in two], abs=1e-6)
    assert [path.name for path in sorted(Run(tmp_path / "2").history.iterdir())] == [
        "epoch-0001.safetensors",
        "epoch-0002.safetensors",
    ]


MIXTURES: dict[str, dict[str, Any]] = {
    "mixup": {"name": "mixup"},
    "manifold-mixup": {"name": "manifold-mixup", "layers": ["convolution"]},
    "grouped-mixup": {"name": "grouped-mixup", "first": 10, "layers": ["convolution"]},
    "grouped-mixup-others": {"name": "grouped-mixup", "first": 10, "partners": "others", "layers": ["convolution"]},
}


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_are_trained_on_two_ranks(processes: Any, images: Path, tmp_path: Path, name: str) -> None:
    values = settings(images, tmp_path / "run", objective=MIXTURES[name], epochs=1, augmenter=AUGMENTERS["sensei-sa"])
    assert [rank["said"] for rank in run_ranks(processes, values, 2, tmp_path)] == ["", ""]
    assert Run(tmp_path / "run").read_log()[0]["images"] == IMAGES


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_are_made_of_each_ranks_own_rows(processes: Any, images: Path, tmp_path: Path, name: str) -> None:
    """A rank with one row has no other to mix it with: two of them train as one rank does without mixtures."""
    changes: dict[str, Any] = {"batch_size": 2, "epochs": 2, "augmenter": AUGMENTERS["random"]}
    for size, objective in ((1, {"name": "cross-entropy"}), (2, MIXTURES[name])):
        values = settings(images, tmp_path / str(size), **changes, objective=objective)
        assert [rank["said"] for rank in run_ranks(processes, values, size, tmp_path)] == [""] * size
    one, two = (read_checkpoint(Run(tmp_path / size).weights_path).tensors for size in ("1", "2"))
    for key in one:
        assert torch.allclose(one[key], two[key], rtol=0, atol=1e-5), key


def test_one_step_in_float32(processes: Any, images: Path, tmp_path: Path) -> None:
    """From the same parents the same proposals; the sum over a batch is rounded otherwise: 1e-6 after a step."""
    changes = {"model": "rank_net:single", "batch_size": IMAGES, "epochs": 1, "augmenter": AUGMENTERS["sensei"]}
    changes["augmenter"] = changes["augmenter"] | {"warmup": 0}  # type: ignore[operator]
    found = {
        size: run_ranks(processes, settings(images, tmp_path / str(size), **changes), size, tmp_path) for size in (1, 2)
    }
    assert [step[0] for step in joined_steps(found[1])] == [step[0] for step in joined_steps(found[2])]
    assert sorted(found[1][0]["proposals"]) == sorted(found[2][0]["proposals"] + found[2][1]["proposals"])
    one, two = (read_checkpoint(Run(tmp_path / size).weights_path).tensors for size in ("1", "2"))
    for name in one:
        assert torch.allclose(one[name], two[name], rtol=0, atol=1e-6), name


@pytest.mark.parametrize("what", ["SIGINT", "SIGTERM", "memory"])
def test_all_ranks_stop_at_the_same_step(processes: Any, images: Path, tmp_path: Path, what: str) -> None:
    values = settings(images, tmp_path / "run", augmenter=AUGMENTERS["sensei"])
    found = run_ranks(processes, values, 2, tmp_path, rank=1, step=7, what=what)
    assert found[0]["said"] == found[1]["said"] and len(found[0]["steps"]) == len(found[1]["steps"]) == 8
    if what == "memory":
        assert (
            found[0]["kind"] == "TrainingStopped" and "rank 1 ran out of memory at epoch 1, step 2" in found[0]["said"]
        )
        assert last(tmp_path / "run")[1]["epoch"] == 1
    else:
        assert found[0]["kind"] == "Interrupted" and "epoch 1, step 3" in found[0]["said"]
        assert last(tmp_path / "run")[1]["step"] == 3
    assert [rank["said"] for rank in run_ranks(processes, values, 2, tmp_path)] == ["", ""]
    run_ranks(processes, values | {"out": tmp_path / "whole"}, 1, tmp_path)
    assert_alike(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("guilty", [0, 1])
def test_a_loss_that_is_not_finite_on_one_rank_stops_all(processes: Any, tmp_path: Path, guilty: int) -> None:
    """One sample of one rank: the other learns of it by the flag alone, since no gradient is spoilt."""
    batches = batches_of_epoch(IMAGES, 8, 0, 1)
    sample = int(Ranks(guilty, 2).part(batches[3])[1])
    values = settings(
        write_images(tmp_path / "white.npz", bright=sample),
        tmp_path / "run",
        augmenter=AUGMENTERS["random"],
        model="rank_net:poisoned",
    )
    found = run_ranks(processes, values, 2, tmp_path)
    assert found[0]["kind"] == found[1]["kind"] == "TrainingStopped" and found[0]["said"] == found[1]["said"]
    assert f"the loss at epoch 1, step 3 is not finite for sample {sample} (rotation " in found[0]["said"]
    assert len(found[0]["steps"]) == len(found[1]["steps"]) == 2 * len(batches)  # the flag is read per epoch here
    assert [sample in rank["steps"][8][2] for rank in found] == [guilty == 0, guilty == 1]


@pytest.mark.parametrize(
    ("changes", "each", "sentence"),
    [
        ({}, ({}, {"seed": 3}), "seed: rank 0 has 0, but rank 1 has 3; all ranks train one run."),
        ({"data": "rank_net:data"}, (), "data: rank 0 has 32 training images with the checksum "),
        ({"data": "rank_net:absent_data"}, (), "data: it is not on this machine (said rank 1)"),
        ({"model": "rank_net:with_norm"}, (), "rank_net:with_norm has BatchNorm layers"),
        ({"model": "rank_net:idle"}, (), "some of its parameters take no part in the loss"),
        ({"device": "cpu:0"}, (), "device: with several ranks it should be auto, cpu or cuda"),
        ({"batch_size": 2}, ({}, {}, {}), "batch-size: 2 images can't be split over 3 ranks"),
    ],
    ids=["config", "data", "missing", "batchnorm", "idle", "device", "batch"],
)
def test_refusals(
    processes: Any, images: Path, tmp_path: Path, changes: dict[str, Any], each: Any, sentence: str
) -> None:
    values = settings(images, tmp_path / "run") | {"epochs": 1} | changes
    ranks = run_ranks(processes, values, len(each) or 2, tmp_path, each)
    assert {rank["kind"] for rank in ranks} <= {"UserError", "Agreed"}
    assert len({rank["said"] for rank in ranks}) == 1 and sentence in ranks[0]["said"]
    if "idle" not in values["model"]:
        assert not (tmp_path / "run").exists()


def test_what_travels_beside_the_gradients(processes: Any, images: Path, tmp_path: Path) -> None:
    """A flag on the device (4 bytes) and three on the hosts per step; per checkpoint what was found of each sample.

    ResNet-18's gradients are 44.7 MB per step. The store of a sample of T6 with ten survivors has 162 bytes, so a batch
    of 512 adds 83 kB to them: 0.2 %.
    """
    changes = {"epochs": 3, "augmenter": {"name": "sensei", "population": 10}, "space": "t6"}
    few = run_ranks(processes, settings(images, tmp_path / "few", **changes), 2, tmp_path)
    many = run_ranks(processes, settings(images, tmp_path / "all", **changes | {"epochs": 5}), 2, tmp_path)
    per_epoch = (many[0]["sent"] - few[0]["sent"]) / 2
    population = last(tmp_path / "few")[0]
    per_sample = sum(
        tensor[0].numel() * tensor.element_size()
        for name, tensor in population.items()
        if name.startswith("augmenter.") and tensor.ndim and len(tensor) == IMAGES
    )
    genes = 7 * BINS * 8  # how often each gene fell into each part of its range
    # flags of 5 steps; sums and counts, twice; a word that all is written
    words = 5 * (4 + 3) + 2 * (3 * 8 + genes + 2 * 8) + 8
    assert per_epoch == 19 * per_sample + words
    resnet18 = 4 * 11_173_962
    assert (256 * per_sample + 7 + words / 5) / resnet18 < 0.01


def test_streamed_files_on_two_ranks_do_what_held_ones_do_on_one(processes: Any, images: Path, tmp_path: Path) -> None:
    """Killed and resumed: the same order, variants, populations and weights."""
    with np.load(images) as stored:
        for part in ("train", "test"):
            for number, (pixels, label) in enumerate(zip(stored[f"x_{part}"], stored[f"y_{part}"], strict=True)):
                path = tmp_path / "images" / part / str(label) / f"{number:03d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)
    changes: dict[str, Any] = {"augmenter": AUGMENTERS["sensei"], "epochs": 2, "checkpoint_minutes": 1e-9}
    held = settings(tmp_path / "images", tmp_path / "held", **changes)
    streamed = settings(tmp_path / "images", tmp_path / "streamed", **changes, stream=True, workers=0)
    assert [rank["said"] for rank in run_ranks(processes, held, 1, tmp_path)] == [""]
    run_ranks(processes, streamed, 2, tmp_path, rank=1, step=7, what="SIGKILL")
    assert [rank["said"] for rank in run_ranks(processes, streamed, 2, tmp_path)] == ["", ""]
    assert_alike(tmp_path / "held", tmp_path / "streamed")
    for line in Run(tmp_path / "streamed").read_log():
        assert line["images_per_second"] > 0 and 0 <= line["data_seconds"] <= line["seconds"]


def torchrun(images: Path, out: Path, model: str, epochs: int, *options: str) -> subprocess.CompletedProcess[str]:
    """`ukemi train` on two ranks, as a user starts it."""
    source = Path(__file__).parents[2] / "src"
    path = os.pathsep.join([str(source), str(Path(__file__).parent)])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    train_it = ["-m", "ukemi", "train", "--data", str(images), "--batch-size", "8", "--device", "cpu"]
    train_it += ["--epochs", str(epochs), "--model", f"rank_net:{model}", "--validation", "0", "--out", str(out)]
    return subprocess.run(
        [*launcher, "--monitor-interval", "0.1", *options, *train_it],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_torchrun_trains_and_picks_up_a_lost_rank(images: Path, tmp_path: Path) -> None:
    """The command itself: one of the ranks kills itself once; torchrun starts both again and the run goes on."""
    ended = torchrun(images, tmp_path / "run", "dying", 3, "--max-restarts", "1")
    assert ended.returncode == 0, ended.stderr
    run = Run(tmp_path / "run")
    assert [line["epoch"] for line in run.read_log()] == [0, 1, 2] and run.weights_path.exists()
    assert ended.stdout.count("weights:") == 1


def test_a_rank_whose_work_is_done_ends_well(images: Path, tmp_path: Path) -> None:
    """Threads of the process group may abort a process that takes Python down; what was registered to run at the end
    runs all the same."""
    ended = torchrun(images, tmp_path / "run", "late", 1)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("last words") == 2 and ended.stdout.count("weights:") == 1

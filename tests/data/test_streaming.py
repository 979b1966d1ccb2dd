"""Processes that decode ahead: the same batches in the same order, and what goes wrong arrives as a sentence."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ukemi.data import DataSet, load
from ukemi.data.decoding import Files, Paths
from ukemi.data.streaming import workers_for
from ukemi.errors import UserError

COUNT = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(COUNT):
        path = tmp_path / "ab"[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        values = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(values).save(path)
    return tmp_path


def loaded(folder: Path, workers: int | None) -> DataSet:
    return load(folder, stream=True, workers=workers)


def test_processes_give_the_batches_that_threads_and_memory_give(folder: Path) -> None:
    held = load(folder).train
    order = torch.randperm(len(held), generator=torch.Generator().manual_seed(1)).split(4)
    state = torch.get_rng_state()
    for workers in (0, 2):
        found = list(loaded(folder, workers).train.batches(order, "cpu"))
        assert len(found) == len(order)
        for batch, positions in zip(found, order, strict=True):
            expected = held.batch(positions, "cpu")
            assert torch.equal(batch.images, expected.images) and torch.equal(batch.index, expected.index)
            assert torch.equal(batch.labels, expected.labels)
    assert torch.equal(torch.get_rng_state(), state)  # no draw from the global generator


def test_a_damaged_file_is_named_by_the_process_that_decodes_it(folder: Path) -> None:
    data = loaded(folder, 1).train
    for damaged in folder.glob("a/*.png"):
        damaged.write_bytes(damaged.read_bytes()[:70])
    batches = data.batches(torch.arange(len(data)).split(5), "cpu")
    with pytest.raises(UserError, match=r"^data: [^\n]*a/\d\d\.png can't be decoded \([^\n]*\)\.$"):
        list(batches)


def test_how_many_processes() -> None:
    assert workers_for(torch.zeros(3), 100) == 0
    files = Files([Path("a")], (2, 2), 1)
    assert workers_for(files, 3) == 0 and 1 <= workers_for(files, 1000) <= 8
    assert workers_for(Files([Path("a")], (2, 2), 1, 5), 1000) == 5
    assert (
        workers_for(Files([Path("a")], (2, 2), 1, 5), 2) == 2 and workers_for(Files([Path("a")], (2, 2), 1, 0), 9) == 0
    )


def test_many_paths_are_small_and_come_back() -> None:
    paths = [Path(f"/data/train/class {number % 7}/Bild-{number}-ä.png") for number in range(5000)]
    kept = Paths(paths)
    assert list(kept) == paths and kept[3:9:2] == paths[3:9:2] and len(kept) == 5000
    assert len(pickle.dumps(kept)) < 5000 * (len(os.fsencode(paths[-1])) + 9)
    assert pickle.loads(pickle.dumps(kept))[4999] == paths[-1]


def test_what_is_stored_as_arrays_can_not_be_streamed() -> None:
    with pytest.raises(UserError, match=r"^stream: fashion-mini is read as a whole"):
        load("fashion-mini", stream=True)


def test_files_that_are_decoded_when_asked_for_are_had_whole_again(folder: Path) -> None:
    whole, held = loaded(folder, 0).whole(), load(folder).whole()
    assert whole is not None and held is not None and len(whole) == COUNT
    rows = torch.arange(COUNT)
    assert torch.equal(torch.as_tensor(whole.images[rows]), torch.as_tensor(held.images[rows]))
    assert torch.equal(whole.labels, held.labels) and whole.index.tolist() == list(range(COUNT))

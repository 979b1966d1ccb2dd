"""CIFAR-10: both versions, and pickles that ask for more than arrays."""

import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ukemi.data import load
from ukemi.data.cifar import TEST, TRAIN, read_cifar, read_python
from ukemi.data.classes import CIFAR
from ukemi.errors import UserError

COUNT = 4


def batch(seed: int, count: int = COUNT) -> tuple[NDArray[np.uint8], list[int]]:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 3072), np.uint8), random.integers(0, 10, count).tolist()


def string(content: bytes) -> bytes:
    return (
        b"T" + len(content).to_bytes(4, "little") + content
        if len(content) > 255
        else b"U" + bytes([len(content)]) + content
    )


def python2(pixels: NDArray[np.uint8], labels: list[int]) -> bytes:
    """The opcodes that Python 2's cPickle and an old numpy wrote: byte strings, tuples, BUILD."""
    small = b"".join(b"K" + bytes([label]) for label in labels)
    rows = b"M" + len(pixels).to_bytes(2, "little")
    columns = b"M" + (3072).to_bytes(2, "little")
    kind = b"cnumpy\ndtype\n" + b"(" + string(b"u1") + b"K\x00K\x01tR"
    kind += b"(K\x03" + string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + string(b"b") + b"\x87R"
    array += b"(K\x01" + rows + columns + b"\x86" + kind + b"\x89" + string(pixels.tobytes()) + b"tb"
    return b"\x80\x02}(" + string(b"data") + array + string(b"labels") + b"](" + small + b"e" + b"u."


def python3(protocol: int) -> Any:
    return lambda pixels, labels: pickle.dumps({"data": pixels, "labels": labels}, protocol)


def binary(pixels: NDArray[np.uint8], labels: list[int]) -> bytes:
    return np.column_stack([np.array(labels, np.uint8), pixels]).tobytes()


def write(folder: Path, form: Any, ending: str = "", **counts: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, stem in enumerate(TRAIN + TEST):
        (folder / (stem + ending)).write_bytes(form(*batch(seed, counts.get(stem, COUNT))))


@pytest.mark.parametrize(
    ("form", "ending", "inner"),
    [
        (binary, ".bin", "cifar10/cifar-10-batches-bin"),
        (binary, ".bin", ""),
        (python2, "", "cifar-10-batches-py"),
        (python3(2), "", "cifar10"),
        (python3(4), "", ""),
    ],
)
def test_all_versions_give_the_same_pixels(tmp_path: Path, form: Any, ending: str, inner: str) -> None:
    write(tmp_path / inner, form, ending)
    data = load("cifar10", folder=tmp_path)
    expected = np.concatenate([batch(seed)[0] for seed in range(5)]).reshape(-1, 3, 32, 32)
    assert isinstance(data.train.images, torch.Tensor)
    assert np.array_equal(data.train.images.numpy(), expected)
    assert data.train.labels.tolist() == [label for seed in range(5) for label in batch(seed)[1]]
    assert data.test.labels.tolist() == batch(5)[1]
    assert data.classes == CIFAR


def test_the_hand_written_pickle_is_what_python_2_wrote() -> None:
    names = {opcode.name for opcode, _, _ in pickletools.genops(python2(*batch(0)))}
    assert {"PROTO", "GLOBAL", "SHORT_BINSTRING", "BINSTRING", "REDUCE", "BUILD"} <= names


class Malice:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "call", [(os.system, "touch {}"), (eval, "open({!r}, 'w')"), (getattr, "x", "upper"), (np.load, "{}")]
)
def test_a_malicious_pickle_is_refused_and_does_nothing(tmp_path: Path, protocol: int, call: tuple[Any, ...]) -> None:
    mark, path = tmp_path / "mark", tmp_path / "batch"
    arguments = [argument.format(str(mark)) for argument in call[1:]]
    path.write_bytes(pickle.dumps({"data": Malice(call[0], *arguments), "labels": [1]}, protocol))
    with pytest.raises(
        UserError, match=r"batch asks to build .*, which a CIFAR-10 batch never does, and was refused\.$"
    ):
        read_python(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cnumpy.core.multiarray\n_reconstruct\n}(S'__code__'\nNu\x86b.",  # sets an attribute of what it was handed
        b"cnumpy\nndarray\n}S'__setstate__'\nNsb.",
        b"cnumpy\nndarray\n(I1\ntR.",
        b"P1\n.",
        b"\x80\x02}.",
        b"I1\n.",
        b"",
    ],
)
def test_odd_pickles_are_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "batch"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"^data: .*batch"):
        read_python(path)
    path.write_bytes(python2(*batch(0)))
    assert len(read_python(path)[1]) == COUNT  # and nothing was changed for the next one


def test_pixels_that_are_not_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({"data": np.zeros((1, 3072)), "labels": [1]}, 2))
    with pytest.raises(UserError, match="should hold pixels as bytes"):
        read_python(path)


def test_a_shape_that_does_not_fit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, 2))
    with pytest.raises(UserError, match="should hold 3072 pixels for each label"):
        read_python(path)


@pytest.mark.parametrize(("form", "ending"), [(binary, ".bin"), (python2, "")])
def test_a_truncated_file_is_named(tmp_path: Path, form: Any, ending: str) -> None:
    write(tmp_path, form, ending)
    path = tmp_path / f"data_batch_3{ending}"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=rf"data_batch_3{ending} is truncated"):
        read_cifar(tmp_path)


def test_a_file_cut_between_two_records_is_named(tmp_path: Path) -> None:
    write(tmp_path, binary, ".bin", data_batch_2=COUNT - 1)
    with pytest.raises(UserError, match="data_batch_2 is truncated: it holds 3 images, but data_batch_1 holds 4"):
        read_cifar(tmp_path)


def test_a_label_out_of_range_is_told(tmp_path: Path) -> None:
    write(tmp_path, binary, ".bin")
    path = tmp_path / "test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    with pytest.raises(UserError, match="label 10 is beyond its 10 classes"):
        read_cifar(tmp_path)

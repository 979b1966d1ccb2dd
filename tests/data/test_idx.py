"""idx files: round trip, and each way in which one can be wrong."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from ukemi.data import load
from ukemi.data.classes import FASHION
from ukemi.data.idx import read_idx, read_idx_set
from ukemi.errors import UserError


def idx(array: NDArray[np.uint8]) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(folder: Path, *, packed: bool = True, train: int = 12, test: int = 5, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for stem, count in (("train", train), ("t10k", test)):
        for kind, array in (
            ("images-idx3", random.integers(0, 256, (count, 28, 28), np.uint8)),
            ("labels-idx1", (np.arange(count) % 10).astype(np.uint8)),
        ):
            content = idx(array)
            path = folder / f"{stem}-{kind}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(content) if packed else content)


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=4, max_side=6)), st.booleans())
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, array: NDArray[np.uint8], packed: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip"
    path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    assert np.array_equal(read_idx(path, array.ndim), array)


@given(st.data())
def test_a_cut_file_is_never_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = idx(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
    path = tmp_path_factory.getbasetemp() / "cut"
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(UserError, match=r"^data: .*cut"):
        read_idx(path, 3)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("inner", ["", "{name}", "{name}/MNIST/raw"])
def test_official_files_are_found_and_read(tmp_path: Path, packed: bool, name: str, inner: str) -> None:
    write(
        tmp_path / inner.format(name=name).replace("MNIST", "MNIST" if name == "mnist" else "FashionMNIST"),
        packed=packed,
    )
    data = load(name, folder=tmp_path)
    assert (data.name, len(data.train), len(data.test)) == (name, 12, 5)
    assert data.train.images.shape == (12, 1, 28, 28)
    assert data.train.images[torch.tensor([0])].dtype == torch.uint8
    assert data.train.labels.tolist() == [*range(10), 0, 1]
    assert data.classes == (FASHION if name == "fashion-mnist" else tuple("0123456789"))


def test_gzipped_content_is_known_by_its_bytes_not_its_name(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(idx(np.zeros((2, 2), np.uint8))))
    assert read_idx(path, 2).shape == (2, 2)


def test_the_wrong_magic_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(idx(np.zeros(4, np.uint8)))
    with pytest.raises(UserError, match=r"magic number 00000803, but begins with 00000801\.$"):
        read_idx(path, 3)


def test_more_bytes_than_promised_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(idx(np.zeros(4, np.uint8)) + b"x")
    with pytest.raises(UserError, match=r"promises 4 bytes of shape .4., but 5 follow"):
        read_idx(path, 1)


def test_a_gzip_that_breaks_off_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte.gz is truncated or damaged"):
        load("mnist", folder=tmp_path)


def test_a_damaged_labels_file_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(UserError, match=r"train-labels-idx1-ubyte.gz is truncated or damaged"):
        load("mnist", folder=tmp_path)


def test_labels_that_do_not_match_are_told(tmp_path: Path) -> None:
    write(tmp_path, packed=False)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(UserError, match=r"12 images but 3 labels"):
        load("mnist", folder=tmp_path)


def test_a_label_out_of_range_is_told(tmp_path: Path) -> None:
    write(tmp_path, packed=False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.full(5, 10, np.uint8)))
    with pytest.raises(UserError, match=r"label 10 is beyond its 10 classes"):
        load("mnist", folder=tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match=r"lacks t10k-labels-idx1-ubyte.gz"):
        read_idx_set(tmp_path, "mnist", FASHION)


def test_the_other_set_with_the_same_file_names_is_not_mistaken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hashlib import md5

    from ukemi.data import idx as module

    write(tmp_path)
    labels = gzip.decompress((tmp_path / "train-labels-idx1-ubyte.gz").read_bytes())
    monkeypatch.setattr(module, "_OFFICIAL", {md5(labels).hexdigest(): "fashion-mnist"})
    assert load("fashion-mnist", folder=tmp_path).name == "fashion-mnist"
    with pytest.raises(UserError, match=r"mnist was not found"):
        load("mnist", folder=tmp_path)

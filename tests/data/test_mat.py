"""MATLAB 5 files, against the ones that scipy writes; SVHN and IMDB-WIKI on top."""

import contextlib
import struct
import zlib
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from PIL import Image

from ukemi.data import load
from ukemi.data.imdb_wiki import age, read_imdb_wiki
from ukemi.data.mat import read_mat
from ukemi.errors import UserError

KINDS = st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "i8", "u8", "f4", "f8"])


@given(st.data(), st.booleans())
def test_numbers_are_read_as_scipy_wrote_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, packed: bool
) -> None:
    kind = data.draw(KINDS)
    array = data.draw(arrays.arrays(kind, arrays.array_shapes(min_dims=2, max_dims=4, max_side=4)))
    path = tmp_path_factory.getbasetemp() / "numbers.mat"
    scipy.io.savemat(path, {"other": np.ones(3), "x": array}, do_compression=packed)
    read = read_mat(path, ["x"])["x"]
    assert read.dtype == array.dtype
    assert np.array_equal(read, array, equal_nan=array.dtype.kind == "f")


@pytest.mark.parametrize("packed", [True, False])
def test_structs_cells_and_texts_are_read(tmp_path: Path, packed: bool) -> None:
    texts = np.array(["nm1.jpg", "Zoë", "a much longer text than eight bytes"], dtype=object)
    content = {"s": {"texts": texts, "numbers": np.arange(3.0), "skipped": {"deep": 1}, "one": "word"}}
    scipy.io.savemat(tmp_path / "s.mat", content, do_compression=packed)
    read = read_mat(tmp_path / "s.mat", ["s"], ["texts", "numbers", "one"])["s"]
    assert read["texts"] == list(texts)
    assert read["numbers"].flatten().tolist() == [0, 1, 2]
    assert read["one"] == "word"
    assert "skipped" not in read


def element(kind: int, content: bytes) -> bytes:
    return struct.pack(">II", kind, len(content)) + content + bytes(-len(content) % 8)


def test_a_file_of_the_other_byte_order_is_read(tmp_path: Path) -> None:
    numbers = np.array([[1, 2, 300]], ">i2")
    parts = element(6, struct.pack(">II", 6, 0)) + element(5, struct.pack(">ii", 1, 3)) + element(1, b"x")
    content = b"MATLAB 5.0".ljust(124) + b"\x01\x00MI" + element(14, parts + element(3, numbers.tobytes()))
    (tmp_path / "big.mat").write_bytes(content)
    read = read_mat(tmp_path / "big.mat", ["x"])["x"]
    assert read.dtype == np.float64
    assert read.tolist() == [[1, 2, 300]]


def svhn(folder: Path, part: str, labels: list[int], packed: bool = True) -> NDArray[np.uint8]:
    folder.mkdir(exist_ok=True)
    pixels = np.random.default_rng(len(labels)).integers(0, 256, (32, 32, 3, len(labels)), np.uint8)
    content = {"X": pixels, "y": np.array(labels, np.uint8)[:, None]}
    scipy.io.savemat(folder / f"{part}_32x32.mat", content, do_compression=packed)
    return pixels


@pytest.mark.parametrize("packed", [True, False])
def test_svhn_is_read_and_label_10_means_0(tmp_path: Path, packed: bool) -> None:
    pixels = svhn(tmp_path / "svhn", "train", [1, 10, 9, 2, 3], packed)
    svhn(tmp_path / "svhn", "test", [10, 5], packed)
    data = load("svhn", folder=tmp_path)
    assert data.train.labels.tolist() == [1, 0, 9, 2, 3]
    assert data.test.labels.tolist() == [0, 5]
    assert np.array_equal(np.asarray(data.train.images), pixels.transpose(3, 2, 0, 1))
    assert data.classes == tuple("0123456789")


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kept", [40, 128, 133, 150, 900, -1])
def test_a_truncated_file_is_named(tmp_path: Path, packed: bool, kept: int) -> None:
    for part in ("train", "test"):
        svhn(tmp_path, part, [1, 2], packed)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"^data: .*train_32x32.mat"):
        load("svhn", folder=tmp_path)


@given(st.integers(128, 400), st.integers(0, 255))
def test_a_flipped_byte_never_escapes_as_another_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.mat"
    scipy.io.savemat(path, {"s": {"a": np.arange(3.0), "b": np.array(["x", "yz"], dtype=object)}})
    content = bytearray(path.read_bytes())
    content[min(at, len(content) - 1)] = value
    path.write_bytes(content)
    found: dict[str, object] = {}
    with contextlib.suppress(UserError):
        found = dict(read_mat(path, ["s"], ["a", "b"]))
    assert set(found) <= {"s"}


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(512))
    with pytest.raises(UserError, match=r"is a MATLAB 7.3 file; save it with -v7"):
        read_mat(path, ["x"])
    path.write_bytes(b"GIF89a".ljust(512))
    with pytest.raises(UserError, match=r"no MATLAB 5 file: its header lacks the magic letters IM"):
        read_mat(path, ["x"])


def test_damaged_compression_and_missing_variables_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"y": np.ones(3)})
    with pytest.raises(UserError, match=r"lacks the variable x"):
        read_mat(path, ["x"])
    packed = zlib.compress(b"x" * 100)[:-8]
    path.write_bytes(path.read_bytes()[:128] + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(UserError, match=r"truncated: a compressed variable breaks off"):
        read_mat(path, ["x"])


def test_svhn_labels_out_of_range_or_of_another_number_are_told(tmp_path: Path) -> None:
    svhn(tmp_path, "test", [1, 2])
    svhn(tmp_path, "train", [1, 11])
    with pytest.raises(UserError, match=r"labels in .* should lie in 1 to 10, but 1 to 11 was given"):
        load("svhn", folder=tmp_path)
    scipy.io.savemat(tmp_path / "train_32x32.mat", {"X": np.zeros((32, 32, 3, 3), np.uint8), "y": np.ones((2, 1))})
    with pytest.raises(UserError, match=r"3 images but 2 labels"):
        load("svhn", folder=tmp_path)
    scipy.io.savemat(tmp_path / "train_32x32.mat", {"X": np.zeros((3, 3)), "y": np.ones((2, 1))})
    with pytest.raises(UserError, match=r"X in .* should be uint8 of the shape"):
        load("svhn", folder=tmp_path)


def born(year: int, month: int = 1, day: int = 1) -> float:
    return date(year, month, day).toordinal() + 366.0


def imdb(folder: Path, part: str = "imdb", **changed: Any) -> None:
    """Twenty persons with two photographs each, of which one has no face and one an impossible age."""
    count = 40
    paths = [f"{number % 3:02d}/face{number}.jpg" for number in range(count)]
    content: dict[str, Any] = {
        "dob": np.array([born(1980 - number // 2 * 3) for number in range(count)]),
        "photo_taken": np.full(count, 2000, np.uint16),
        "full_path": np.array(paths, dtype=object),
        "gender": np.ones(count),
        "name": np.array([f"Person {number // 2}" for number in range(count)], dtype=object),
        "face_score": np.r_[-np.inf, np.ones(count - 1)],
        "celeb_names": np.array(["x", "yy"], dtype=object),
    }
    content["photo_taken"][39] = 1900
    content |= changed
    scipy.io.savemat(
        folder / f"{part}.mat", {part: {key: value for key, value in content.items() if value is not None}}
    )
    for number, path in enumerate(paths):
        (folder / path).parent.mkdir(exist_ok=True)
        Image.new("RGB", (20, 30), (number, 0, 0)).save(folder / path)


def test_imdb_wiki_gives_classes_of_age_and_parts_persons(tmp_path: Path) -> None:
    folder = tmp_path / "imdb-wiki" / "imdb_crop"
    folder.mkdir(parents=True)
    imdb(folder)
    data = load("imdb-wiki", folder=tmp_path, size=(12, 8))
    assert data.classes == ("under 25", "25 to 34", "35 to 44", "45 to 54", "55 and over")
    assert len(data.train) + len(data.test) == 38
    assert data.train.images.shape[1:] == (3, 12, 8)
    assert data.train.groups is not None
    assert data.test.groups is not None
    assert not set(data.train.groups.tolist()) & set(data.test.groups.tolist())
    assert load("imdb-wiki", folder=tmp_path).train.images.shape[1:] == (3, 128, 128)


def test_imdb_wiki_takes_other_classes(tmp_path: Path) -> None:
    imdb(tmp_path)
    data = read_imdb_wiki(tmp_path, size=(4, 4), ages=(40,))
    assert data.classes == ("under 40", "40 and over")
    assert set(data.train.labels.tolist()) == {0, 1}
    with pytest.raises(UserError, match=r"ages: the first ages of the classes should rise"):
        read_imdb_wiki(tmp_path, ages=(40, 30))


def test_both_parts_of_imdb_wiki_are_read_together(tmp_path: Path) -> None:
    imdb(tmp_path)
    imdb(tmp_path, "wiki")
    assert read_imdb_wiki(tmp_path, size=(4, 4)).train.identities == 76


def test_an_age_counts_whole_years_to_the_middle_of_the_year() -> None:
    birthdays = np.array([born(1970, 7, 1), born(1970, 7, 3), born(1970, 1, 1), born(2001), np.nan])
    years = age(birthdays, np.array([2000.0, 2000.0, 2000.0, 2000.0, 2000.0]))
    assert years[:4].tolist() == [30, 29, 30, -1]
    assert np.isnan(years[4])


def test_a_faulty_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds neither imdb.mat nor wiki.mat"):
        read_imdb_wiki(tmp_path)
    imdb(tmp_path, face_score=np.full(40, -np.inf))
    with pytest.raises(UserError, match=r"none of the 40 faces"):
        read_imdb_wiki(tmp_path)
    imdb(tmp_path, face_score=np.ones(3))
    with pytest.raises(UserError, match=r"differ in length .3, 40"):
        read_imdb_wiki(tmp_path)
    imdb(tmp_path, name=None)
    with pytest.raises(UserError, match=r"lacks the field name"):
        read_imdb_wiki(tmp_path)

"""The .npz form: layouts, and each way in which a file can be wrong."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ukemi.data import load
from ukemi.data.npz import channels_first, read_npz
from ukemi.errors import UserError

SIDES = st.integers(4, 7)


def four(count: int = 6, **changed: Any) -> dict[str, Any]:
    images = np.random.default_rng(0).integers(0, 256, (count, 5, 4), np.uint8)
    labels = np.arange(count) % 3
    given = {"x_train": images, "y_train": labels, "x_test": images[:3], "y_test": labels[:3]} | changed
    return {key: value for key, value in given.items() if value is not None}


def saved(folder: Path, **content: Any) -> Path:
    np.savez(folder / "set.npz", **content)
    return folder / "set.npz"


def refused(folder: Path, **content: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(saved(folder, **content))
    assert str(caught.value).startswith("data: ")
    return str(caught.value)


@given(st.data(), st.sampled_from(["uint8", "float32", "float64"]))
def test_every_layout_gives_the_same_pixels(data: st.DataObject, kind: str) -> None:
    count, height, width = data.draw(st.integers(1, 4)), data.draw(SIDES), data.draw(SIDES)
    channels = data.draw(st.sampled_from([1, 3]))
    elements = st.integers(0, 255) if kind == "uint8" else st.floats(0, 1, width=32)
    first = data.draw(arrays.arrays(kind, (count, channels, height, width), elements=elements))
    layouts = [first, first.transpose(0, 2, 3, 1)] + ([first[:, 0]] if channels == 1 else [])
    for layout in layouts:
        read = channels_first(layout, "data")
        assert read.dtype == (torch.uint8 if kind == "uint8" else torch.float32)
        assert np.array_equal(read.numpy(), first.astype(read.numpy().dtype))


def test_four_arrays(tmp_path: Path) -> None:
    data = load(saved(tmp_path, **four()))
    assert (data.name, len(data.train), len(data.test)) == ("set", 6, 3)
    assert data.train.images.shape == (6, 1, 5, 4)
    assert data.classes == ("0", "1", "2")
    assert data.test.classes == data.classes


def test_class_names_and_groups(tmp_path: Path) -> None:
    content = four(classes=np.array(["cat", "dog", "cow"]), groups_train=np.arange(6) // 2)
    data = load(saved(tmp_path, **content))
    assert data.classes == ("cat", "dog", "cow")
    assert data.train.groups is not None
    assert data.train.groups.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("keys", [("images", "labels"), ("x", "y")])
def test_two_arrays_are_split_by_the_seed(tmp_path: Path, keys: tuple[str, str]) -> None:
    content = dict(zip(keys, (np.zeros((20, 3, 6, 6)), np.arange(20)[:, None] % 4), strict=True))
    data, again, other = (read_npz(saved(tmp_path, **content), seed=seed) for seed in (1, 1, 2))
    assert (len(data.train), len(data.test)) == (16, 4)
    assert data.test.index.tolist() == again.test.index.tolist() != other.test.index.tolist()
    assert data.train.identities == data.test.identities == 20


def test_the_test_part_may_have_fewer_classes(tmp_path: Path) -> None:
    data = load(saved(tmp_path, **four(y_test=np.zeros(3, int))))
    assert data.test.classes == ("0", "1", "2")


def test_missing_keys_are_named(tmp_path: Path) -> None:
    assert "lacks y_test; it holds x_test, x_train, y_train." in refused(tmp_path, **four(y_test=None))
    assert "lacks x_train and y_train" in refused(tmp_path, **four(x_train=None, y_train=None))
    assert "lacks labels" in refused(tmp_path, images=np.zeros((2, 4, 4), np.uint8))
    assert "but it holds arr." in refused(tmp_path, arr=np.zeros(3))


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    assert "never unpickled" in refused(tmp_path, **four(y_train=np.array([1, "a", None, 1, 1, 1], dtype=object)))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"no archive at all"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"^data: .*x.npz"):
        load(path)


def test_a_bare_array_and_a_cut_archive_are_refused(tmp_path: Path) -> None:
    bare = io.BytesIO()
    np.save(bare, np.zeros(3))
    path = tmp_path / "x.npz"
    for content in (bare.getvalue(), saved(tmp_path, **four()).read_bytes()[:-40]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"x.npz can't be read as an .npz file"):
            load(path)


def test_an_archive_that_ends_early_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*args: object, **options: object) -> None:
        raise EOFError  # as zipfile does, without a word

    path = saved(tmp_path, **four())
    monkeypatch.setattr(np, "load", ended)
    with pytest.raises(UserError, match=r"set.npz can't be read as an .npz file \(it is cut short\)\.$"):
        load(path)


def test_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, **{key: value for key, value in four().items() if key != "x_train"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x_train.npy", b"no array")
    with pytest.raises(UserError, match=r"^data: .*x_train"):
        load(path)


def test_pixels_are_checked(tmp_path: Path) -> None:
    good = np.full((6, 5, 4), 0.5)
    nan, bright = good.copy(), good.copy()
    nan[2, 0, 0], bright[1, 1, 1] = np.nan, 255
    assert "image 2 has a pixel that is NaN or infinite" in refused(tmp_path, **four(x_train=nan))
    assert "pixels should lie in [0, 1], but 0.5 to 255 was given" in refused(tmp_path, **four(x_train=bright))
    assert "but int64 was given" in refused(tmp_path, **four(x_train=good.astype(np.int64)))
    assert "grey or RGB" in refused(tmp_path, **four(x_train=np.zeros((6, 5, 4, 4), np.uint8)))
    assert "grey or RGB" in refused(tmp_path, **four(x_train=np.zeros((6, 5), np.uint8)))


def test_labels_are_checked(tmp_path: Path) -> None:
    assert "6 images but 4 labels" in refused(tmp_path, **four(y_train=np.arange(4)))
    assert "one whole number per image is needed as its label, but [6, 3]" in refused(
        tmp_path, **four(y_train=np.eye(3, dtype=np.uint8)[[0, 1, 2, 0, 1, 2]])
    )
    assert "-1 is among them" in refused(tmp_path, **four(y_train=np.arange(6) - 1))
    assert "should hold whole numbers, but float64" in refused(tmp_path, **four(y_train=np.ones(6)))
    assert "one class only" in refused(tmp_path, **four(y_train=np.zeros(6, int)))
    assert "label 7 is beyond its 3 classes" in refused(tmp_path, **four(y_test=np.array([0, 1, 7])))
    assert "6 images but 2 groups" in refused(tmp_path, **four(groups_train=np.arange(2)))
    assert "there is no image in it" in refused(tmp_path, **four(x_test=np.zeros((0, 5, 4), np.uint8)))


def test_parts_of_different_sizes_are_told(tmp_path: Path) -> None:
    message = refused(tmp_path, **four(x_test=np.zeros((3, 8, 4), np.uint8)))
    assert "are 1 x 5 x 4 in its train part but 1 x 8 x 4 in its test part" in message

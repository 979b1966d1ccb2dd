"""Image folders: layouts, modes, sizes, memory, and each way in which one can be wrong."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ukemi.data import decoding, load
from ukemi.data.decoding import Files, decode, pixels
from ukemi.errors import UserError


def picture(path: Path, *, mode: str = "RGB", size: tuple[int, int] = (8, 6), shade: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(shade).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(values).convert(mode).save(path)
    return path


def write(root: Path, classes: str = "ab", count: int = 5, mode: str = "RGB") -> None:
    for name in classes:
        for number in range(count):
            picture(root / name / f"{number}.png", mode=mode, shade=10 * ord(name) + number)


def test_train_and_test_folders(tmp_path: Path) -> None:
    write(tmp_path / "train", "abc")
    write(tmp_path / "test", "bc", count=2)
    data = load(tmp_path)
    assert (data.name, data.classes) == (tmp_path.name, ("a", "b", "c"))
    assert data.train.images.shape == (15, 3, 6, 8)
    assert data.train.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert data.test.labels.tolist() == [1, 1, 2, 2]
    first = np.asarray(Image.open(tmp_path / "train/a/0.png")).transpose(2, 0, 1)
    assert np.array_equal(data.train.images[torch.tensor([0])][0], first)


def test_a_folder_val_stands_for_test(tmp_path: Path) -> None:
    write(tmp_path / "train")
    write(tmp_path / "val", count=1)
    assert len(load(str(tmp_path)).test) == 2


def test_classes_alone_are_split_by_the_seed(tmp_path: Path) -> None:
    write(tmp_path, count=10)
    data, again, other = (load(tmp_path, seed=seed) for seed in (0, 0, 1))
    assert (len(data.train), len(data.test)) == (16, 4)
    assert sorted(data.train.index.tolist() + data.test.index.tolist()) == list(range(20))
    assert data.test.index.tolist() == again.test.index.tolist() != other.test.index.tolist()


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write(tmp_path / "vehicles", "x")
    for number in range(5):
        picture(tmp_path / f"vehicles/train/{number}.png", shade=number)
    assert load(tmp_path / "vehicles").classes == ("train", "x")


def test_a_name_that_is_no_utf8_is_still_text(tmp_path: Path) -> None:
    """As an archive of another system leaves it; a page can't be written with what Python makes of such bytes."""
    for name in (b"caf\xe8", b"caf\xe9"):
        for number in range(5):
            picture(tmp_path / os.fsdecode(name) / f"{number}.png", shade=number)
    classes = load(tmp_path).classes
    assert classes == (r"caf\xe8", r"caf\xe9") and all(name.encode() for name in classes)


def test_other_files_and_hidden_folders_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    assert load(tmp_path).classes == ("a", "b")


def test_grey_stays_grey_only_where_all_are(tmp_path: Path) -> None:
    write(tmp_path, mode="L")
    assert load(tmp_path).train.channels == 1
    picture(tmp_path / "a" / "colour.png")
    assert load(tmp_path).train.channels == 3


@pytest.mark.parametrize(
    ("mode", "ending"), [("P", "png"), ("RGBA", "png"), ("1", "png"), ("L", "jpg"), ("CMYK", "jpg")]
)
def test_other_modes_become_rgb(tmp_path: Path, mode: str, ending: str) -> None:
    path = picture(tmp_path / f"x.{ending}", mode=mode)
    expected = np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(decode(path, (3, 6, 8)), expected)


def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path: Path) -> None:
    Image.new("P", (8, 6), 1).save(tmp_path / "x.png", transparency=b"\x00\x80")
    assert decode(tmp_path / "x.png", (3, 6, 8)).shape == (3, 6, 8)


def test_a_size_brings_all_images_to_it(tmp_path: Path) -> None:
    write(tmp_path)
    picture(tmp_path / "b" / "large.png", size=(30, 40))
    assert load(tmp_path, size=(16, 12)).train.size == (16, 12)


def test_what_does_not_fit_into_memory_is_decoded_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "train")
    write(tmp_path / "test")
    whole = load(tmp_path).train
    monkeypatch.setattr(decoding, "MEMORY_LIMIT", 100)
    lazy = load(tmp_path).train
    assert isinstance(whole.images, torch.Tensor)
    assert isinstance(lazy.images, Files)
    assert tuple(lazy.images.shape) == tuple(whole.images.shape)
    positions = torch.tensor([7, 0, 7])
    assert torch.equal(lazy.images[positions], whole.images[positions])
    parts = [part.split(0.3, 1) for part in (whole, lazy)]
    for eager, late in zip(*parts, strict=True):
        everything = torch.arange(len(eager))
        assert torch.equal(eager.batch(everything, "cpu").images, late.batch(everything, "cpu").images)


def test_a_file_damaged_later_is_named_when_it_is_asked_for(tmp_path: Path) -> None:
    files = Files([picture(tmp_path / "0.png"), picture(tmp_path / "1.png")], (6, 8), 3)
    (tmp_path / "1.png").write_bytes(b"gone")
    assert files[torch.tensor([0])].shape == (1, 3, 6, 8)
    with pytest.raises(UserError, match=r"1.png can't be decoded"):
        files[torch.tensor([0, 1])]


def test_many_files_are_decoded_in_their_order_with_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "SHOWN_FROM", 10)
    monkeypatch.setattr(decoding, "_AHEAD", 7)
    monkeypatch.setattr(decoding, "_watched", lambda: True)
    paths = []
    for number in range(40):
        paths.append(tmp_path / f"{number}.png")
        Image.new("L", (2, 2), number).save(paths[-1])
    images = pixels(paths, (2, 2), 1)
    assert images[torch.arange(40)][:, 0, 0, 0].tolist() == list(range(40))


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^data: .* should hold one folder of images per class, but no image"):
        load(tmp_path)


def test_images_that_lie_deeper_are_named(tmp_path: Path) -> None:
    picture(tmp_path / "inner" / "cat" / "a.png")
    with pytest.raises(UserError, match=r"lies in a folder right below it \(one is .*inner/cat/a\.png\)\.$"):
        load(tmp_path)


def test_an_empty_class_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "c").mkdir()
    with pytest.raises(UserError, match=r"^data: the class folder .*c holds no image\.$"):
        load(tmp_path)


def test_one_class_only_is_told(tmp_path: Path) -> None:
    write(tmp_path, "a")
    with pytest.raises(UserError, match=r"has one class only \('a'\); a classifier needs at least two\.$"):
        load(tmp_path)


def test_a_class_that_train_lacks_is_told(tmp_path: Path) -> None:
    write(tmp_path / "train", "ab")
    write(tmp_path / "test", "az")
    with pytest.raises(UserError, match=r"^data: class 'z' is in .*test, but .*train lacks it\.$"):
        load(tmp_path)


def test_a_missing_test_folder_is_told(tmp_path: Path) -> None:
    write(tmp_path / "train", "ab")
    with pytest.raises(UserError, match=r"has a folder train, but no folder test beside it\.$"):
        load(tmp_path)


def test_mixed_sizes_name_both_files(tmp_path: Path) -> None:
    write(tmp_path)
    picture(tmp_path / "b" / "odd.png", size=(9, 6))
    with pytest.raises(UserError, match=r"a/0.png has 6 x 8 and .*b/odd.png has 6 x 9; give a size"):
        load(tmp_path)


@pytest.mark.parametrize("kept", [0, 20, 80])
def test_a_damaged_image_is_named(tmp_path: Path, kept: int) -> None:
    write(tmp_path)
    path = tmp_path / "a" / "3.png"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"^data: .*a/3.png can't be decoded"):
        load(tmp_path)


def test_deep_pixels_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    Image.fromarray(np.zeros((6, 8), np.uint16)).save(tmp_path / "a" / "deep.png")
    with pytest.raises(UserError, match=r"deep.png should have 8 bits per pixel, but its mode is I;16"):
        load(tmp_path)


def test_a_test_part_alone_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "test" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "test" / name / "0.png")
    with pytest.raises(UserError, match=r"has a folder test, but no folder train beside it"):
        load(tmp_path)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("mode", "channels"), [("L", 3), ("RGB", 1), ("RGB", 3)])
def test_channels_that_are_asked_for(mode: str, channels: int, stream: bool, tmp_path: Path) -> None:
    write(tmp_path, mode=mode)
    data = load(tmp_path, channels=channels, stream=stream).train
    batch = data.batch(torch.arange(len(data)), "cpu").images
    assert batch.shape[1] == data.channels == channels
    if mode == "L":
        assert torch.equal(batch[:, 0], batch[:, 1]) and torch.equal(batch[:, 0], batch[:, 2])
        assert torch.equal(batch[:, :1], load(tmp_path).train.batch(torch.arange(len(data)), "cpu").images)

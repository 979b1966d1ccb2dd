"""Finding sets by name, the places, the survey, and sizes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ukemi.data import SOURCES, Data, load, loading, places, survey
from ukemi.data.classes import FASHION
from ukemi.errors import UserError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No place of the machine is looked at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UKEMI_DATA", raising=False)
    monkeypatch.setattr(loading, "_CACHE", tmp_path / "cache")
    return tmp_path


def save(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    images, labels = np.full((4, 28, 28), shade, np.uint8), np.arange(4)
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)


def test_the_embedded_set() -> None:
    data = load("fashion-mini")
    assert (data.name, len(data.train), len(data.test), data.classes) == ("fashion-mini", 6000, 1000, FASHION)
    assert data.train.images.shape == (6000, 1, 28, 28)
    assert torch.bincount(data.train.labels).tolist() == [600] * 10
    assert torch.bincount(data.test.labels).tolist() == [100] * 10


def test_places_in_their_order(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert places() == (Path("data"), elsewhere / "cache")
    monkeypatch.setenv("UKEMI_DATA", "~/sets")
    assert places() == (Path.home() / "sets", Path("data"), elsewhere / "cache")
    assert places("given") == (Path("given"),)


def test_the_first_place_wins(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = {"cache": 1, "data": 2, "variable": 3, "given": 4}
    monkeypatch.setenv("UKEMI_DATA", "variable")
    for home, shade in homes.items():
        save(elsewhere / home / "mnist.npz", shade)
        data = load("mnist", folder="given" if home == "given" else None)
        assert isinstance(data.train.images, torch.Tensor)
        assert int(data.train.images[0, 0, 0, 0]) == shade


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "fashion-mini"])
def test_every_set_is_read_from_an_npz_file(elsewhere: Path, name: str) -> None:
    save(elsewhere / "data" / name / f"{name}.npz")
    data = load(name)
    assert data.name == name
    assert data.classes == SOURCES[name].classes


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"^data: 'nosuch' is neither a known set \(fashion-mini, .*imdb-wiki\) nor an"):
        load("nosuch")
    with pytest.raises(UserError, match=r"did you mean cifar10\?$"):
        load("cifar-10")


def test_a_set_that_is_not_there_says_where_was_looked_and_how_to_get_it(elsewhere: Path) -> None:
    with pytest.raises(UserError) as caught:
        load("cifar10")
    message = str(caught.value)
    assert message.startswith(f"data: cifar10 was not found in data, {elsewhere / 'cache'}; ")
    assert "`ukemi data --get cifar10` downloads it (170 MB)" in message
    assert f"put the official files (https://www.cs.toronto.edu/~kriz/cifar.html) into {elsewhere}" in message


def test_a_set_that_can_not_be_downloaded_says_so() -> None:
    with pytest.raises(UserError, match=r"imdb-wiki was not found in .*; it can't be downloaded from here"):
        load("imdb-wiki", download=True)


def test_another_kind_of_file_is_refused(elsewhere: Path) -> None:
    (elsewhere / "x.txt").write_text("")
    with pytest.raises(UserError, match=r"x.txt should be a folder of images or of .tar shards, or an .npz file"):
        load("x.txt")


def test_a_size_resamples_arrays(elsewhere: Path) -> None:
    save(elsewhere / "grey.npz", 200)
    data = load("grey.npz", size=32)
    assert isinstance(data.train.images, torch.Tensor)
    assert data.train.images.shape == data.test.images.shape == (4, 1, 32, 32)
    assert data.train.images.dtype == torch.uint8
    assert data.train.images.unique().tolist() == [200]
    assert load("grey.npz", size=(14, 20)).train.size == (14, 20)


def test_a_size_resamples_floats_within_their_range(elsewhere: Path) -> None:
    images = np.random.default_rng(0).integers(0, 2, (4, 3, 9, 9)).astype(np.float32)
    np.savez(elsewhere / "x.npz", images=images, labels=np.arange(4))
    data = load("x.npz", size=13).train.images[torch.arange(3)]
    assert data.dtype == torch.float32
    assert 0 <= float(data.min()) <= float(data.max()) <= 1


@pytest.mark.parametrize("size", [0, -3, 5000, (3,), (3, 0)])
def test_an_impossible_size_is_told(size: object) -> None:
    with pytest.raises(UserError, match=r"^size: a side should lie in 1 to 4096 pixels"):
        load("fashion-mini", size=size)  # type: ignore[arg-type]


def test_the_survey_names_every_set(elsewhere: Path) -> None:
    save(elsewhere / "data" / "mnist.npz")
    rows = {row.name: row for row in survey()}
    assert list(rows) == list(SOURCES)
    assert rows["mnist"].found == Path("data/mnist.npz")
    assert rows["fashion-mini"].found is not None
    assert rows["cifar10"].found is None
    assert "`ukemi data --get cifar10` downloads it (170 MB)" in rows["cifar10"].get
    assert all(row.about and row.images and row.licence and row.looked for row in rows.values())


def test_the_entries_are_complete() -> None:
    for source in SOURCES.values():
        assert source.page.startswith("http")
        for file in source.files:
            assert len(file.md5) == 32
            assert file.size > 0
            assert all(url.endswith(file.name) for url in file.urls)


def test_channels_make_arrays_grey_as_pillow_does_and_grey_three_equal_ones(elsewhere: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 9, 7, 3), np.uint8)
    labels = np.arange(20) % 2
    np.savez("colour.npz", x_train=pixels, y_train=labels, x_test=pixels[:4], y_test=labels[:4])
    grey = load("colour.npz", channels=1)
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in pixels])
    assert grey.train.images.shape == (20, 1, 9, 7) and grey.test.channels == 1
    assert np.array_equal(as_numpy(grey.train)[:, 0], expected)
    assert load("colour.npz", channels=3).train.images.shape == (20, 3, 9, 7)  # as they are
    np.savez("floats.npz", x_train=pixels / 255.0, y_train=labels, x_test=pixels[:4] / 255.0, y_test=labels[:4])
    floats = as_numpy(load("floats.npz", channels=1).train)
    assert np.allclose(floats[:, 0], expected / 255, atol=0.51 / 255) and floats.max() <= 1
    three = load("fashion-mini", channels=3).test
    assert three.channels == 3
    assert all(torch.equal(as_tensor(three)[:, at], as_tensor(load("fashion-mini").test)[:, 0]) for at in range(3))


def as_tensor(data: Data) -> torch.Tensor:
    assert isinstance(data.images, torch.Tensor)
    return data.images


def as_numpy(data: Data) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return as_tensor(data).numpy()


@pytest.mark.parametrize("channels", [0, 2, 4, "3"])
def test_other_channels_are_told(channels: Any) -> None:
    with pytest.raises(UserError, match=rf"^channels: 1 or 3 is needed, but {channels} was given"):
        load("fashion-mini", channels=channels)

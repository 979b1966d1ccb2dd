"""GTSRB from folders as the official archives unpack."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ukemi.data import load
from ukemi.errors import UserError

HEADER = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\n"


def picture(path: Path, shade: int) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = 20 + shade % 7, 25 + shade % 5
    Image.new("RGB", (width, height), (shade, 100, 200)).save(path)
    return f"{path.name};{width};{height};5;5;{width - 5};{height - 5};"


def write(root: Path, *, truth: str = "GT-final_test.csv") -> None:
    """Classes 0 and 14 with two tracks of three frames each, and four test images."""
    for label in (0, 14):
        folder = root / "GTSRB/Final_Training/Images" / f"{label:05d}"
        rows = [
            picture(folder / f"{track:05d}_{frame:05d}.ppm", 10 * label + 3 * track + frame) + f"{label}\n"
            for track in (0, 1)
            for frame in range(3)
        ]
        (folder / f"GT-{label:05d}.csv").write_text(HEADER + "".join(rows))
    folder = root / "GTSRB/Final_Test/Images"
    rows = [picture(folder / f"{number:05d}.ppm", 50 + number) + f"{14 * (number % 2)}\n" for number in range(4)]
    (root / truth).write_text(HEADER + "".join(rows))


def test_images_labels_and_tracks_are_read(tmp_path: Path) -> None:
    write(tmp_path / "gtsrb")
    data = load("gtsrb", folder=tmp_path)
    assert data.train.images.shape == (12, 3, 32, 32)
    assert data.train.labels.tolist() == [0] * 6 + [14] * 6
    assert data.test.labels.tolist() == [0, 14, 0, 14]
    assert data.train.groups is not None
    assert data.train.groups.tolist() == [0] * 3 + [1] * 3 + [14000] * 3 + [14001] * 3
    assert (len(data.classes), data.classes[14]) == (43, "Stop")
    assert data.train.images[torch.tensor([11])][0, :, 5, 5].tolist() == [145, 100, 200]


def test_a_split_goes_by_track(tmp_path: Path) -> None:
    write(tmp_path)
    for seed in range(5):
        parts = load("gtsrb", folder=tmp_path).train.split(0.25, seed)
        tracks = [set(part.groups.tolist()) for part in parts if part.groups is not None]
        assert [len(part) for part in parts] == [9, 3]
        assert not tracks[0] & tracks[1]


@pytest.mark.parametrize("truth", ["GTSRB/GT-final_test.csv", "GTSRB/Final_Test/Images/GT-final_test.csv"])
def test_another_size_and_other_places_of_the_labels(tmp_path: Path, truth: str) -> None:
    write(tmp_path, truth=truth)
    assert load("gtsrb", folder=tmp_path, size=48).train.images.shape == (12, 3, 48, 48)


def test_the_npz_form_keeps_the_tracks(tmp_path: Path) -> None:
    pixels, labels = np.zeros((4, 32, 32, 3), np.uint8), np.array([0, 1, 2, 42], np.uint8)
    np.savez(
        tmp_path / "gtsrb32.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels, track_train=labels * 2
    )
    data = load("gtsrb", folder=tmp_path)
    assert data.train.groups is not None
    assert data.train.groups.tolist() == [0, 2, 4, 84]
    assert data.classes[42].startswith("End of no passing")


def test_a_table_of_another_form_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    table = tmp_path / "GTSRB/Final_Training/Images/00014/GT-00014.csv"
    table.write_text(table.read_text().replace(";", ","))
    with pytest.raises(UserError, match=r"GT-00014.csv should be a table with ';' between"):
        load("gtsrb", folder=tmp_path)
    table.write_text(HEADER)
    with pytest.raises(UserError, match=r"GT-00014.csv lists no image"):
        load("gtsrb", folder=tmp_path)


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "GTSRB/Final_Test/Images/00002.ppm").unlink()
    with pytest.raises(UserError, match=r"00002.ppm can't be decoded .*No such file"):
        load("gtsrb", folder=tmp_path)


def test_a_class_beyond_the_43_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    table = tmp_path / "GT-final_test.csv"
    table.write_text(table.read_text().replace(";14\n", ";43\n"))
    with pytest.raises(UserError, match=r"label 43 is beyond its 43 classes"):
        load("gtsrb", folder=tmp_path)


def test_a_name_without_a_track_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    table = tmp_path / "GTSRB/Final_Training/Images/00000/GT-00000.csv"
    table.write_text(table.read_text().replace("00000_00000.ppm", "stop.ppm"))
    with pytest.raises(UserError, match=r"stop.ppm should be named after its track and frame"):
        load("gtsrb", folder=tmp_path)

"""Labelled images: identities through subsets, batches, and the checks where pixels enter."""

from typing import Any

import pytest
import torch

from ukemi.data import Data, as_float, check_pixels, labelled
from ukemi.errors import UserError


class Counted:
    """Images that are made when they are asked for: row n is filled with n."""

    shape = (10, 1, 2, 2)

    def __getitem__(self, positions: torch.Tensor) -> torch.Tensor:
        return positions.to(torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2)


def made() -> Data:
    return labelled(Counted()[torch.arange(10)], torch.arange(10) % 2, "ab", groups=torch.arange(10) // 2)


@pytest.mark.parametrize("lazy", [False, True])
def test_identities_survive_subsets_of_subsets(lazy: bool) -> None:
    data = labelled(Counted(), torch.arange(10) % 2, "ab") if lazy else made()
    rows = data.take(torch.tensor([9, 4, 2, 7])).take(torch.tensor([3, 0]))
    batch = rows.batch(torch.tensor([0, 1]), "cpu")
    assert batch.index.tolist() == [7, 9]
    assert batch.labels.tolist() == [1, 1]
    assert (batch.images[:, 0, 0, 0] * 255).round().tolist() == [7, 9]
    assert (len(rows), rows.identities, rows.channels, rows.size) == (2, 10, 1, (2, 2))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_batches_come_in_their_order(lazy: bool, count: int) -> None:
    data = labelled(Counted(), torch.arange(10) % 2, "ab") if lazy else made()
    order = [torch.tensor([number, 9 - number]) for number in range(count)]
    batches = list(data.batches(order, "cpu"))
    assert [batch.index.tolist() for batch in batches] == [positions.tolist() for positions in order]


def test_data_on_the_device_stays_whole() -> None:
    moved = made().to("cpu")
    assert torch.equal(moved.index, torch.arange(10))
    lazy = labelled(Counted(), torch.zeros(10, dtype=torch.long), "ab")
    assert lazy.to("cpu") is lazy


def test_bytes_become_floats_and_floats_stay() -> None:
    assert as_float(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0, 1]
    images = torch.rand(3)
    assert as_float(images) is images


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3), r"shape \[N, C, H, W\], but \[2, 3\] was given"),
        (torch.zeros(2, 1, 0, 3), r"shape \[N, C, H, W\]"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.int32), r"uint8 or float, but torch.int32 was given"),
        (torch.full((2, 1, 3, 3), float("inf")), r"image 0 has a pixel that is NaN or infinite"),
        (torch.full((2, 1, 3, 3), -0.5), r"should lie in \[0, 1\], but -0.5 to -0.5 was given \(normalisation belongs"),
        (torch.full((2, 1, 3, 3), 200.0), r"200 to 200 was given \(those of 0 to 255 belong into uint8, or divided"),
    ],
)
def test_pixels_are_checked_where_they_enter(images: torch.Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_pixels(images)


def test_half_precision_and_grey_images_without_an_axis_are_taken() -> None:
    assert check_pixels(torch.rand(2, 1, 3, 3).half()).dtype == torch.float32
    assert labelled(torch.rand(2, 3, 3), torch.tensor([0, 1])).images.shape == (2, 1, 3, 3)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (torch.tensor([0, 6]), "they go from 0 to 5, but 6 is among them"),
        (torch.tensor([2, -1]), "they go from 0 to 5, but -1 is among them"),
        (torch.tensor([0.0, 1.0]), r"an int64 tensor \[n\] is needed, but torch.float32 \[2\] was given"),
        (torch.tensor([True, False]), r"but torch.bool \[2\] was given"),
        (torch.tensor(3), r"but torch.int64 \[\] was given"),
        ([0, 1], r"but \[0, 1\] was given"),
    ],
)
@pytest.mark.parametrize("ask", [Data.take, lambda data, at: data.batch(at, "cpu")], ids=["take", "batch"])
def test_positions_that_are_none_are_refused(ask: Any, wrong: Any, said: str) -> None:
    with pytest.raises(UserError, match=rf"^positions: .*{said}"):
        ask(labelled(torch.zeros(6, 1, 2, 2), torch.arange(6) % 2), wrong)


def test_a_mask_of_all_samples_takes_those_that_it_marks() -> None:
    data = labelled(Counted(), torch.arange(10) % 2, "ab")
    odd = data.take(data.labels == 1)
    assert odd.index.tolist() == [1, 3, 5, 7, 9] and len(odd.images[torch.arange(5)]) == 5 == odd.images.shape[0]
    assert not len(data.take(torch.arange(0)))


def test_data_say_what_they_are_and_not_every_pixel() -> None:
    data = labelled(torch.rand(6, 1, 8, 9), torch.arange(6) % 2).take(torch.arange(4))
    assert repr(data) == "Data(images=4, channels=1, size=(8, 9), classes=2, identities=6)"


@pytest.mark.parametrize(
    ("images", "labels", "said"),
    [
        (torch.rand(2, 1, 3, 3).numpy(), torch.tensor([0, 1]), "images: a torch tensor is needed, but a ndarray"),
        (torch.rand(2, 1, 3, 3), torch.tensor([0, 1]).numpy(), "labels: a torch tensor is needed, but a ndarray"),
        (torch.rand(2, 1, 3, 3), [0, 1], "labels: a torch tensor is needed, but a list"),
    ],
)
def test_arrays_of_numpy_and_lists_are_no_tensors(images: Any, labels: Any, said: str) -> None:
    with pytest.raises(UserError, match=f"^data: {said} was given\\.$"):
        labelled(images, labels)

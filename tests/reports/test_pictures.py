"""Pictures hold the pixels they were made from."""

from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from ukemi.reports.pictures import FIRE, RAMP, evidence, heat, nine_maps, picture, side_for


def _decoded(uri: str) -> Image.Image:
    head, body = uri.split(",")
    assert head == "data:image/png;base64"
    return Image.open(BytesIO(b64decode(body)))


@pytest.mark.parametrize("channels", [1, 3])
def test_small_images_arrive_pixel_by_pixel(channels: int) -> None:
    pixels = torch.randint(0, 256, (channels, 12, 9), generator=torch.Generator().manual_seed(0))
    seen = np.array(_decoded(picture(pixels / 255)))
    assert np.array_equal(seen if channels == 3 else seen[..., None], pixels.permute(1, 2, 0).numpy())


def test_large_images_are_reduced_and_keep_their_shape() -> None:
    assert _decoded(picture(torch.rand(3, 200, 100), 64)).size == (32, 64)
    assert _decoded(picture(torch.rand(5, 10, 10))).mode == "L"


def test_more_pictures_are_smaller_pictures() -> None:
    assert side_for(2, 3) == 128
    assert 32 <= side_for(200, 3) < side_for(40, 3) < 128
    assert side_for(10**6, 3) == 32


def test_heat_runs_from_pale_to_dark_with_the_last_row_on_top() -> None:
    seen = np.array(_decoded(heat(torch.tensor([[0.0, 99.0], [2.0, torch.nan]]), 4.0)))
    ends = [list(bytes.fromhex(colour[1:])) for colour in (RAMP[0], RAMP[-1])]
    assert seen[1].tolist() == ends
    assert seen[0, 1].tolist() == ends[1]
    assert seen[0, 0].tolist() == list(bytes.fromhex(RAMP[len(RAMP) // 2][1:]))


def test_the_ramp_grows_darker_with_every_step() -> None:
    light = [sum(w * v for w, v in zip((0.299, 0.587, 0.114), bytes.fromhex(c[1:]), strict=True)) for c in RAMP]
    assert light == sorted(light, reverse=True)


def test_evidence_is_brightest_where_the_map_is_highest() -> None:
    image, found = torch.full((3, 6, 8), 0.5), torch.zeros(6, 8)
    found[2, 3] = 7.0
    drawn = np.array(_decoded(evidence(image, found)), dtype=float)
    assert drawn.shape == (6, 8, 3) and np.unravel_index(drawn.sum(-1).argmax(), (6, 8)) == (2, 3)
    grey = round(0.5 * 255, 1)
    colours = [np.array(list(bytes.fromhex(one[1:])), dtype=float) for one in (FIRE[0], FIRE[-1])]
    assert np.abs(drawn[0, 0] - (0.75 * grey + 0.25 * colours[0])).max() <= 1
    assert np.abs(drawn[2, 3] - (0.25 * grey + 0.75 * colours[1])).max() <= 1
    flat = np.array(_decoded(evidence(torch.rand(1, 6, 8), torch.zeros(6, 8))))
    assert flat.shape == (6, 8, 3)  # nothing to see is no error


def test_nine_maps_are_a_sheet_of_images_by_models() -> None:
    images = torch.stack([torch.full((1, 4, 4), shade) for shade in (0.0, 0.5, 1.0)])
    answers = [["a", "b", "c"]] * 3
    sheet = nine_maps(images, torch.rand(3, 3, 4, 4), ["clean", "C&W", "BIM"], ["x", "y", "z"], answers)
    assert sheet.size == (4 * 128, 16 + 3 * 144)
    assert [sheet.getpixel((64, 16 + 144 * row + 64)) for row in range(3)] == [(0,) * 3, (128,) * 3, (255,) * 3]

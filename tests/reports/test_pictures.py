"""Pictures hold the pixels they were made from."""

from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from ukemi.reports.pictures import RAMP, heat, picture, side_for


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

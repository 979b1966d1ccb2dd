"""Tensors as PNG data that a page carries inside itself."""

from base64 import b64encode
from io import BytesIO
from math import isqrt

import numpy as np
from PIL import Image
from torch import Tensor

RAMP = ("#fdf6e3", "#f6d58e", "#ec9f5b", "#cf5f50", "#8f3460", "#43214f", "#160d22")
"""Low to high loss: every step is darker than the one before, so it reads in grey and for every eye."""
LARGEST, SMALLEST = 128, 32
"""pixels of a picture's longer side: large ones are reduced to what the page can carry"""


def side_for(pictures: int, channels: int, budget: int = 700_000) -> int:
    """The longest side that lets so many pictures stay within `budget` bytes, if none could be compressed."""
    return max(SMALLEST, min(LARGEST, isqrt(budget // max(1, pictures * channels))))


def picture(image_CHW: Tensor, side: int = LARGEST) -> str:
    """An image in [0, 1] with 1 or 3 channels (of others the mean is shown) as a data URI of PNG."""
    pixels = (image_CHW.detach().float().clamp(0, 1) * 255).round().byte().cpu()
    if len(pixels) not in (1, 3):
        pixels = pixels.float().mean(0, keepdim=True).round().byte()
    drawn = Image.fromarray(pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy())
    drawn.thumbnail((side, side), Image.Resampling.LANCZOS)  # only ever smaller
    return _data_uri(drawn)


def heat(losses_RT: Tensor, most: float) -> str:
    """A landscape as a picture with one pixel per cell, its last row on top; a loss of `most` or more is darkest."""
    share = (losses_RT.flip(0).double().nan_to_num(nan=most) / most).clamp(0, 1).numpy()
    stops = np.linspace(0, 1, len(RAMP))
    colours = np.array([_rgb(colour) for colour in RAMP], dtype=float)
    channels = [np.interp(share, stops, colours[:, channel]) for channel in range(3)]
    return _data_uri(Image.fromarray(np.stack(channels, -1).round().astype(np.uint8)))


def _rgb(colour: str) -> list[int]:
    return list(bytes.fromhex(colour.removeprefix("#")))


def _data_uri(image: Image.Image) -> str:
    body = BytesIO()
    image.save(body, "PNG", optimize=True)
    return "data:image/png;base64," + b64encode(body.getvalue()).decode()

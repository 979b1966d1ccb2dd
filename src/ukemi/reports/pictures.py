"""Tensors as PNG data that a page carries inside itself."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from math import isqrt
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

RAMP = ("#fdf6e3", "#f6d58e", "#ec9f5b", "#cf5f50", "#8f3460", "#43214f", "#160d22")
"""Low to high loss: every step is darker than the one before, so it reads in grey and for every eye."""
FIRE = ("#1b1f3b", "#3d3f8f", "#a63a72", "#f0663f", "#ffe066")
"""Little to much evidence: every step is brighter than the one before."""
LARGEST, SMALLEST = 128, 32
"""pixels of a picture's longer side: large ones are reduced to what the page can carry"""


def side_for(pictures: int, channels: int, budget: int = 700_000) -> int:
    """The longest side that lets so many pictures stay within `budget` bytes, if none could be compressed."""
    return max(SMALLEST, min(LARGEST, isqrt(budget // max(1, pictures * channels))))


def picture(image_CHW: Tensor, side: int = LARGEST) -> str:
    """An image in [0, 1] with 1 or 3 channels (of others the mean is shown) as a data URI of PNG."""
    return _data_uri(_drawn(image_CHW, side))


def _drawn(image_CHW: Tensor, side: int) -> Image.Image:
    pixels = (image_CHW.detach().float().clamp(0, 1) * 255).round().byte().cpu()
    if len(pixels) not in (1, 3):
        pixels = pixels.float().mean(0, keepdim=True).round().byte()
    drawn = Image.fromarray(pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy())
    drawn.thumbnail((side, side), Image.Resampling.LANCZOS)  # only ever smaller
    return drawn


def strip(images_VCHW: Tensor, side: int = LARGEST) -> str:
    """Images beside each other as one data URI of PNG."""
    drawn = [_drawn(image, side) for image in images_VCHW]
    wide, high = drawn[0].size
    sheet = Image.new(drawn[0].mode, (wide * len(drawn), high))
    for at, one in enumerate(drawn):
        sheet.paste(one, (at * wide, 0))
    return _data_uri(sheet)


def heat(losses_RT: Tensor, most: float) -> str:
    """A landscape as a picture with one pixel per cell, its last row on top; a loss of `most` or more is darkest."""
    share = (losses_RT.flip(0).double().nan_to_num(nan=most) / most).clamp(0, 1).numpy()
    return _data_uri(Image.fromarray(_coloured(share, RAMP).round().astype(np.uint8)))


def evidence(image_CHW: Tensor, map_HW: Tensor, side: int = LARGEST) -> str:
    """A Grad-CAM map over its image as a data URI of PNG; what speaks most for the class is brightest."""
    return _data_uri(_evidence(image_CHW, map_HW, side))


def nine_maps(
    images_RCHW: Tensor, maps_RMHW: Tensor, rows: Sequence[str], models: Sequence[str], answers: Sequence[Sequence[str]]
) -> Image.Image:
    """R images by M models, each with the model's map and its answer beneath: the form of DARE's Figure 1."""
    side, text = LARGEST, 16
    sheet = Image.new("RGB", (side * (1 + len(models)), text + (side + text) * len(rows)), "white")
    pen = ImageDraw.Draw(sheet)
    for column, name in enumerate(["image", *models]):
        pen.text((column * side + 4, 2), name, fill="black")
    for row, name in enumerate(rows):
        top = text + row * (side + text)
        shown = [_evidence(images_RCHW[row], None, side)]
        shown += [_evidence(images_RCHW[row], maps_RMHW[row, at], side) for at in range(len(models))]
        for column, (drawn, said) in enumerate(zip(shown, [name, *answers[row]], strict=True)):
            sheet.paste(drawn.resize((side, side), Image.Resampling.NEAREST), (column * side, top))
            pen.text((column * side + 4, top + side + 2), said, fill="black")
    return sheet


def _evidence(image_CHW: Tensor, map_HW: Tensor | None, side: int) -> Image.Image:
    """Grey pixels under colours, as strong as the map; the image as it is where there is none."""
    pixels = image_CHW.detach().float().clamp(0, 1).cpu().numpy() * 255
    if map_HW is None:
        shown = np.stack([pixels[at if len(pixels) == 3 else 0] for at in range(3)], -1)
    else:
        share = map_HW.detach().double().cpu().numpy()
        share = share / max(float(share.max()), 1e-30)
        grey = np.repeat(pixels.mean(0)[..., None], 3, -1)
        weight = 0.25 + 0.5 * share[..., None]
        shown = (1 - weight) * grey + weight * _coloured(share, FIRE)
    drawn = Image.fromarray(shown.round().clip(0, 255).astype(np.uint8))
    drawn.thumbnail((side, side), Image.Resampling.LANCZOS)  # only ever smaller
    return drawn


def _coloured(share: np.ndarray[Any, Any], ramp: Sequence[str]) -> np.ndarray[Any, Any]:
    """Shares in [0, 1] as red, green and blue from 0 to 255."""
    stops, colours = np.linspace(0, 1, len(ramp)), np.array([_rgb(colour) for colour in ramp], dtype=float)
    return np.stack([np.interp(share, stops, colours[:, channel]) for channel in range(3)], -1)


def _rgb(colour: str) -> list[int]:
    return list(bytes.fromhex(colour.removeprefix("#")))


def _data_uri(image: Image.Image) -> str:
    body = BytesIO()
    image.save(body, "PNG", optimize=True)
    return "data:image/png;base64," + b64encode(body.getvalue()).decode()

"""What is done to pixels before a model sees them; images `[N, C, H, W]` in [0, 1] in and out."""

from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from ukemi.errors import UserError
from ukemi.randomness import Stream, uniform

STEP = 0.125
"""of Chambolle's projection; up to 1/8 it is known to converge"""
_XYZ = torch.tensor(
    [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]
) / torch.tensor([[0.950456], [1.0], [1.088754]])
"""from red, green and blue of linear light to XYZ over that of white"""
_DARK = 0.008856
"""up to which CIE's lightness is a line, above it a cube root"""


def bit_depth(images: Tensor, bits: int) -> Tensor:
    """Every pixel rounded to one of 2^bits levels (Xu et al. 2018).

    >>> bit_depth(torch.tensor([0.2, 0.6]), 1)
    tensor([0., 1.])
    """
    if not 1 <= bits <= 8:
        raise UserError(f"bits: 1 to 8 are expected, but {bits} was given.")
    return (images * (2**bits - 1)).round() / (2**bits - 1)


def median(images: Tensor, window: int = 2) -> Tensor:
    """Every pixel the median of its window; of an even number the upper one. As in the code of Xu et al. (scipy's
    `median_filter`) a window of 2 lies above and on the left, and the border is mirrored with its own pixels."""
    if window < 2 or window > min(images.shape[2:]):
        raise UserError(f"window: 2 up to the image's side is expected, but {window} was given.")
    before, after = window // 2, (window - 1) // 2
    rows, columns = (_mirrored(side, before, after).to(images.device) for side in images.shape[2:])
    windows = images[:, :, rows][..., columns].unfold(2, window, 1).unfold(3, window, 1).flatten(4)
    return windows.sort(-1).values[..., window**2 // 2]


def _mirrored(side: int, before: int, after: int) -> Tensor:
    """The places of a row that is continued at both ends by its mirror image: 1 0 | 0 1 2 3 | 3 2."""
    place = torch.arange(-before, side + after)
    place = torch.where(place < 0, -1 - place, place)
    return torch.where(place >= side, 2 * side - 1 - place, place)


def non_local_means(images: Tensor, search: int = 13, patch: int = 3, strength: float = 2.0) -> Tensor:
    """Every pixel the mean of those around it, weighed by how alike their patches are (Buades et al. 2005).

    As in OpenCV's `fastNlMeansDenoisingColored`, which Xu et al. (2018) use, but without its rounding to bytes: in Lab
    of linear light and units of 1/255, lightness by itself and the two colours together, `strength` for both.
    """
    if images.shape[1] != 3:
        raise UserError(f"non-local-means: images of 3 channels are expected, but these have {images.shape[1]}.")
    if search % 2 == 0 or patch % 2 == 0 or not strength > 0:
        said = f"not {search}, {patch} and {strength:g}"
        raise UserError(f"non-local-means: two odd windows and a strength above 0 are needed, {said}.")
    lab = _to_lab(images.float())
    parts = [_means(part, search, patch, strength) for part in (lab[:, :1], lab[:, 1:])]
    return _from_lab(torch.cat(parts, 1)).clamp(0, 1).to(images)


def _means(values: Tensor, search: int, patch: int, strength: float) -> Tensor:
    height, width = values.shape[2:]
    far, near = search // 2, patch // 2
    rows, columns = (_reflected(side, far + near).to(values.device) for side in (height, width))
    around = values[:, :, rows][..., columns]
    high, wide = height + 2 * near, width + 2 * near
    own = around[..., far : far + high, far : far + wide]
    total, weights = torch.zeros_like(values), torch.zeros_like(values[:, :1])
    for down in range(search):
        for right in range(search):
            other = around[..., down : down + high, right : right + wide]
            unlike = F.avg_pool2d((other - own).square().sum(1, keepdim=True), patch, 1)
            weight = (-unlike / (strength**2 * values.shape[1])).exp()
            total += weight * other[..., near : near + height, near : near + width]
            weights += weight
    return total / weights


def _reflected(side: int, border: int) -> Tensor:
    """The places of a row that is reflected at both ends as often as it takes: 2 1 | 0 1 2 3 | 2 1."""
    place = torch.arange(-border, side + border) % max(1, 2 * side - 2)
    return torch.where(place >= side, 2 * side - 2 - place, place)


def _to_lab(images: Tensor) -> Tensor:
    x, y, z = torch.einsum("ij,njhw->nihw", _XYZ.to(images), images).unbind(1)
    fx, fy, fz = (torch.where(t > _DARK, t.clamp(min=_DARK) ** (1 / 3), 7.787 * t + 16 / 116) for t in (x, y, z))
    return torch.stack([2.55 * (116 * fy - 16), 500 * (fx - fy), 200 * (fy - fz)], 1)


def _from_lab(lab: Tensor) -> Tensor:
    lightness, a, b = lab.unbind(1)
    fy = (lightness / 2.55 + 16) / 116
    found = torch.stack([fy + a / 500, fy, fy - b / 200], 1)
    xyz = torch.where(found**3 > _DARK, found**3, (found - 16 / 116) / 7.787)
    return torch.einsum("ij,njhw->nihw", torch.linalg.inv(_XYZ).to(lab), xyz)


def jpeg(images: Tensor, quality: int = 75) -> Tensor:
    """Packed as JPEG and unpacked again (Dziugaite et al. 2016), by Pillow: image by image, on the processor."""
    if images.shape[1] not in (1, 3):
        raise UserError(f"jpeg: images of 1 or 3 channels are expected, but these have {images.shape[1]}.")
    if not 1 <= quality <= 95:
        raise UserError(f"quality: 1 to 95 is expected, but {quality} was given.")
    bytes_NHWC = (images.detach().float() * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    found = np.stack([_packed(one, quality) for one in bytes_NHWC]) if len(images) else bytes_NHWC
    return (torch.from_numpy(found).permute(0, 3, 1, 2).float() / 255).to(images)


def _packed(pixels_HWC: np.ndarray, quality: int) -> np.ndarray:
    file = BytesIO()
    grey = pixels_HWC.shape[2] == 1
    Image.fromarray(pixels_HWC[..., 0] if grey else pixels_HWC).save(file, "JPEG", quality=quality)
    found = np.asarray(Image.open(file))
    return found[..., None] if grey else found


def total_variation(images: Tensor, weight: float = 0.1, steps: int = 30) -> Tensor:
    """The u that makes |u - image|² / 2 + weight * TV(u) small (Rudin et al. 1992), by Chambolle's projection (2004).

    TV is isotropic over height and width, channel by channel. Guo et al. (2018) also leave out random pixels; here none
    are.
    """
    if not weight > 0 or steps < 1:
        raise UserError(f"total-variation: a weight above 0 and 1 step or more are needed, not {weight:g} and {steps}.")
    across, down = torch.zeros_like(images), torch.zeros_like(images)
    for _ in range(steps):
        left = _divergence(across, down) - images / weight
        slope_x, slope_y = _slopes(left)
        size = 1 + STEP * (slope_x.square() + slope_y.square()).sqrt()
        across, down = (across + STEP * slope_x) / size, (down + STEP * slope_y) / size
    return (images - weight * _divergence(across, down)).clamp(0, 1)


def _slopes(images: Tensor) -> tuple[Tensor, Tensor]:
    """Differences to the right and downwards, 0 at the far border."""
    return F.pad(images.diff(dim=3), (0, 1)), F.pad(images.diff(dim=2), (0, 0, 0, 1))


def _divergence(across: Tensor, down: Tensor) -> Tensor:
    """The negative adjoint of `_slopes`."""
    across, down = across[..., :-1], down[..., :-1, :]
    return F.pad(across, (0, 1)) - F.pad(across, (1, 0)) + F.pad(down, (0, 0, 0, 1)) - F.pad(down, (0, 0, 1, 0))


def deflected(images: Tensor, key_N: Tensor, share: float = 0.05, radius: int = 3, *, seed: int = 0) -> Tensor:
    """A share of the pixels, each replaced by a random neighbour at most `radius` away (Prakash et al. 2018).

    All are read from the unchanged image. Which pixels count most for the answer is not looked at (their activation
    map).
    """
    if not 0 <= share <= 1 or radius < 1:
        raise UserError(f"deflection: a share in 0..1 and a radius from 1 on are needed, not {share:g} and {radius}.")
    count, _, height, width = images.shape
    u_N3HW = uniform(key_N, 3, height * width, seed=seed, stream=Stream.DEFLECTION).view(count, 3, height, width)
    moved_N2HW = ((2 * radius + 1) * u_N3HW[:, 1:]).long() - radius
    rows = (torch.arange(height, device=images.device)[:, None] + moved_N2HW[:, 0]).clamp(0, height - 1)
    columns = (torch.arange(width, device=images.device) + moved_N2HW[:, 1]).clamp(0, width - 1)
    places = (rows * width + columns).flatten(1)[:, None].expand(-1, images.shape[1], -1)
    neighbours = images.flatten(2).gather(2, places).view_as(images)
    return torch.where(u_N3HW[:, :1] < share, neighbours, images)


def wavelet_denoised(images: Tensor, noise: float = 0.04) -> Tensor:
    """One level of Haar wavelets, details shrunk by BayesShrink (Chang et al. 2000) for noise of this deviation."""
    height, width = images.shape[2:]
    even = F.pad(images, (0, width % 2, 0, height % 2), mode="replicate")
    a, b, c, d = (even[..., row::2, column::2] for row in (0, 1) for column in (0, 1))
    mean, details = (a + b + c + d) / 2, [(a - b + c - d) / 2, (a + b - c - d) / 2, (a - b - c + d) / 2]
    x, y, z = (_shrunk(one, noise) for one in details)
    found = torch.empty_like(even)
    corners = (mean + x + y + z, mean - x + y - z, mean + x - y - z, mean - x - y + z)
    for corner, (row, column) in zip(corners, ((0, 0), (0, 1), (1, 0), (1, 1)), strict=True):
        found[..., row::2, column::2] = corner / 2
    return found[..., :height, :width].clamp(0, 1)


def _shrunk(details: Tensor, noise: float) -> Tensor:
    signal = (details.square().mean((2, 3), keepdim=True) - noise**2).clamp(min=1e-12).sqrt()
    return details.sign() * (details.abs() - noise**2 / signal).clamp(min=0)

"""Variants of whole batches: every sample its own genes, one warp, one colour step, one clamp."""

from collections.abc import Callable
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

from ukemi.errors import UserError
from ukemi.fused import fusable
from ukemi.schema import called
from ukemi.spaces import BUILT_IN, Gene, Space, check_space
from ukemi.variations.kaist import kaist
from ukemi.variations.released import released

_GEOMETRIC = {name: identity for name, identity in BUILT_IN.items() if name not in ("brightness", "contrast")}


def vary(images_NCHW: Tensor, genes_NG: Tensor, space: Space) -> Tensor:
    """The variants of `images` (float, in [0, 1]) under `genes`, one chromosome per image.

    Rotate, translate, shear and zoom about the centre compose into one affine map with one bilinear resampling and
    black outside; then brightness is added, contrast multiplied, a user's own kernels follow, and one clamp to [0, 1]
    ends it. A row of identity genes returns its image bit for bit. No value is looked at where the device would have to
    wait: `space.check(genes)` and `ukemi.data.check_pixels(images)` are for whoever lets them in. On a CPU, where
    nothing waits, genes that are not finite are refused.

    A space of another `protocol` has the operators of a paper's code instead; kernels and the clamp still follow.

    >>> vary(torch.rand(2, 1, 28, 28), T3.sample(torch.arange(2), seed=0)[:, 0], T3).shape
    torch.Size([2, 1, 28, 28])
    """
    for field, given in (("images", images_NCHW), ("genes", genes_NG)):
        if not isinstance(given, Tensor):
            raise UserError(f"{field}: a float tensor is needed, but a {type(given).__name__} was given.")
    if images_NCHW.ndim != 4 or not images_NCHW.is_floating_point():
        raise UserError(
            f"images: a float tensor [N, C, H, W] is needed, not {images_NCHW.dtype} {list(images_NCHW.shape)}."
        )
    if genes_NG.shape != (len(images_NCHW), len(check_space(space))):
        raise UserError(
            f"genes: the shape [{len(images_NCHW)}, {len(space)}] is needed, but it is {list(genes_NG.shape)}."
        )
    if genes_NG.device.type == "cpu" and not genes_NG.isfinite().all():
        row, at = (int(place) for place in (~genes_NG.isfinite()).nonzero()[0])
        raise UserError(
            f"genes: {space.genes[at].name} of row {row} should be a finite number, not {float(genes_NG[row, at])}."
        )
    if space.protocol == "ukemi" and all(gene.kernel is None for gene in space.genes):
        return _fused(images_NCHW, genes_NG, tuple(gene.name for gene in space.genes))
    values = {gene.name: genes_NG[:, at] for at, gene in enumerate(space.genes) if gene.kernel is None}
    out = _PROTOCOLS[space.protocol](images_NCHW, values)
    for at, gene in enumerate(space.genes):
        if gene.kernel is not None:
            out = _own(gene, out, genes_NG[:, at])
    return _clamped(out, images_NCHW)


@fusable
def _fused(images_NCHW: Tensor, genes_NG: Tensor, names: tuple[str, ...]) -> Tensor:
    return _clamped(_one_warp(images_NCHW, dict(zip(names, genes_NG.unbind(1), strict=True))), images_NCHW)


def _clamped(out_NCHW: Tensor, images_NCHW: Tensor) -> Tensor:
    """In [0, 1], in place where that is not the caller's."""
    return out_NCHW.clamp(0, 1) if out_NCHW is images_NCHW else out_NCHW.clamp_(0, 1)


def _one_warp(images_NCHW: Tensor, values: dict[str, Tensor]) -> Tensor:
    """Our own operators: one warp, brightness, contrast; `values` holds a tensor `[N]` for every gene's name."""
    out = _warped(images_NCHW, {name: values[name] for name in _GEOMETRIC if name in values})
    if "brightness" in values:
        out = out + _column(values["brightness"]).to(out.dtype)
    if "contrast" in values:
        out = out * _column(values["contrast"]).to(out.dtype)
    return out


_PROTOCOLS: dict[str, Callable[[Tensor, dict[str, Tensor]], Tensor]] = {
    "ukemi": _one_warp,
    "released": released,
    "kaist": kaist,
}


def _own(gene: Gene, images_NCHW: Tensor, values_N: Tensor) -> Tensor:
    """A user's own kernel, on a copy in case it works in place; images at the identity stay as they are."""
    kernel = gene.function()
    assert kernel is not None
    made = called(kernel, f"gene {gene.name!r}", images_NCHW.clone(), values_N)
    if not isinstance(made, Tensor) or made.shape != images_NCHW.shape:
        given = list(made.shape) if isinstance(made, Tensor) else f"a {type(made).__name__}"
        raise UserError(f"gene {gene.name!r}: its kernel gave {given} for {list(images_NCHW.shape)}.")
    return torch.where(_column(values_N == gene.identity), images_NCHW, made.to(images_NCHW.dtype))


def check_kernels(images_NCHW: Tensor, space: Space) -> None:
    """Tries a user's own kernels on some images, at both ends of their ranges: what fails should do so early."""
    for gene in space.genes:
        if gene.kernel is None:
            continue
        for end in (gene.low, gene.high):
            made = _own(gene, images_NCHW, images_NCHW.new_full((len(images_NCHW),), end, dtype=torch.float32))
            if not made.isfinite().all():
                raise UserError(f"gene {gene.name!r}: its kernel gave a pixel that is NaN or infinite for {end:g}.")


def _column(values_N: Tensor) -> Tensor:
    return values_N[:, None, None, None]


def _warped(images_NCHW: Tensor, values: dict[str, Tensor]) -> Tensor:
    if not values:
        return images_NCHW
    # a resampling at the identity still rounds pixels, so unmoved rows are copied
    moved_N = torch.stack([value != _GEOMETRIC[name] for name, value in values.items()]).any(0)
    grid_NHW2 = sampling_grid(values, images_NCHW.shape[2], images_NCHW.shape[3])
    out = F.grid_sample(images_NCHW, grid_NHW2.to(images_NCHW.dtype), align_corners=False)
    return torch.where(_column(moved_N), out, images_NCHW)


def sampling_grid(values: dict[str, Tensor], height: int, width: int) -> Tensor:
    """Where each pixel of the variant looks in the image, in `grid_sample`'s coordinates, `[N, H, W, 2]`.

    The map is the inverse of zoom . shear . translate . rotate in pixels about the centre, so non-square images keep
    their angles. It is affine, hence the sum of a row's term and a column's term: one addition makes the grid.
    """
    some = next(iter(values.values()))

    def value(name: str) -> Tensor:
        return values[name] if name in values else torch.full_like(some, _GEOMETRIC[name])

    angle, shear, zoom = value("rotation") * (pi / 180), value("shear"), value("zoom")
    cos, sin = torch.cos(angle), torch.sin(angle)
    # undo zoom and shear: x = u / z - s v / z, y = v / z; then translation; then rotation
    right, down = value("translate_x") * width, value("translate_y") * height
    x_u, x_v, x_1 = cos / zoom, -(cos * shear + sin) / zoom, sin * down - cos * right
    y_u, y_v, y_1 = sin / zoom, (cos - sin * shear) / zoom, -sin * right - cos * down
    u_W = torch.arange(width, device=some.device, dtype=some.dtype) - (width - 1) / 2
    v_H = torch.arange(height, device=some.device, dtype=some.dtype) - (height - 1) / 2
    across_x_NW, across_y_NW = (2 / width * x_u)[:, None] * u_W, (2 / height * y_u)[:, None] * u_W
    along_x_NH = (2 / width * x_v)[:, None] * v_H + (2 / width * x_1)[:, None]
    along_y_NH = (2 / height * y_v)[:, None] * v_H + (2 / height * y_1)[:, None]
    if torch.compiler.is_compiling():  # one kernel in any case, but none for complex numbers
        x_NHW, y_NHW = across_x_NW[:, None] + along_x_NH[..., None], across_y_NW[:, None] + along_y_NH[..., None]
        return torch.stack([x_NHW, y_NHW], -1)
    # a point (x, y) as one complex number: the sum is vectorised and already lies in memory as grid_sample wants it
    across_NW, along_NH = torch.complex(across_x_NW, across_y_NW), torch.complex(along_x_NH, along_y_NH)
    return torch.view_as_real(across_NW[:, None, :] + along_NH[:, :, None])

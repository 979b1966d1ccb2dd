"""Genes and spaces: what can be varied, how far, and the grids on which a model is measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import isfinite, prod
from typing import Annotated, Any, ClassVar

import torch
from pydantic import ConfigDict, PlainSerializer
from torch import Tensor

from ukemi import randomness
from ukemi.errors import UserError, check_known
from ukemi.randomness import Stream
from ukemi.schema import imported, in_short

Kernel = Callable[[Tensor, Tensor], Tensor]
"""A user's own variation: `(images [N, C, H, W], values [N]) -> images [N, C, H, W]`."""

BUILT_IN = {
    "rotation": 0.0,
    "translate_x": 0.0,
    "translate_y": 0.0,
    "shear": 0.0,
    "zoom": 1.0,
    "brightness": 0.0,
    "contrast": 1.0,
}
"""The genes that `vary` knows, with the value that changes nothing."""
PROTOCOLS = {
    "ukemi": tuple(BUILT_IN),
    "released": tuple(BUILT_IN),
    "kaist": ("rotation", "translate_x", "translate_y", "shear"),
}
"""Whose operators `vary` applies, with the built-in genes that each has. All but `ukemi` are for regression only."""
LIMITS = {
    "rotation": (-360, 360, "in degrees"),
    "translate_x": (-1, 1, "a share of the width, not pixels"),
    "translate_y": (-1, 1, "a share of the height, not pixels"),
    "shear": (-2, 2, "a factor, not degrees"),
    "zoom": (0.01, 100, "a factor"),
    "brightness": (-1, 1, "added to pixels in 0 to 1"),
    "contrast": (0, 100, "a factor"),
}
"""What a built-in gene may be, with its unit: beyond it there is nothing to see, and mostly the unit is mistaken."""
CONTINUOUS_LEVELS = 65535
"""A continuous gene is drawn on a lattice this fine (16 bits), so that ends and middle are exact."""
MOST_VARIANTS = 1_000_000
"""A grid has at most so many chromosomes: they are held in memory, and each is a forward pass per image."""


@dataclass(frozen=True)
class Gene:
    """One number that controls one variation.

    `rotation` is in degrees (counter-clockwise), `translate_x` and `translate_y` are fractions of width and height
    (right and down), `shear` moves row r by shear x (r - centre) pixels, `zoom` above 1 enlarges, `brightness` is added
    to pixels in 0..1, `contrast` multiplies them. Any other name needs a `kernel` of its own: a function
    `(images, values) -> images`, or its name as `package.module:function`.
    """

    name: str
    low: float
    high: float
    identity: float
    step: float
    """distance of neighbouring values in a discrete space"""
    kernel: Annotated[Kernel | str | None, PlainSerializer(lambda kernel: _name_of(kernel), when_used="json")] = None

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        place = f"gene {self.name!r}"
        if not all(isfinite(value) for value in (self.low, self.high, self.identity, self.step)):
            raise UserError(f"{place}: low, high, identity and step should be finite numbers.")
        if not self.low < self.high:
            raise UserError(f"{place}: low should lie below high, but {self.low} and {self.high} were given.")
        if not self.low <= self.identity <= self.high:
            raise UserError(
                f"{place}: identity should lie in {self.low} to {self.high}, but {self.identity} was given."
            )
        count = (self.high - self.low) / self.step if self.step > 0 else -1
        if count < 1 - 1e-6 or abs(count - round(count)) > 1e-4:
            raise UserError(f"{place}: step should divide the range {self.high - self.low:g}, not {self.step:g}.")
        if count > CONTINUOUS_LEVELS - 1:
            raise UserError(
                f"{place}: step {self.step:g} makes more than {CONTINUOUS_LEVELS} levels; a larger one is needed."
            )
        if self.kernel is None and self.name not in BUILT_IN:
            raise UserError(f"{place}: this name is none of {', '.join(BUILT_IN)}, so it needs a kernel.")
        if self.kernel is None and self.identity != BUILT_IN[self.name]:
            raise UserError(f"{place}: its identity is {BUILT_IN[self.name]:g}, but {self.identity:g} was given.")
        if self.kernel is not None and not callable(self.function()):
            raise UserError(f"{place}: its kernel should be a function of images and values.")

    def function(self) -> Kernel | None:
        """The kernel, imported where it was given by name; None for a built-in gene."""
        if isinstance(self.kernel, str):
            return imported(self.kernel, f"gene {self.name!r}: kernel")
        return self.kernel

    @property
    def levels(self) -> int:
        """How many values a discrete space draws from."""
        return round((self.high - self.low) / self.step) + 1


@dataclass(frozen=True)
class Space:
    """The genes that are searched, in the order of a chromosome. Discrete unless made `continuous()`."""

    genes: tuple[Gene, ...]
    name: str = "own"
    discrete: bool = True
    protocol: str = "ukemi"
    """whose operators `vary` applies: our own, or, beside a paper's figures, those of its code (`PROTOCOLS`)"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "genes", tuple(self.genes))
        names = [gene.name for gene in self.genes]
        if not names or len(set(names)) < len(names):
            raise UserError(f"space: at least one gene, each name once, is needed, but {names} was given.")
        check_known("protocol", self.protocol, PROTOCOLS)
        known = PROTOCOLS[self.protocol]
        unknown = [gene.name for gene in self.genes if gene.kernel is None and gene.name not in known]
        if unknown:
            raise UserError(f"protocol: {self.protocol!r} has {', '.join(known)}, but not {', '.join(unknown)}.")
        if self.protocol != "kaist":  # which reads translations as pixels and shear as degrees
            for gene in self.genes:
                _check_unit(gene)

    def __len__(self) -> int:
        return len(self.genes)

    def continuous(self) -> "Space":
        """The same ranges, drawn from without steps."""
        return replace(self, discrete=False)

    def in_pixels(self, pixels: float, size: tuple[int, int]) -> "Space":
        """The same space with translations of up to `pixels` on images of `size` (height, width), in whole steps."""
        sides = {"translate_y": size[0], "translate_x": size[1]}
        moved = [
            replace(gene, low=-pixels / sides[gene.name], high=pixels / sides[gene.name], step=1 / sides[gene.name])
            if gene.name in sides
            else gene
            for gene in self.genes
        ]
        return replace(self, genes=tuple(moved), name=f"{self.name}-{pixels:g}px")

    def identity(self, device: torch.device | str = "cpu") -> Tensor:
        """The chromosome that changes nothing, float32 `[G]`."""
        return _table(self, torch.device(device))[2].float()

    def sample(
        self, index_N: Tensor, candidates: int = 1, *, seed: int, epoch: int = 0, stream: Stream = Stream.GENES
    ) -> Tensor:
        """Random chromosomes, float32 `[N, candidates, G]`: a function of (seed, epoch, index, candidate, gene) alone.

        >>> T3.sample(torch.arange(5), 10, seed=1).shape
        torch.Size([5, 10, 4])
        """
        return self.decode(self.sample_codes(index_N, candidates, seed=seed, epoch=epoch, stream=stream))

    def sample_codes(
        self, index_N: Tensor, candidates: int = 1, *, seed: int, epoch: int = 0, stream: Stream = Stream.GENES
    ) -> Tensor:
        """The same draw as positions on the lattice, int32 `[N, candidates, G]`."""
        u = randomness.uniform(index_N, candidates, len(self), seed=seed, stream=stream, epoch=epoch)
        last = self.last_codes(u.device)
        return (u.double() * (last + 1)).floor().clamp(max=last).int()

    def last_codes(self, device: torch.device | str = "cpu") -> Tensor:
        """The last position of every gene on its lattice, float64 `[G]`; the first is 0."""
        return _table(self, torch.device(device))[3]

    def encode(self, genes: Tensor) -> Tensor:
        """The nearest positions on the lattice, int32: `decode` gives drawn values back exactly."""
        low, high, _, last = _table(self, genes.device)
        return ((genes.double() - low) / (high - low) * last).round().clamp(min=0).clamp(max=last).int()

    def decode(self, codes: Tensor) -> Tensor:
        """Values from positions on the lattice: 0 is a gene's low end, the last position its high end, both exact."""
        low, high, identity, last = _table(self, codes.device)
        t = codes.double() / last
        values = low * (1 - t) + high * t
        # off the middle of a range the identity is hit by rounding only: it must be exact to be told from a change; a
        # continuous gene has it at the nearest position between the ends
        near = 1e-9 if self.discrete else torch.where((codes > 0) & (codes < last), 0.5 / last, 1e-9)
        return torch.where((values - identity).abs() <= near * (high - low), identity, values).float()

    def grid(self, levels: int | Sequence[int] = 3) -> Tensor:
        """Every combination of `levels` evenly spread values per gene, float32 `[rows, G]`; the first gene is slowest.

        >>> len(T3.grid(3)), len(T6.grid(3))
        (81, 2187)
        """
        counts = self.check_levels(levels)
        axes = [_axis(gene, count) for gene, count in zip(self.genes, counts, strict=True)]
        return torch.tensor(list(product(*axes)), dtype=torch.float32)

    def check_levels(self, levels: int | Sequence[int]) -> list[int]:
        """One number of levels per gene, or a `UserError` where the grid would be empty or too large to hold."""
        counts = [levels] * len(self) if isinstance(levels, int) else list(levels)
        if len(counts) != len(self) or min(counts) < 1:
            raise UserError(f"levels: one number of at least 1, or {len(self)} of them, is needed, not {levels}.")
        if prod(counts) > MOST_VARIANTS:
            said = " x ".join(map(str, counts)) if len(set(counts)) > 1 else counts[0]
            raise UserError(
                f"levels: {said} levels of {self.name} are {prod(counts):,} variants; at most {MOST_VARIANTS:,} are"
                " allowed."
            )
        return counts

    def contains(self, genes: Tensor) -> Tensor:
        """Which chromosomes `[..., G]` lie inside every range, compared in float32: bool `[...]`."""
        low, high = (limit.float() for limit in _table(self, genes.device)[:2])
        values = genes.float()
        return ((values >= low) & (values <= high)).all(-1)

    def clip(self, genes: Tensor) -> Tensor:
        """Chromosomes moved to the nearest end where they lie outside."""
        low, high = (limit.float() for limit in _table(self, genes.device)[:2])
        return genes.float().clamp(low, high)

    def check(self, genes: Tensor, field: str = "genes") -> Tensor:
        """`genes` as float32, or a `UserError` that names the first gene that is out of range."""
        if genes.ndim < 1 or genes.shape[-1] != len(self):
            raise UserError(f"{field}: {len(self)} genes per row are needed, but the shape is {list(genes.shape)}.")
        genes = genes.float()
        outside = ~self.contains(genes) if genes.numel() else torch.zeros(0, dtype=torch.bool)
        if outside.any():
            row = genes[outside][0]
            low, high = (limit.float() for limit in _table(self, genes.device)[:2])
            at = int(torch.nonzero(~((row >= low) & (row <= high)))[0])
            gene = self.genes[at]
            raise UserError(
                f"{field}: {gene.name} should lie in {gene.low:g} to {gene.high:g}, but {float(row[at]):g} was given."
            )
        return genes


def _check_unit(gene: Gene) -> None:
    low, high, unit = LIMITS.get(gene.name, (gene.low, gene.high, ""))
    if gene.kernel is None and not low <= gene.low < gene.high <= high:
        given = f"{gene.low:g} to {gene.high:g}"
        raise UserError(f"gene {gene.name!r}: it is {unit}, so {low:g} to {high:g} is allowed, but {given} was given.")


@cache
def _table(space: Space, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """low, high, identity and the last lattice position of every gene, float64 on the device, made once."""
    counts = [gene.levels if space.discrete else CONTINUOUS_LEVELS for gene in space.genes]
    rows = [[gene.low for gene in space.genes], [gene.high for gene in space.genes]]
    rows += [[gene.identity for gene in space.genes], [float(count - 1) for count in counts]]
    low, high, identity, last = torch.tensor(rows, dtype=torch.float64, device=device)
    return low, high, identity, last


def _axis(gene: Gene, count: int) -> list[float]:
    near = 1e-9 * (gene.high - gene.low)
    values = spread(gene.low, gene.high, count)
    return [gene.identity if abs(value - gene.identity) <= near else value for value in values]


def _name_of(kernel: Kernel | str | None) -> str | None:
    """A kernel as `package.module:name`, the way files name it."""
    if kernel is None or isinstance(kernel, str):
        return kernel
    return f"{kernel.__module__}:{kernel.__qualname__}"


def spread(low: float, high: float, count: int) -> list[float]:
    """`count` evenly spread values with exact ends; one value is the middle."""
    if count == 1:
        return [0.5 * low + 0.5 * high]
    return [low * (1 - i / (count - 1)) + high * (i / (count - 1)) for i in range(count)]


_ROTATION = Gene("rotation", -30, 30, 0, 1)
_SHIFT_X = Gene("translate_x", -0.1, 0.1, 0, 0.2 / 6)
_SHIFT_Y = Gene("translate_y", -0.1, 0.1, 0, 0.2 / 6)
_SHEAR = Gene("shear", -0.1, 0.1, 0, 0.005)
_COLOUR = (Gene("brightness", -32 / 255, 32 / 255, 0, 2 / 255), Gene("contrast", 0.8, 1.2, 1, 0.025))

T2 = Space((_ROTATION, _SHIFT_X, _SHIFT_Y), "t2")
"""Rotation and translation."""
T3 = Space((*T2.genes, _SHEAR), "t3")
"""Rotation ±30 degrees, translation ±10 % of each side, shear ±0.1: the SENSEI paper's three operators."""
T6 = Space((*T3.genes, Gene("zoom", 0.9, 1.1, 1, 0.01), *_COLOUR), "t6")
"""T3, zoom 0.9 to 1.1, brightness ±32/255 and contrast 0.8 to 1.2: all six operators."""

_T3_RELEASED = replace(T3, name="t3-released", protocol="released")
_T6_RELEASED = replace(T6, name="t6-released", protocol="released")
_T3_KAIST = replace(T3, name="t3-kaist", protocol="kaist")

SPACES = {space.name: space for space in (T2, T3, T6, _T3_RELEASED, _T6_RELEASED, _T3_KAIST)}


def check_space(space: Any) -> Space:
    if not isinstance(space, Space):
        raise UserError(f"space: a ukemi.Space is needed (T3, say), but {in_short(space)} was given.")
    return space


def space_of(name: str, genes: Sequence[Gene] = ()) -> Space:
    """A space by name, as `package.module:SPACE`, or from `genes`.

    The names are `t2`, `t3`, `t6` and, for regression only, `t3-released`, `t6-released` and `t3-kaist`, each also with
    `-continuous` behind.
    """
    if genes:
        return Space(tuple(genes))
    if ":" in name:
        found: Any = imported(name, "space")
        if not isinstance(found, Space):
            raise UserError(f"space: {name!r} is a {type(found).__name__}, not a ukemi.Space.")
        return found
    plain = name.lower().removesuffix("-continuous")
    if plain not in SPACES:
        raise UserError(
            f"space: {name!r} is none of {', '.join(SPACES)} (each also with -continuous) nor package.module:SPACE."
        )
    return SPACES[plain] if plain == name.lower() else SPACES[plain].continuous()


def engstrom(size: tuple[int, int]) -> Space:
    """The space of Engstrom et al.: rotation ±30 degrees and ±3 pixels; its 31 x 5 x 5 grid has 775 rows."""
    moved = T2.in_pixels(3, size).genes
    halves = [replace(gene, step=gene.step * 1.5) for gene in moved[1:]]
    return Space((replace(_ROTATION, step=2), *halves), "engstrom")


GRIDS: dict[str, tuple[str, Callable[[tuple[int, int]], Space], Sequence[int] | int]] = {
    "t2-27": ("T2, 3 levels", lambda size: T2, 3),
    "t3-81": ("T3, 3 levels", lambda size: T3, 3),
    "t6-2187": ("T6, 3 levels", lambda size: T6, 3),
    "t3-81-3px": ("T3 with ±3 pixels, as the SENSEI paper's tables", lambda size: T3.in_pixels(3, size), 3),
    "t6-2187-3px": ("T6 with ±3 pixels, as the SENSEI paper's tables", lambda size: T6.in_pixels(3, size), 3),
    "t3-81-released": (
        "T3 with ±3 pixels and the operators of SENSEI's released code; regression only",
        lambda size: _T3_RELEASED.in_pixels(3, size),
        3,
    ),
    "t6-2187-released": (
        "T6 with ±3 pixels and the operators of SENSEI's released code, 729 distinct images; regression only",
        lambda size: _T6_RELEASED.in_pixels(3, size),
        3,
    ),
    "t3-81-kaist": (
        "T3 with the operators of the AUGMENTATION paper's code, 3 distinct images; regression only",
        lambda size: _T3_KAIST,
        3,
    ),
    "engstrom-775": ("31 rotations x 5 x 5 translations of ±3 pixels", engstrom, (31, 5, 5)),
}
"""Named grids: what it is, its space for images of a size (height, width), its levels."""


def grid_of(space: Space, grid: int | str | Tensor, size: tuple[int, int]) -> tuple[Space, Tensor]:
    """The space and the rows `[rows, G]` of a grid given as a number of levels, a name of `GRIDS`, or chromosomes."""
    if isinstance(grid, str):
        return named_grid(grid, size)
    if not isinstance(grid, int):
        return space, space.check(grid, "grid")
    if grid < 2:
        raise UserError(f"grid: at least 2 levels per gene are needed, but {grid} was given.")
    return space, space.grid(grid)


def named_grid(name: str, size: tuple[int, int]) -> tuple[Space, Tensor]:
    """The space and the rows `[rows, G]` of a grid of `GRIDS`, for images of `size` (height, width); of a space of
    anyone's own, `package.module:SPACE`, three levels."""
    if ":" in name:
        own = space_of(name)
        return own, own.grid(3)
    check_known("grid", name, GRIDS)
    _, make, levels = GRIDS[name]
    space = make(size)
    return space, space.grid(levels)

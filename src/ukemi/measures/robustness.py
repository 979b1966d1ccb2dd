"""Robust accuracy: an image counts only if every variant of the grid, and the image itself, is classified right."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil

import torch
from torch import Tensor, nn

from ukemi.data import Data, as_float, labelled, shared
from ukemi.errors import UserError
from ukemi.models import check_head
from ukemi.models.inference import default_chunk, home_of, logits, padded, right, scoring, wrong
from ukemi.ranks import Ranks
from ukemi.spaces import Space, grid_of, space_of
from ukemi.variations import vary

BLOCK = 16384
"""how many images are held on the device at once"""
Report = Callable[[int, int], None]
"""is told how many images are done, of how many"""


@dataclass(frozen=True, repr=False)
class Robustness:
    """What a grid of variants did to a model. Tensors are per image, in the order given, on the CPU.

    `correct` says which images are recognised, `robust` which of them under every variant too, `broken_by` which row of
    `grid` broke an image, -1 where none did.
    """

    space: Space
    grid: Tensor
    """the chromosomes `[rows, G]`"""
    correct: Tensor
    """bool `[N]`: the unchanged image is classified right"""
    robust: Tensor
    """bool `[N]`: so is every variant"""
    broken_by: Tensor
    """int64 `[N]`: the row of `grid` that broke it, -1 where none did (robust, or wrong unchanged)"""
    forwards: int
    """forward passes, counted in images (padding left out)"""
    mean_accuracy: float | None = None
    """mean over all variants and images, where it was asked for"""
    not_finite: int = 0
    """images whose logits are NaN or infinite while they are unchanged"""

    def __repr__(self) -> str:
        """The answer: in a notebook every chromosome and image would hide it."""
        return (
            f"Robustness(accuracy={self.accuracy:.4g}, robust_accuracy={self.robust_accuracy:.4g},"
            f" images={len(self.correct)}, variants={len(self.grid)}, space={self.space.name!r},"
            f" forwards={self.forwards})"
        )

    @property
    def accuracy(self) -> float:
        """The share of images that are recognised."""
        return float(self.correct.double().mean())

    @property
    def robust_accuracy(self) -> float:
        """The share of images that are recognised, under every variant too."""
        return float(self.robust.double().mean())

    @property
    def share_evaluated(self) -> float:
        """Forward passes as a share of those that every variant of every image takes (unchanged it is judged once)."""
        changed, _ = far_first(self.grid, self.space)
        return self.forwards / (len(self.correct) * (len(changed) + 1))


def robust_accuracy(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    space: Space | str,
    grid: int | str | Tensor = 3,
    *,
    mean: bool = False,
    chunk: int | None = None,
    report: Report | None = None,
) -> Robustness:
    """Accuracy and robust accuracy of `model` on `images` (uint8, or float in [0, 1]) in a space or one by its name.

    `grid` is a number of levels per gene, the name of a grid (`engstrom-775`; it brings its own space), or chromosomes
    `[rows, G]`. Images leave at their first failure and variants far from the identity are tried first, unless `mean`
    asks for the mean accuracy over all variants too, which needs every pass. `chunk` rows go through the model at once.
    `labels` count from 0; `report(done, images)` is called as it goes on.
    """
    for field, given in (("images", images), ("labels", labels)):
        if not isinstance(given, Tensor):
            raise UserError(f"{field}: a torch tensor is needed, but a {type(given).__name__} was given.")
    space = space_of(space) if isinstance(space, str) else space
    if not isinstance(space, Space):
        raise UserError(f"space: a ukemi.Space or the name of one is needed, but {space!r} was given.")
    classes = [str(number) for number in range(max(2, int(labels.max()) + 1))] if len(labels) else None
    data = labelled(images, labels, classes, name="images")
    few = as_float(data.images[torch.arange(min(2, len(data)))]).to(home_of(model))
    check_head(model, few, 1)  # whether all labels fit shows at once anyway
    return robustness_of(model, data, space, grid, mean=mean, chunk=chunk, report=report)


def robustness_of(
    model: nn.Module,
    data: Data,
    space: Space,
    grid: int | str | Tensor = 3,
    *,
    mean: bool = False,
    chunk: int | None = None,
    report: Report | None = None,
    ranks: Ranks | None = None,
) -> Robustness:
    """The same for a data set of any size; only a block of it is on the device at once. Each rank measures its share,
    and all know the whole."""
    space, rows = grid_of(space, grid, data.size)
    device = home_of(model)
    if chunk is not None and chunk < 1:
        raise UserError(f"chunk: at least 1 image goes through the model at once, but {chunk} was given.")
    most = chunk or default_chunk((data.channels, *data.size), device)

    def measure(part: Data) -> Robustness:
        blocks = []
        for positions in torch.arange(len(part)).split(BLOCK):
            done, batch = int(positions[0]), part.batch(positions, device)
            told = None if report is None else lambda n, done=done: report(done + n, len(part))
            blocks.append(_block(model, batch.images, batch.labels, space, rows.to(device), mean, most, told))
        return _joined(space, rows, blocks)

    return shared(data, ranks, measure, partial(_joined, space, rows))


def _joined(space: Space, rows: Tensor, parts: list[Robustness]) -> Robustness:
    """Exact counts: of hits, too, which a mean accuracy is made of."""
    correct, robust, broken_by = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("correct", "robust", "broken_by")
    )
    shares = [(part.mean_accuracy, len(part.correct) * len(rows)) for part in parts]
    hits = sum(round(share * tried) for share, tried in shares if share is not None)
    every = hits / sum(tried for _, tried in shares) if parts[0].mean_accuracy is not None else None
    forwards, not_finite = (sum(getattr(part, name) for part in parts) for name in ("forwards", "not_finite"))
    return Robustness(space, rows, correct, robust, broken_by, forwards, every, not_finite)


def _block(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    space: Space,
    rows: Tensor,
    mean: bool,
    chunk: int,
    report: Callable[[int], None] | None,
) -> Robustness:
    clean = logits(model, images, chunk)
    if clean.ndim != 2 or clean.shape[1] <= int(labels.max()):
        raise UserError(
            f"labels: label {int(labels.max())} doesn't fit the model's head, whose output is {list(clean.shape[1:])}."
        )
    correct = right(clean, labels)
    order, at_identity = far_first(rows, space)
    robust, broken_by = correct.clone(), torch.full_like(labels, -1)
    hits = at_identity * int(correct.sum())
    forwards = len(images)
    alive = torch.arange(len(images), device=images.device) if mean else correct.nonzero().flatten()
    start, failing = 0, 0.5
    while start < len(order) and len(alive):
        many = _variants_at_once(len(alive), chunk, len(order) - start, 0.0 if mean else failing)
        turn = order[start : start + many]
        wrong_VA = _wrong(model, images, labels, rows, space, turn, alive, chunk)
        forwards += wrong_VA.numel()
        hits += wrong_VA.numel() - int(wrong_VA.sum())
        first = wrong_VA.byte().argmax(0)  # the first row of this turn that broke it
        broke = wrong_VA.any(0)
        newly = broke & robust[alive]
        broken_by[alive[newly]] = turn[first[newly]]
        robust[alive[broke]] = False
        if not mean:
            failing = float(broke.double().mean()) / many
            alive = alive[~broke]
        start += many
        if report:
            report(len(images) - len(alive) + len(alive) * start // len(order))
    share = hits / (len(images) * len(rows)) if mean else None
    lost = int((~clean.isfinite().all(1)).sum())
    return Robustness(space, rows, correct.cpu(), robust.cpu(), broken_by.cpu(), forwards, share, lost)


def far_first(rows: Tensor, space: Space) -> tuple[Tensor, int]:
    """The rows by their distance from the identity in units of each gene's range, farthest first, ties in order;
    rows at the identity are left out (the unchanged image is judged anyway) and counted."""
    ranges = torch.tensor([gene.high - gene.low for gene in space.genes], device=rows.device)
    distance = ((rows - space.identity(rows.device)) / ranges).norm(dim=1)
    order = distance.argsort(descending=True, stable=True)
    order = order[distance[order] > 0]
    return order, len(rows) - len(order)


def _variants_at_once(alive: int, chunk: int, left: int, failing: float) -> int:
    """How many variants each image gets in one turn: full chunks against passes wasted on images already broken."""
    most = min(left, max(8, 2 * ceil(chunk / alive)))

    def cost(many: int) -> float:
        return ceil(alive * many / chunk) * chunk / (alive * many) * (1 + failing * (many - 1) / 2)

    return min(range(1, most + 1), key=cost)


def _wrong(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    rows: Tensor,
    space: Space,
    turn: Tensor,
    alive: Tensor,
    chunk: int,
) -> Tensor:
    """Which variants (rows of `turn`) of which living images are misclassified: bool `[variants, living]`."""
    which = alive.repeat(len(turn))
    genes = rows[turn].repeat_interleave(len(alive), 0)
    parts = []
    with scoring(model, images.device):
        for start in range(0, len(which), chunk):
            at = which[start : start + chunk]
            variants = vary(images[at], genes[start : start + chunk], space)
            parts.append(wrong(model(padded(variants, chunk))[: len(at)].float(), labels[at]))
        found = torch.cat(parts).view(len(turn), len(alive))
    return found.clone()

"""Where a model breaks: gene by gene, around one image, and at its worst."""

from dataclasses import dataclass
from math import isclose

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi import randomness
from ukemi.data import Batch, Data
from ukemi.errors import UserError
from ukemi.models.inference import default_chunk, home_of, logits, padded, right, scoring
from ukemi.randomness import Stream
from ukemi.spaces import Gene, Space, spread
from ukemi.variations import vary

STEPS = 25
"""values of each of a landscape's genes"""


@dataclass(frozen=True)
class GeneFailures:
    """How often a model fails when one gene alone moves."""

    gene: str
    values: tuple[float, ...]
    """ascending, the identity among them"""
    rates: tuple[float, ...]
    """share of the images that are misclassified at each value"""
    images: int
    """how many images, all of them classified right unchanged"""


@dataclass(frozen=True)
class Axis:
    """The values that a gene takes along one side of a landscape."""

    gene: str
    values: tuple[float, ...]
    rest: int
    """the identity's place among the values"""


@dataclass(frozen=True)
class Landscape:
    """The loss of one image where two genes move and the others rest (Figure 2 of the SENSEI paper)."""

    down: Axis | None
    """the rows' gene; None in a space of one gene, which gives one row"""
    across: Axis
    losses: Tensor
    """float32 `[R, T]`"""
    wrong: Tensor
    """bool `[R, T]`: the variant is misclassified"""


@dataclass(frozen=True)
class WorstVariants:
    """The variant of each image that a model gets most wrong. Tensors on the CPU."""

    genes: Tensor
    """`[N, G]`"""
    losses: Tensor
    """`[N]`"""
    guesses: Tensor
    """int64 `[N]`: what the model takes the variant for"""
    variants: Tensor
    """`[N, C, H, W]`"""


def failure_by_gene(
    model: nn.Module, data: Data, space: Space, *, images: int = 300, values: int = 11, seed: int = 0
) -> list[GeneFailures]:
    """Moves each gene alone over `values` evenly spread values and counts the images that break there.

    Only images that are classified right unchanged take part: at most `images` of them, drawn by `seed`.
    """
    if images < 1 or values < 2:
        raise UserError(f"images and values should be at least 1 and 2, but {images} and {values} were given.")
    batch = _recognised(model, data, images, seed)
    return [_failures_of(model, batch, space, at, values) for at in range(len(space))]


def landscape_axes(space: Space, steps: int = STEPS) -> list[Axis]:
    """The genes that a landscape moves, rotation and a translation where there are both, with their values."""
    return [axis_of(space.genes[at], steps) for at in _two_genes(space)]


def landscape(model: nn.Module, image: Tensor, label: int, space: Space, *, steps: int = STEPS) -> Landscape:
    """The loss of `image` (`[C, H, W]`, float) over rotation and translation, `steps` values each.

    In a space without both, its first two genes are moved; a space of one gene gives one row.
    """
    if steps < 2:
        raise UserError(f"steps: at least 2 are needed, but {steps} was given.")
    moving, axes = _two_genes(space), landscape_axes(space, steps)
    shape = (1, *(len(axis.values) for axis in axes))[-2:]
    genes_PG = space.identity().repeat(shape[0] * shape[1], 1)
    for at, values in zip(
        moving, torch.meshgrid(*(torch.tensor(axis.values) for axis in axes), indexing="ij"), strict=True
    ):
        genes_PG[:, at] = values.flatten()
    at_P = torch.zeros(len(genes_PG), dtype=torch.long, device=image.device)
    labels_N = torch.tensor([label], device=image.device)
    losses, guesses = _judged(model, image[None], labels_N, at_P, genes_PG.to(image.device), space)
    down = axes[0] if len(axes) == 2 else None
    return Landscape(down, axes[-1], losses.view(shape).cpu(), (guesses != label).view(shape).cpu())


def worst_variants(model: nn.Module, images: Tensor, labels: Tensor, rows: Tensor, space: Space) -> WorstVariants:
    """For each of a few images (`[N, C, H, W]`, float) its variant of highest loss among the chromosomes `rows`.

    A misclassified variant goes before one that is classified right, whatever their losses; ties go to the first row.
    """
    count, rows = len(images), rows.to(images.device)
    at_P = torch.arange(count, device=images.device).repeat_interleave(len(rows))
    losses, guesses = _judged(model, images, labels, at_P, rows.repeat(count, 1), space)
    losses, guesses = losses.view(count, len(rows)), guesses.view(count, len(rows))
    wrong = guesses != labels[:, None]
    rivals = torch.where(wrong | ~wrong.any(1, keepdim=True), losses.nan_to_num(nan=torch.inf), -torch.inf)
    best = rivals.argmax(1, keepdim=True)
    genes = rows[best[:, 0]]
    chosen = (losses.gather(1, best)[:, 0], guesses.gather(1, best)[:, 0], vary(images, genes, space))
    return WorstVariants(genes.cpu(), *(tensor.cpu() for tensor in chosen))


def _recognised(model: nn.Module, data: Data, count: int, seed: int) -> Batch:
    """The first `count` samples that are classified right, in an order that hangs on their identities alone."""
    device = home_of(model)
    chunk = default_chunk((data.channels, *data.size), device)
    order = randomness.bits(data.index.cpu(), seed=seed, stream=Stream.SUBSET).argsort(stable=True)
    found: list[Tensor] = []
    for positions in order.split(max(count, chunk)):
        batch = data.batch(positions, device)
        correct = right(logits(model, batch.images, chunk), batch.labels)
        found.append(positions[correct.cpu()])
        if sum(map(len, found)) >= count:
            break
    return data.batch(torch.cat(found)[:count], device)


def _failures_of(model: nn.Module, batch: Batch, space: Space, at: int, values: int) -> GeneFailures:
    device, count = batch.images.device, len(batch.labels)
    moved = _values(space.genes[at], values)
    rows = space.identity(device).repeat(len(moved), 1)
    rows[:, at] = torch.tensor(moved, device=device)
    at_P = torch.arange(count, device=device).repeat(len(moved))
    guesses = _judged(model, batch.images, batch.labels, at_P, rows.repeat_interleave(count, 0), space)[1]
    wrong = guesses.view(len(moved), count) != batch.labels
    rates = wrong.double().sum(1) / max(1, count)
    return GeneFailures(space.genes[at].name, moved, tuple(rates.tolist()), count)


def _values(gene: Gene, count: int) -> tuple[float, ...]:
    """`count` evenly spread values, and the identity where it is none of them."""
    values = spread(gene.low, gene.high, count)
    near = [isclose(value, gene.identity, abs_tol=1e-9 * (gene.high - gene.low)) for value in values]
    if not any(near):
        return tuple(sorted([*values, gene.identity]))
    return tuple(gene.identity if same else value for value, same in zip(values, near, strict=True))


def axis_of(gene: Gene, count: int) -> Axis:
    """`count` evenly spread values of a gene, and the identity where it is none of them."""
    values = _values(gene, count)
    return Axis(gene.name, values, values.index(gene.identity))


def _two_genes(space: Space) -> list[int]:
    """The positions of rotation and a translation, or of the first two genes, or of the only one."""
    names = [gene.name for gene in space.genes]
    shifts = [names.index(name) for name in ("translate_x", "translate_y") if name in names]
    if "rotation" in names and shifts:
        return [names.index("rotation"), shifts[0]]
    return list(range(min(2, len(space))))


def _judged(
    model: nn.Module, images: Tensor, labels: Tensor, at_P: Tensor, genes_PG: Tensor, space: Space
) -> tuple[Tensor, Tensor]:
    """Loss and guess for pairs: image `at_P[p]` under the chromosome `genes_PG[p]`, in chunks of one size."""
    if not len(at_P):  # no image was classified right
        return images.new_zeros(0), labels.new_zeros(0)
    chunk = default_chunk(tuple(images.shape[1:]), images.device)
    losses, guesses = [], []
    with scoring(model, images.device):
        for at, genes in zip(at_P.split(chunk), genes_PG.split(chunk), strict=True):
            outputs = model(padded(vary(images[at], genes, space), chunk))[: len(at)].float()
            losses.append(F.cross_entropy(outputs, labels[at], reduction="none"))
            guesses.append(outputs.argmax(1))
        loss_P, guess_P = torch.cat(losses), torch.cat(guesses)
    return loss_P.clone(), guess_P.clone()  # outside inference mode: ordinary tensors

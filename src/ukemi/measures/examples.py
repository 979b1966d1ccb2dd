"""Single images that show what a model does: those that break it, the loss around some, and some gene by gene."""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ukemi import randomness
from ukemi.data import Batch, Data
from ukemi.measures.robustness import Robustness
from ukemi.measures.sensitivity import Axis, Landscape, axis_of, landscape, worst_variants
from ukemi.models.inference import default_chunk, home_of, logits
from ukemi.randomness import Stream
from ukemi.spaces import Space
from ukemi.variations import vary

SWEPT = 9
"""values that each gene takes where it moves alone"""


@dataclass(frozen=True)
class Broken:
    """An image that is recognised unchanged, beside its variant that the model gets most wrong."""

    index: int
    """the sample's identity"""
    image: Tensor
    """`[C, H, W]`, in [0, 1]"""
    variant: Tensor
    label: int
    guess: int
    genes: tuple[float, ...]
    loss: float


@dataclass(frozen=True)
class Terrain:
    """An image and the loss around it."""

    index: int
    image: Tensor
    label: int
    landscape: Landscape


@dataclass(frozen=True)
class Sweep:
    """An image while each gene in turn moves and the others rest, with the model's answers."""

    index: int
    image: Tensor
    label: int
    axes: tuple[Axis, ...]
    """one per gene of the space"""
    guesses: tuple[tuple[int, ...], ...]
    """per gene and value"""
    confidences: tuple[tuple[float, ...], ...]
    """the softmax of each guess"""


def drawn(data: Data, which: Tensor, count: int, seed: int) -> Tensor:
    """Positions of at most `count` samples of `which`, drawn by their identities, spread over classes, by class."""
    key = randomness.bits(data.index.cpu(), seed=seed, stream=Stream.SUBSET)
    order = key.argsort(stable=True)
    those = order[which[order]].tolist()
    labels = data.labels.tolist()
    seen: Counter[int] = Counter()
    turn = {}
    for at in those:
        turn[at] = seen[labels[at]]
        seen[labels[at]] += 1
    # the first of every class, then the second of every class; sorting is stable, so each turn keeps the drawn order
    chosen = sorted(those, key=lambda at: turn[at])[:count]
    return torch.tensor(sorted(chosen, key=lambda at: labels[at]), dtype=torch.long)


def broken_images(model: nn.Module, data: Data, found: Robustness, positions: Tensor) -> tuple[Broken, ...]:
    """The samples at `positions`, each beside its worst variant of the grid."""
    if not len(positions):
        return ()
    batch = data.batch(positions, home_of(model))
    worst = worst_variants(model, batch.images, batch.labels, found.grid, found.space)
    return tuple(
        Broken(
            index=int(batch.index[at]),
            image=batch.images[at].cpu(),
            variant=worst.variants[at],
            label=int(batch.labels[at]),
            guess=int(worst.guesses[at]),
            genes=tuple(worst.genes[at].tolist()),
            loss=float(worst.losses[at]),
        )
        for at in range(len(positions))
    )


def terrains(model: nn.Module, data: Data, space: Space, positions: Tensor) -> tuple[Terrain, ...]:
    """The loss around each of the samples at `positions`."""
    batch = data.batch(positions, home_of(model))
    rows = zip(batch.index.tolist(), batch.images, batch.labels.tolist(), strict=True)
    return tuple(
        Terrain(index, image.cpu(), label, landscape(model, image, label, space)) for index, image, label in rows
    )


def sweeps(model: nn.Module, data: Data, space: Space, positions: Tensor) -> tuple[Sweep, ...]:
    """Each of the samples at `positions` while its genes move one by one."""
    if not len(positions):
        return ()
    batch, axes = data.batch(positions, home_of(model)), swept_axes(space)
    guesses_NP, confidences_NP = _answers(model, batch, swept_genes(space, axes), space)
    lengths = [len(axis.values) for axis in axes]
    return tuple(
        Sweep(int(index), image.cpu(), int(label), axes, _split(guesses, lengths), _split(confidences, lengths))
        for index, image, label, guesses, confidences in zip(
            batch.index, batch.images, batch.labels, guesses_NP, confidences_NP, strict=True
        )
    )


def swept_axes(space: Space) -> tuple[Axis, ...]:
    """The values that each gene of a space takes in a sweep."""
    return tuple(axis_of(gene, SWEPT) for gene in space.genes)


def swept_genes(space: Space, axes: tuple[Axis, ...]) -> Tensor:
    """The chromosomes of all sweeps, gene by gene, float32 `[P, G]`."""
    rows = []
    for at, axis in enumerate(axes):
        own = space.identity().repeat(len(axis.values), 1)
        own[:, at] = torch.tensor(axis.values)
        rows.append(own)
    return torch.cat(rows)


def _answers(model: nn.Module, batch: Batch, genes_PG: Tensor, space: Space) -> tuple[Tensor, Tensor]:
    """Guesses int64 `[N, P]` and their confidences float32 `[N, P]`, on the CPU."""
    images, count = batch.images, len(genes_PG)
    varied = vary(images.repeat_interleave(count, 0), genes_PG.to(images.device).repeat(len(images), 1), space)
    outputs = logits(model, varied, default_chunk(tuple(images.shape[1:]), images.device))
    confidences, guesses = outputs.softmax(1).max(1)
    shape = (len(images), count)
    return guesses.view(shape).cpu(), confidences.view(shape).cpu()


def _split(row_P: Tensor, lengths: list[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(part.tolist()) for part in row_P.split(lengths))

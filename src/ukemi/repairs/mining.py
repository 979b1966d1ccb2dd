"""Mining the history (DARE, section 3.2, Algorithm 1): for each image the historical model that knew it best, and what
the target layer's neurons gave there, the gold standard."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from ukemi import randomness
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.models.inference import default_chunk, home_of, logits, padded, right, scoring
from ukemi.randomness import Stream
from ukemi.slicing import KeyLayer, activation_of

Report = Callable[[int, int], None]


class Historical(Protocol):
    """A sequence of earlier models: `training.history.History`, or anything that gives weights by epoch."""

    @property
    def epochs(self) -> Sequence[int]: ...
    def weights(self, epoch: int) -> Mapping[str, Tensor]: ...


@dataclass(frozen=True)
class Mined:
    """The images that have a gold standard, n of them, in the order of the data."""

    data: Data
    """the images kept; `data.index` are their identities"""
    targets: Tensor
    """`[n, out]`: what the target layer's neurons gave in the chosen historical model"""
    epochs: Tensor
    """int64 `[n]`: the epoch of that model, from 1"""
    before: Tensor
    """float64 `[n]`: the finished model's confidence in the label; 0 where it is wrong"""
    after: Tensor
    """float64 `[n]`: that of the chosen historical model, in the label"""
    searched: int
    """how many images were looked at"""

    def __len__(self) -> int:
        return len(self.epochs)

    def take(self, rows: Tensor) -> "Mined":
        """Those at `rows`."""
        kept = {name: getattr(self, name)[rows] for name in ("targets", "epochs", "before", "after")}
        return replace(self, data=self.data.take(rows.to(self.data.labels.device)), **kept)

    def among(self, data: Data) -> "Mined":
        """Those whose images are in `data`, a part of what was searched; none is an error in a sentence."""
        rows = torch.isin(self.data.index, data.index.to(self.data.index.device)).nonzero().flatten()
        if not len(rows):
            raise _none_better(len(data))
        return replace(self.take(rows.to(self.targets.device)), searched=len(data))


def mine(
    model: nn.Module, history: Historical, data: Data, layer: KeyLayer | str, *, report: Report | None = None
) -> Mined:
    """Algorithm 1: an image is kept where a historical model is right about it with more confidence than the finished
    `model` (than 0 where that one is wrong); the most confident of them gives the target, the earliest of equals.

    One pass over the data per historical model; confidences are compared in float64, since many lie close to 1.
    """
    before_N = _confidence(model, data, None)
    bar_N, epoch_N = before_N.clone(), torch.zeros(len(data), dtype=torch.int64, device=before_N.device)
    targets: Tensor | None = None
    past = copy.deepcopy(model)
    for done, (epoch, weights) in enumerate(_ahead(history, history.epochs), 1):
        _wear(past, weights, epoch)
        found_N = _confidence(past, data, None)
        better_N = found_N > bar_N
        rows = better_N.nonzero().flatten()
        targets = _put(targets, rows, _activations(past, data, rows, layer), len(data))
        bar_N = torch.where(better_N, found_N, bar_N)
        epoch_N[rows] = epoch
        if report is not None:
            report(done, len(history.epochs))
    rows = epoch_N.nonzero().flatten()
    if targets is None or not len(rows):
        raise _none_better(len(data))
    kept = data.take(rows.to(data.labels.device))
    return Mined(kept, targets[rows], epoch_N[rows], before_N[rows], bar_N[rows], len(data))


def mine_at_random(
    model: nn.Module,
    history: Historical,
    data: Data,
    layer: KeyLayer | str,
    *,
    seed: int = 0,
    report: Report | None = None,
) -> Mined:
    """DARE's variant `rand`: every image takes its target from a historical model drawn by (seed, identity), whether
    that one is right or not."""
    before_N = _confidence(model, data, None)
    draw_N = randomness.uniform(data.index, seed=seed, stream=Stream.SELECTION)[:, 0, 0].to(before_N.device)
    pick_N = (draw_N * len(history.epochs)).long()
    after_N, targets = torch.zeros_like(before_N), None
    past, epoch_N = copy.deepcopy(model), torch.tensor(list(history.epochs), device=before_N.device)[pick_N]
    picked = epoch_N.unique().tolist()
    for done, (epoch, weights) in enumerate(_ahead(history, picked), 1):
        _wear(past, weights, epoch)
        rows = (epoch_N == epoch).nonzero().flatten()
        after_N[rows] = _confidence(past, data, rows, only_right=False)
        targets = _put(targets, rows, _activations(past, data, rows, layer), len(data))
        if report is not None:
            report(done, len(picked))
    assert targets is not None  # a history has at least one epoch, and data one image
    return Mined(data, targets, epoch_N, before_N, after_N, len(data))


def _none_better(images: int) -> UserError:
    return UserError(f"history: no historical model knows any of the {images} images better than the model does.")


def _ahead(history: Historical, epochs: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
    """The weights of each epoch; the next ones are read while these are used."""
    with ThreadPoolExecutor(1) as reader:
        waiting = [reader.submit(history.weights, epoch) for epoch in epochs[:1]]
        for at, epoch in enumerate(epochs):
            weights = waiting.pop().result()
            waiting += [reader.submit(history.weights, following) for following in epochs[at + 1 : at + 2]]
            yield epoch, weights


def _wear(model: nn.Module, weights: Mapping[str, Tensor], epoch: int) -> None:
    try:
        model.load_state_dict(dict(weights))
    except RuntimeError:
        raise UserError(f"history: the weights of epoch {epoch} belong to another model.") from None


def _confidence(model: nn.Module, data: Data, rows: Tensor | None, only_right: bool = True) -> Tensor:
    """The model's confidence in the labels, float64 `[N]` on its device; 0 where it is wrong, if `only_right`."""
    parts = []
    device, chunk, blocks = _passes(model, data, rows)
    for batch in data.batches(blocks, device):
        found_NK = logits(model, batch.images, chunk)
        confident_N = found_NK.double().softmax(1).gather(1, batch.labels[:, None])[:, 0]
        known_N = right(found_NK, batch.labels)
        parts.append(torch.where(known_N, confident_N, 0.0) if only_right else confident_N)
    return torch.cat(parts)


def _activations(model: nn.Module, data: Data, rows: Tensor, layer: KeyLayer | str) -> Tensor:
    """`[rows, out]` of the layer, in chunks of one shape."""
    parts: list[Tensor] = []
    device, chunk, blocks = _passes(model, data, rows)
    for batch in data.batches(blocks, device):
        with scoring(model, device):
            found = [
                activation_of(model, padded(part, chunk), layer)[: len(part)] for part in batch.images.split(chunk)
            ]
        parts += [part.clone() for part in found]  # outside inference mode: ordinary tensors
    return torch.cat(parts) if parts else torch.empty(0, 0, device=device)


def _passes(model: nn.Module, data: Data, rows: Tensor | None) -> tuple[torch.device, int, list[Tensor]]:
    """Device, rows per pass, and the positions of the data in blocks of some passes."""
    device = home_of(model)
    chunk = default_chunk((data.channels, *data.size), device)
    positions = torch.arange(len(data)) if rows is None else rows
    return device, chunk, [block for block in positions.split(16 * chunk) if len(block)]


def _put(targets: Tensor | None, rows: Tensor, found: Tensor, count: int) -> Tensor | None:
    """Writes the rows into `[count, out]`, which is made once its width is known."""
    if not len(rows):
        return targets
    if targets is None:
        targets = found.new_zeros(count, found.shape[1])
    targets[rows] = found
    return targets

"""Labelled images: what every reader returns and every loop consumes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import isfinite
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ukemi import randomness
from ukemi.data.streaming import decoded, workers_for
from ukemi.errors import UserError
from ukemi.randomness import Stream


class Images(Protocol):
    """What holds the pixels: a tensor, or something that decodes rows on demand. `images[positions]` gives NCHW."""

    @property
    def shape(self) -> Sequence[int]: ...

    def __getitem__(self, positions: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Batch:
    """Rows of a data set on the device: identities `[N]`, pixels in [0, 1] `[N, C, H, W]`, labels `[N]`."""

    index: Tensor
    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Data:
    """Images with labels. `index` is each sample's identity, which survives splits and subsets."""

    images: Images
    """uint8 0..255 or float32 0..1, `[N, C, H, W]`"""
    labels: Tensor
    """int64 `[N]`"""
    classes: tuple[str, ...]
    index: Tensor
    """int64 `[N]`, below `identities`"""
    identities: int
    """how many samples the whole set has: the size of anything stored per sample"""
    groups: Tensor | None = None
    """int64 `[N]`; samples of one group (frames of one track) never part in a split"""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        """What it is: in a notebook its pixels would hide it."""
        return (
            f"Data(images={len(self)}, channels={self.channels}, size={self.size}, classes={len(self.classes)},"
            f" identities={self.identities})"
        )

    @property
    def channels(self) -> int:
        return self.images.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.images.shape[2], self.images.shape[3]

    def take(self, positions: Tensor) -> "Data":
        """The samples at `positions`, with their identities."""
        positions = self._checked(positions)
        images = self.images[positions] if isinstance(self.images, Tensor) else _Rows(self.images, positions)
        groups = None if self.groups is None else self.groups[positions]
        return replace(self, images=images, labels=self.labels[positions], index=self.index[positions], groups=groups)

    def to(self, device: torch.device | str, spare: float = 0.25) -> "Data":
        """The whole set on `device` where it fits with `spare` of its free memory to go, else unchanged."""
        device = torch.device(device)
        if not isinstance(self.images, Tensor):
            return self
        if device.type == "cuda":
            free = torch.cuda.mem_get_info(device)[0]
            if self.images.numel() * self.images.element_size() > (1 - spare) * free:
                return self
        return replace(self, images=self.images.to(device), labels=self.labels.to(device), index=self.index.to(device))

    def batch(self, positions: Tensor, device: torch.device | str) -> Batch:
        """The samples at `positions` as a batch on `device`; where the pixels are elsewhere, only these rows travel."""
        positions = self._checked(positions)
        images = self.images[positions.to(self.labels.device)]
        if torch.device(device).type == "cuda" and images.device.type == "cpu":
            images = images.pin_memory()
        return self._with(images, positions, device)

    def _checked(self, positions: Tensor) -> Tensor:
        """Whole numbers `[n]`, or a mask of all samples as such. A GPU would have to be waited for, so nobody looks at
        numbers there: below 0 they count from the end, beyond it the device itself stops."""
        kind = positions.dtype if isinstance(positions, Tensor) and positions.ndim == 1 else None
        if kind == torch.bool and len(positions) == len(self):
            return positions.nonzero().flatten()
        if kind not in (torch.int32, torch.int64):
            given = f"{positions.dtype} {list(positions.shape)}" if isinstance(positions, Tensor) else repr(positions)
            raise UserError(f"positions: an int64 tensor [n] is needed, but {given} was given.")
        if positions.device.type == "cpu" and len(positions):
            for number in map(int, positions.aminmax()):
                if not 0 <= number < len(self):
                    raise UserError(f"positions: they go from 0 to {len(self) - 1}, but {number} is among them.")
        return positions

    def _with(self, images: Tensor, positions: Tensor, device: torch.device | str) -> Batch:
        images, positions = images.to(device, non_blocking=True), positions.to(self.labels.device)
        return Batch(
            self.index[positions].to(device, non_blocking=True),
            as_float(images),
            self.labels[positions].to(device, non_blocking=True),
        )

    def batches(self, order: Sequence[Tensor], device: torch.device | str) -> Iterator[Batch]:
        """The batches of `order` one by one; rows that are not on the device are fetched one batch ahead, and files are
        decoded by processes that run ahead."""
        if self.labels.device.type == torch.device(device).type and isinstance(self.images, Tensor):
            yield from (self.batch(positions, device) for positions in order)
            return
        workers = workers_for(self.images, len(order))
        if workers:
            pin = torch.device(device).type == "cuda"
            ahead_of = decoded(self.images, order, workers, pin=pin)
            yield from (self._with(images, at, device) for images, at in zip(ahead_of, order, strict=True))
            return
        with ThreadPoolExecutor(1) as ahead:
            waiting = [ahead.submit(self._fetched, positions, device) for positions in order[:1]]
            for positions in order[1:]:
                waiting.append(ahead.submit(self._fetched, positions, device))
                yield _received(waiting.pop(0).result())
            for last in waiting:
                yield _received(last.result())

    def _fetched(self, positions: Tensor, device: torch.device | str) -> Batch:
        """A batch that has arrived: the thread that fetches it works on a CUDA stream of its own."""
        batch = self.batch(positions, device)
        if batch.images.is_cuda:
            torch.cuda.current_stream(batch.images.device).synchronize()
        return batch

    def split(self, share: float, seed: int) -> tuple["Data", "Data"]:
        """Two parts, the second with about `share` of the samples, drawn by `seed`; groups stay together."""
        if not 0 < share < 1:
            raise UserError(f"validation: the share should lie between 0 and 1, but {share} was given.")
        groups = self.index if self.groups is None else self.groups
        names, group_of = torch.unique(groups.cpu(), return_inverse=True)
        rank = randomness.bits(names, seed=seed, stream=Stream.SPLIT).argsort(stable=True).argsort(stable=True)
        sizes = torch.bincount(group_of, minlength=len(names))
        before = torch.empty_like(sizes)
        before[rank] = torch.arange(len(names))
        # A group goes over where that brings the second part nearer to its share; single samples fill it exactly.
        cut = sizes[before].cumsum(0) - sizes[before] / 2 <= max(1, round(share * len(self)))
        held_out = cut[rank][group_of]
        if not held_out.any() or held_out.all():
            among = f" in {len(names)} groups" * (self.groups is not None)
            raise UserError(f"validation: a share of {share} of {len(self)} samples{among} leaves one part empty.")
        return self.take(torch.nonzero(~held_out).flatten()), self.take(torch.nonzero(held_out).flatten())


def _received(batch: Batch) -> Batch:
    """Tells the allocator that this thread's stream uses the batch too, so that its memory is not given away early."""
    if batch.images.is_cuda:
        for tensor in (batch.index, batch.images, batch.labels):
            tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return batch


class _Rows:
    """Rows of something that decodes on demand."""

    def __init__(self, images: Images, positions: Tensor) -> None:
        self._images, self._positions = images, positions
        self.shape = (len(positions), *images.shape[1:])
        if hasattr(images, "workers"):
            self.workers: int | None = images.workers

    def __getitem__(self, positions: Tensor) -> Tensor:
        return self._images[self._positions[positions]]

    def beside(self, other: "_Rows") -> "_Rows":
        """These rows and others of the same images."""
        return _Rows(self._images, torch.cat([self._positions, other._positions]))


@dataclass(frozen=True)
class DataSet:
    """A data set by name: what to train on and what to test on."""

    name: str
    train: Data
    test: Data

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    def was_one(self) -> bool:
        """Whether the test part was drawn from one set, as readers do where there is none: identities tell."""
        return len(self.train) + len(self.test) == self.test.identities == self.train.identities

    def whole(self) -> Data | None:
        """Every sample of a set that was one, in its own order; None where the test part is one of its own."""
        images = _together(self.train.images, self.test.images) if self.was_one() else None
        if images is None:
            return None
        labels, index = (torch.cat([getattr(self.train, of), getattr(self.test, of)]) for of in ("labels", "index"))
        first, second = self.train.groups, self.test.groups
        groups = None if first is None or second is None else torch.cat([first, second])
        return replace(self.train, images=images, labels=labels, index=index, groups=groups).take(index.argsort())


def _together(one: Images, other: Images) -> Images | None:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.cat([one, other])
    return one.beside(other) if isinstance(one, _Rows) and isinstance(other, _Rows) else None


def as_float(images: Tensor) -> Tensor:
    """uint8 0..255 as float32 0..1; float pixels unchanged."""
    return images.float() / 255 if images.dtype == torch.uint8 else images


def labelled(
    images: Tensor | Images,
    labels: Tensor,
    classes: Sequence[str] | None = None,
    *,
    groups: Tensor | None = None,
    name: str = "data",
) -> Data:
    """Checks pixels and labels where they enter and gives every sample its identity, 0..N-1.

    `images` is uint8 or float `[N, H, W]`, `[N, C, H, W]`; `classes` defaults to the label numbers as text.
    """
    for field, given in (("images", images), ("labels", labels)):
        if not isinstance(given, Tensor) and (field == "labels" or isinstance(given, list | np.ndarray)):
            raise UserError(f"{name}: {field}: a torch tensor is needed, but a {type(given).__name__} was given.")
    if isinstance(images, Tensor):
        images = check_pixels(images[:, None] if images.ndim == 3 else images, name)
    count = images.shape[0]
    if count == 0:
        raise UserError(f"{name}: there is no image in it.")
    if labels.is_floating_point():
        raise UserError(f"{name}: labels should be whole numbers, but {labels.dtype} was given.")
    if labels.ndim == 2 and len(labels) == count and labels.shape[1] > 1:
        raise UserError(
            f"{name}: one whole number per image is needed as its label, but {list(labels.shape)} was given."
        )
    labels = labels.long().flatten()
    if len(labels) != count:
        raise UserError(f"{name}: {count} images but {len(labels)} labels.")
    if int(labels.min()) < 0:
        raise UserError(f"{name}: labels should count from 0, but {int(labels.min())} is among them.")
    if classes is None:
        classes = [str(number) for number in range(int(labels.max()) + 1)]
    if int(labels.max()) >= len(classes):
        raise UserError(f"{name}: label {int(labels.max())} is beyond its {len(classes)} classes.")
    if len(classes) < 2:
        raise UserError(f"{name}: there is one class only ({classes[0]!r}); a classifier needs at least two.")
    return Data(images, labels, tuple(classes), torch.arange(count), count, groups)


def check_shape(images: Tensor, name: str = "images") -> None:
    """`[N, C, H, W]`, of which N alone may be 0."""
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise UserError(f"{name}: images should have the shape [N, C, H, W], but {list(images.shape)} was given.")


def check_pixels(images: Tensor, name: str = "images", ends: Sequence[float] = ()) -> Tensor:
    """`[N, C, H, W]` in uint8, or in float32 with every value in [0, 1]; anything else is named in a sentence. `ends`
    are the lowest and the highest pixel, where they have been read already."""
    if not isinstance(images, Tensor):
        raise UserError(f"{name}: a torch tensor is needed, but a {type(images).__name__} was given.")
    check_shape(images, name)
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise UserError(f"{name}: pixels should be uint8 or float, but {images.dtype} was given.")
    images = images.float()
    if not len(images):
        return images
    low, high = ends or torch.stack(images.aminmax()).tolist()  # read at once: a device that is asked less waits less
    if not (isfinite(low) and isfinite(high)):
        bad = ~images.isfinite().flatten(1).all(1)
        raise UserError(f"{name}: image {int(bad.nonzero()[0])} has a pixel that is NaN or infinite.")
    if low < 0 or high > 1:
        as_bytes = low >= 0 and 8 < high <= 255  # no usual normalisation reaches so far
        hint = "those of 0 to 255 belong into uint8, or divided by 255"
        hint = hint if as_bytes else "normalisation belongs into the model: ukemi.Normalize"
        raise UserError(f"{name}: pixels should lie in [0, 1], but {low:g} to {high:g} was given ({hint}).")
    return images

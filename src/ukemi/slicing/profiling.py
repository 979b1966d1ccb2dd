"""What a network's nodes give for data: batch by batch, on average, and on average over each class."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.models.inference import padded
from ukemi.slicing.steps import Plan
from ukemi.slicing.tracing import Watch


@dataclass(frozen=True)
class Profiler:
    """Runs a network and keeps what `keep` makes of the nodes in `wanted`."""

    model: nn.Module
    plan: Plan
    wanted: frozenset[str]
    keep: Callable[[Tensor], Tensor]
    chunk: int
    device: torch.device
    seen: Callable[[int], None]
    """is told of every batch how many samples it had"""

    def batches(self, data: Data) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Labels and kept numbers `[N, …]` by node, in the order of the data; every pass has the same shape, and all
        numbers the precision of the most precise."""
        for batch in data.batches(torch.arange(len(data)).split(self.chunk), self.device):
            watch = Watch(self.model, self.plan.graph, self.wanted, self.keep)
            watch.run(padded(batch.images, self.chunk))
            rows, kind = len(batch.labels), reduce(torch.promote_types, (one.dtype for one in watch.kept.values()))
            yield batch.labels, {name: kept[:rows].to(kind) for name, kept in watch.kept.items()}
            self.seen(rows)

    def means(self, data: Data) -> dict[str, Tensor]:
        """The mean over all samples, `[…]` by node (the baseline of DARE's section 3.1.1)."""
        means = self._means(data, lambda labels: labels.new_ones(len(labels), 1))
        return {name: mean[0] for name, mean in means.items()}

    def class_means(self, data: Data) -> dict[str, Tensor]:
        """The mean over the samples of each class, `[classes, …]` by node."""
        return self._means(data, lambda labels: F.one_hot(labels, len(data.classes)))

    def _means(self, data: Data, sorted_into: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        sums: dict[str, Tensor] = {}
        counts: Tensor | int = 0
        kinds: dict[str, torch.dtype] = {}
        for labels_N, values in self.batches(data):
            into_NK = sorted_into(labels_N).double()
            counts = counts + into_NK.sum(0)
            for name, value in values.items():
                summed = (into_NK.T @ value.double().flatten(1)).unflatten(1, value.shape[1:])
                sums[name] = sums[name] + summed if name in sums else summed
                kinds[name] = value.dtype
        found = {}
        for name, total in sums.items():
            if not bool(total.isfinite().all()):
                raise UserError(f"model: {name!r} gives numbers that are not finite, so it can't be sliced.")
            shape = (-1, *[1] * (total.ndim - 1))
            found[name] = (total / torch.as_tensor(counts).clamp(min=1).view(shape)).to(kinds[name])
        return found

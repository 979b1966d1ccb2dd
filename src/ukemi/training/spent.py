"""Where an epoch went: which genes it was trained on, and what its seconds were spent on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

import torch
from torch import Tensor

from ukemi.spaces import Space

BINS = 15
"""parts of a gene's range at most; odd, so that the identity lies in the middle of one"""
GENES = "genes"
"""among a state's sums"""
Item = TypeVar("Item")


@dataclass
class Spent:
    """Seconds of the epoch at hand, as this process sees them."""

    data: float = 0.0
    """waiting for batches"""
    scoring: float = 0.0
    """making and scoring variants; on a GPU, which works on while the process goes on, what it took to ask for them"""
    validation: float = 0.0
    scored: int = 0
    """scoring passes before this epoch"""
    images: int = 0
    """of all ranks, since the epoch began or was taken up"""
    rate: float = 0.0
    """these per second"""

    def waited(self, items: Iterator[Item]) -> Iterator[Item]:
        """The same items; counts how long they were waited for."""
        self.images, first = 0, monotonic()
        while True:
            began = monotonic()
            item = next(items, None)
            self.data += monotonic() - began
            if item is None:
                self.rate = self.images / max(monotonic() - first, 1e-9)
                return
            yield item

    @contextmanager
    def search(self) -> Iterator[None]:
        """Counts what is done inside as scoring."""
        began = monotonic()
        yield
        self.scoring += monotonic() - began

    def taken(self) -> dict[str, float]:
        """For the log, and from 0 again."""
        names = ("data", "scoring", "validation")
        told = {"images_per_second": round(self.rate, 1)}
        told |= {f"{name}_seconds": round(getattr(self, name), 3) for name in names}
        self.data = self.scoring = self.validation = 0.0
        return told


def count_genes(genes_NG: Tensor, space: Space) -> Tensor:
    """How many chromosomes have each gene in each part of its range, float64 `[G, BINS]`; never waits for the device.

    A gene of fewer levels than BINS has a part per level, and nothing in the parts behind."""
    levels_G = space.last_codes(genes_NG.device) + 1
    parts_NG = (space.encode(genes_NG) * levels_G.clamp(max=BINS) / levels_G).floor()
    return (parts_NG[..., None] == torch.arange(BINS, device=genes_NG.device)).sum(0).double()


def genes_line(counts_GB: Tensor, space: Space) -> list[dict[str, Any]]:
    """The same for the log."""
    levels = space.last_codes().int() + 1
    return [
        {
            "gene": gene.name,
            "low": gene.low,
            "high": gene.high,
            "levels": int(count),
            "counts": [int(number) for number in row[: min(BINS, int(count))]],
        }
        for gene, count, row in zip(space.genes, levels, counts_GB.tolist(), strict=True)
    ]

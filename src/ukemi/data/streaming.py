"""Images that are decoded when they are asked for, by processes that run ahead of the training."""

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ukemi.errors import UserError
from ukemi.ranks import launched

MOST_WORKERS = 8
"""processes that decode where nothing is said: more rarely find the disk ready"""
WORTH = 4
"""batches per process from which starting it pays"""
AHEAD = 2
"""batches that each process decodes ahead"""


def workers_for(images: Any, batches: int) -> int:
    """How many processes decode so many batches of `images`; 0 where threads do, or nothing is to be decoded."""
    if not hasattr(images, "workers"):
        return 0
    asked: int | None = images.workers
    return min(usual_workers(), batches // WORTH) if asked is None else min(asked, batches)


def usual_workers() -> int:
    """A share of this machine's processors."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    here = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if launched() > 1 else 1
    return max(1, min(MOST_WORKERS, there // here))


def decoded(images: Any, order: Sequence[Tensor], workers: int, *, pin: bool) -> Iterator[Tensor]:
    """uint8 `[N, C, H, W]` of each of the batches `order` (positions `[N]`), decoded ahead by `workers` processes."""
    loader = DataLoader(
        _Batches(images),
        batch_size=None,
        sampler=list(order),
        num_workers=workers,
        prefetch_factor=AHEAD,
        pin_memory=pin,
        multiprocessing_context="forkserver",  # forks of a process that holds no GPU and has no threads
        worker_init_fn=_deaf,
        generator=torch.Generator(),  # else it draws from the global one
    )
    try:
        for found in loader:
            if isinstance(found, str):
                raise UserError(found)
            yield found
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise UserError(
            "workers: a process that decodes images was ended, by lack of memory perhaps; --workers 0 does without."
        ) from error


class _Batches(Dataset[Any]):
    """Positions to pixels, or to the sentence that says which image is damaged."""

    def __init__(self, images: Any) -> None:
        self._images = images

    def __getitem__(self, positions: Tensor) -> Tensor | str:
        try:
            return self._images[positions]
        except UserError as error:
            return str(error)


def _deaf(worker: int) -> None:
    """Ctrl-C is the parent's affair: it asks for these batches until its next checkpoint."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

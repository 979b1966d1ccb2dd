"""A training step as a CUDA graph: at small batches a GPU waits for launches, and a graph is one launch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ukemi.data import Batch

WARM_UP = 3
"""steps that run eagerly first: libraries choose kernels and optimisers make their state, which can't be captured"""


@dataclass(frozen=True)
class Stepped:
    """What a step gave, detached."""

    losses: Tensor
    """`[N]`"""
    genes: Tensor | None
    """the chromosomes `[N, G]` of its images, where there are any"""
    scored: int = 0
    """scoring passes that it took, counted in images"""


Step = Callable[[Batch], Stepped]


class Replayed:
    """A step that is captured once per epoch and then replayed; on a CPU, or for a batch of another size, it just runs.

    What it returns is overwritten by the next replay. The capture holds for one epoch because the epoch's number, the
    key of all randomness, is part of it. A step that can't be captured (its model waits for the device) runs as it is.
    """

    def __init__(self, step: Step, batch_size: int, enabled: bool, note: Callable[[str], None]) -> None:
        self._step, self._size, self._enabled, self._note = step, batch_size, enabled, note
        self._done = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stale = True
        self._memory = torch.cuda.graph_pool_handle() if enabled else None
        self._batch: Batch | None = None
        self._result: Stepped | None = None

    def forget(self) -> None:
        """Call before every epoch."""
        self._stale = True

    def __call__(self, batch: Batch) -> Stepped:
        if not self._enabled or len(batch.index) != self._size or self._done < WARM_UP:
            self._done += 1
            return self._step(batch)
        if self._stale and not self._capture(batch):
            return self._step(batch)
        assert self._graph is not None and self._batch is not None and self._result is not None
        for mine, given in zip(_tensors(self._batch), _tensors(batch), strict=True):
            mine.copy_(given)
        self._graph.replay()
        return self._result

    def _capture(self, batch: Batch) -> bool:
        self._batch = self._batch or Batch(batch.index.clone(), batch.images.clone(), batch.labels.clone())
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        generator = torch.cuda.default_generators[stream.device_index]
        spare = generator.clone_state()
        try:
            # thread-local: the thread that fetches the next batch may go on meanwhile
            with torch.cuda.graph(graph, self._memory, stream, capture_error_mode="thread_local"):
                self._result = self._step(self._batch)
        except RuntimeError as error:
            # a capture that failed leaves the generator in a state in which dropout can't draw
            generator.graphsafe_set_state(spare)
            self._enabled = False
            reason = str(error).strip().partition("\n")[0]
            self._note(f"This step can't be captured as a CUDA graph, so it runs launch by launch ({reason}).")
            return False
        # only now is the last epoch's graph let go: memory that no graph holds can't be captured into again
        self._graph, self._stale = graph, False
        return True


def _tensors(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.index, batch.images, batch.labels


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """All of the training on one stream that may be captured: the default stream may not."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)

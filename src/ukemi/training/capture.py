"""A training step as a CUDA graph: at small batches a GPU waits for launches, and a graph is one launch."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ukemi.data import Batch

WARM_UP = 2
"""steps of every kind that run eagerly first: libraries choose kernels, compilers compile and optimisers make their
state, none of which can be captured"""


@dataclass(frozen=True)
class Stepped:
    """What a step gave, detached."""

    losses: Tensor
    """`[N]`"""
    genes: Tensor | None
    """the chromosomes `[N, G]` of its images, where there are any"""
    logits: Tensor | None
    """`[N, K]`, of the images trained on; None where they are mixed and nobody wants to know"""
    scored: int = 0
    """scoring passes that it took, counted in images"""
    spared: int = 0
    """scoring passes that skipping robust samples saved"""


Step = Callable[[Batch], Stepped]
Kind = tuple[int, int]
"""what augmenter and objective said of a step"""


class Replayed:
    """A step that is captured once per epoch and kind and then replayed; on a CPU, or for a batch of another size, it
    just runs.

    What it returns is overwritten by the next replay. A capture holds for one epoch because the epoch's number, the key
    of all randomness, is part of it. Steps of one kind do the same work in the same shapes (see the `plan` of augmenter
    and objective). A step that can't be captured (its model waits for the device) runs as it is.
    """

    def __init__(self, step: Step, batch_size: int, enabled: bool, note: Callable[[str], None]) -> None:
        self._step, self._size, self._enabled, self._note = step, batch_size, enabled, note
        self._done: Counter[Kind] = Counter()
        self._graphs: dict[Kind, tuple[torch.cuda.CUDAGraph, Stepped]] = {}
        self._old: dict[Kind, tuple[torch.cuda.CUDAGraph, Stepped]] = {}
        self._memory = torch.cuda.graph_pool_handle() if enabled else None
        self._batch: Batch | None = None

    def forget(self) -> None:
        """Call before every epoch."""
        self._old, self._graphs = self._graphs or self._old, {}

    def __call__(self, batch: Batch, kind: Kind = (0, 0)) -> Stepped:
        if not self._enabled or len(batch.index) != self._size:
            return self._step(batch)
        if self._done[kind] < WARM_UP:
            self._done[kind] += 1
            return self._step(batch)
        if kind not in self._graphs and not self._capture(batch, kind):
            return self._step(batch)
        assert self._batch is not None
        graph, result = self._graphs[kind]
        for mine, given in zip(_tensors(self._batch), _tensors(batch), strict=True):
            mine.copy_(given)
        graph.replay()
        return result

    def _capture(self, batch: Batch, kind: Kind) -> bool:
        self._batch = self._batch or Batch(batch.index.clone(), batch.images.clone(), batch.labels.clone())
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        generator = torch.cuda.default_generators[stream.device_index]
        spare = generator.clone_state()
        try:
            # thread-local: the thread that fetches the next batch may go on meanwhile
            with torch.cuda.graph(graph, self._memory, stream, capture_error_mode="thread_local"):
                result = self._step(self._batch)
        except RuntimeError as error:
            # a capture that failed leaves the generator in a state in which dropout can't draw
            generator.graphsafe_set_state(spare)
            self._enabled = False
            reason = str(error).strip().partition("\n")[0]
            self._note(f"This step can't be captured as a CUDA graph, so it runs launch by launch ({reason}).")
            return False
        # only now are the last epoch's graphs let go: memory that no graph holds can't be captured into again
        self._graphs[kind], self._old = (graph, result), {}
        return True


def _tensors(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.index, batch.images, batch.labels

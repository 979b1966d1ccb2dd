"""A step that is taken many times: on a GPU it is recorded once, as a CUDA graph, and then launched at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ukemi.models.inference import recording

State = TypeVar("State")
WARM_UP = 2
"""steps that run launch by launch first: libraries choose their kernels, which can't be recorded"""
WORTH = 4
"""recording takes about as long as two steps: with fewer steps ahead than these it is left out"""
_wanted = threading.local()


class Repeated(Generic[State]):
    """`step(state)` again and again, where `state` is a dataclass whose tensors the step changes or replaces.

    A record holds as long as the tensors keep their shapes and everything else in the state is the same object; values
    may change between calls. A step that can't be recorded (its model waits for the device) runs launch by launch, as
    on a processor, while another graph is recorded, and under `launch_by_launch`.
    """

    def __init__(self, step: Callable[[State], None]) -> None:
        self._step, self._able = step, True
        self._graph: torch.cuda.CUDAGraph | None = None
        self._held: dict[str, Any] = {}
        self._like: list[Any] = []
        self._warm = 0

    def __call__(self, state: State, times: int) -> None:
        device = next(value for value in _parts(state).values() if isinstance(value, Tensor)).device
        if device.type != "cuda" or recording(device) or not getattr(_wanted, "graphs", True):
            self._launch(state, times)
            return
        with torch.cuda.device(device), own_stream(device):
            if not self._fits(state):
                self._graph, self._held, self._like, self._warm = None, {}, _likeness(state), 0
            if self._graph is None:
                early = min(times, max(0, WARM_UP - self._warm))
                self._launch(state, early)
                times -= early
                if times < WORTH or not self._able or not self._record(state, device):
                    self._launch(state, times)
                    return
            self._replay(state, times)

    def _launch(self, state: State, times: int) -> None:
        for _ in range(times):
            self._step(state)
        self._warm += times

    def _fits(self, state: State) -> bool:
        now = _likeness(state)
        return len(now) == len(self._like) and all(_same(a, b) for a, b in zip(now, self._like, strict=True))

    def _replay(self, state: State, times: int) -> None:
        assert self._graph is not None
        for name, mine in self._held.items():
            given = getattr(state, name)
            if given is not mine:
                mine.copy_(given)
                setattr(state, name, mine)
        for _ in range(times):
            self._graph.replay()

    def _record(self, state: State, device: torch.device) -> bool:
        """Holds the tensors in memory of their own, where each replay finds them and leaves what it made of them."""
        held = {name: value.clone() for name, value in _parts(state).items() if isinstance(value, Tensor)}
        graph, generator = torch.cuda.CUDAGraph(), torch.cuda.default_generators[device.index]
        spare = generator.clone_state()
        _give(state, held)
        try:
            with _capture(graph, _scratch(device, threading.get_ident()).pool()):
                self._step(state)
                for name, mine in held.items():
                    made = getattr(state, name)
                    if made is not mine:
                        mine.copy_(made)
        except RuntimeError:
            # a recording that failed leaves the generator in a state in which dropout can't draw (and, up to torch
            # 2.11, its memory in use: nothing after it is recorded in this process, which takes longer but is right)
            generator.graphsafe_set_state(spare)
            self._able = False
        _give(state, held)  # nothing ran yet: what the step put there are places, not values
        self._graph, self._held = (graph, held) if self._able else (None, {})
        return self._able


@contextmanager
def launch_by_launch() -> Iterator[None]:
    """Nothing is recorded in here: for models that do more than compute, as to count their calls or to draw a number in
    Python, which a recorded step would do once."""
    before = getattr(_wanted, "graphs", True)
    _wanted.graphs = False
    try:
        yield
    finally:
        _wanted.graphs = before


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Work on a stream that may be recorded: the default stream may not."""
    if device.type != "cuda" or torch.cuda.current_stream(device) != torch.cuda.default_stream(device):
        yield
        return
    stream = _stream(device, threading.get_ident())
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)


@cache
def _stream(device: torch.device, thread: int) -> torch.cuda.Stream:
    """One for all: memory that was used on a stream is only used on that stream again."""
    return torch.cuda.Stream(device)


@cache
def _scratch(device: torch.device, thread: int) -> torch.cuda.CUDAGraph:
    """A graph that keeps the memory in which steps compute, one after the other, for the next ones."""
    graph = torch.cuda.CUDAGraph()
    with _capture(graph, None):
        torch.zeros(1, device=device)
    return graph


@contextmanager
def _capture(graph: torch.cuda.CUDAGraph, memory: Any) -> Iterator[None]:
    # thread-local: what other threads do meanwhile is their own affair
    graph.capture_begin(memory, capture_error_mode="thread_local")
    try:
        yield
    finally:
        graph.capture_end()


def _parts(state: Any) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state)}


def _give(state: Any, held: dict[str, Tensor]) -> None:
    for name, value in held.items():
        setattr(state, name, value)


def _likeness(state: Any) -> list[Any]:
    """What a recorded step is bound to: the shapes of tensors, and all else as it is."""
    return [
        (value.shape, value.dtype, value.device) if isinstance(value, Tensor) else value
        for value in _parts(state).values()
    ]


def _same(one: Any, other: Any) -> bool:
    return one == other if isinstance(one, tuple) else one is other

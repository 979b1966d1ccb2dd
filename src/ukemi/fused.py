"""Chains of small operations as one kernel, where a training is compiled and autotuned.

A step of a search launches hundreds of operations on few numbers, and some that move all variants through memory: on a
GPU that is a good part of its time. What is marked as `fusable` runs launch by launch, as anything does, until
`compiled` asks for more.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Given = ParamSpec("Given")
Made = TypeVar("Made")
_kinds: set[str] = set()
"""kinds of device on which what is fusable is compiled at the moment"""


def fusable(function: Callable[Given, Made], *, sizes: bool = False) -> Callable[Given, Made]:
    """A function of tensors, the first of which says the device, and of constants.

    Compiled, it serves any number of rows; with `sizes`, tensors of any size at all, by a slower kernel.
    """
    kernels: list[Callable[Given, Made]] = []

    @wraps(function)
    def run(*given: Given.args, **named: Given.kwargs) -> Made:
        if not _kinds or not (isinstance(given[0], Tensor) and given[0].device.type in _kinds):
            return function(*given, **named)
        if not kernels:
            kernels.append(torch.compile(function, dynamic=True if sizes else None))
        return kernels[0](*(given if sizes else map(_of_any_length, given)), **named)

    return run


def _of_any_length(one: object) -> object:
    """A tensor marked as one of any number of rows: a view, since the mark would make the caller's tensor a reason to
    compile a network anew, for any batch size."""
    if isinstance(one, Tensor) and one.ndim:
        one = one.view_as(one)
        torch._dynamo.maybe_mark_dynamic(one, 0)
    return one


@contextmanager
def compiled(kind: str = "cuda") -> Iterator[None]:
    """Inside, what is fusable is compiled for this kind of device. What is computed elsewhere meanwhile, as a plan on
    the CPU, is left alone: compiling takes longer."""
    before = kind in _kinds
    _kinds.add(kind)
    try:
        yield
    finally:
        if not before:
            _kinds.discard(kind)

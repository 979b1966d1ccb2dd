"""The networks as a table to read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ukemi.models.registry import MODELS
from ukemi.models.shape import Entry, Shape


class Row(NamedTuple):
    """One network; `parameters` are counted at the paper's `shape`."""

    name: str
    parameters: int
    shape: Shape
    about: str


def listing() -> list[Row]:
    """All networks in the order of the table; the count allocates and draws nothing."""
    return [Row(name, parameters(entry), entry.shape, entry.about) for name, entry in MODELS.items()]


def parameters(entry: Entry) -> int:
    """How many parameters the network has at its paper's shape."""
    with torch.device("meta"), _WithoutDrawing():
        return sum(parameter.numel() for parameter in entry.factory(entry.shape).parameters())


class _WithoutDrawing(TorchFunctionMode):
    """Leaves new weights as they are: drawing them on the meta device first loads torch's compiler, two seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init" or func in (Tensor.uniform_, Tensor.normal_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)

"""A running average of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """An average of a model's floating tensors (weights, BatchNorm statistics), or nothing where `kept` is 0."""

    def __init__(self, model: nn.Module, kept: float) -> None:
        self._now = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        self.tensors: dict[str, Tensor] = {name: tensor.clone() for name, tensor in self._now.items()} if kept else {}

    @torch.no_grad()
    def move(self, towards: float) -> None:
        """Moves it this share of the way to the weights as they are now."""
        if self.tensors:
            torch._foreach_lerp_(list(self.tensors.values()), [self._now[name] for name in self.tensors], towards)

    @contextmanager
    def worn(self) -> Iterator[None]:
        """The model wears its average; afterwards it is as before."""
        before = {name: self._now[name].clone() for name in self.tensors}
        for name, tensor in self.tensors.items():
            self._now[name].copy_(tensor)
        try:
            yield
        finally:
            for name, tensor in before.items():
                self._now[name].copy_(tensor)

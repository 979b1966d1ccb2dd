"""A second set of BatchNorm weights and statistics, for batches of another kind.

Clean images and hard ones differ in their statistics, and a mixture fits neither (AdvProp, Xie et al. 2020; AugMax,
Wang et al. 2021).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ukemi.errors import UserError


class SeparateNorm(nn.Module):
    """Holds what each BatchNorm layer of `model` holds once more: scale, shift, running mean and variance.

    The second set starts as a copy of the first. `model` stays a plain model with its own tensors, keys and layers;
    only within `swapped()` does it run on the second set. Give `parameters()` to the optimiser and `state_dict()` to
    the checkpoint, and make it when the model lies on its device already. What moves while swapped are references, so
    it costs no device time, can be captured as a CUDA graph and needs no new compilation.

    >>> model = nn.Sequential(nn.BatchNorm2d(1))
    >>> separate = SeparateNorm(model)
    >>> with separate.swapped():
    ...     _ = model(torch.ones(2, 1, 4, 4))
    >>> model[0].running_mean, separate.second[0].running_mean
    (tensor([0.]), tensor([0.1000]))
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        # a tuple, so that the model's layers are not part of this module
        self._layers = tuple(layer for layer in model.modules() if isinstance(layer, _BatchNorm))
        if not self._layers:
            raise UserError(
                "model: it has no BatchNorm layer to keep separate statistics of; shared ones are expected."
            )
        self.second = nn.ModuleList(_Tensors(layer) for layer in self._layers)

    @contextmanager
    def swapped(self, on: bool = True) -> Iterator[None]:
        """Within, the model's BatchNorm layers use and update the second set; with `on` false, their own."""
        if on:
            self._swap()
        try:
            yield
        finally:
            if on:
                self._swap()

    def _swap(self) -> None:
        for layer, other in zip(self._layers, self.second, strict=True):
            layer._parameters, other._parameters = other._parameters, layer._parameters
            layer._buffers, other._buffers = other._buffers, layer._buffers


class _Tensors(nn.Module):
    """Copies of a layer's own parameters and buffers under the same names, and nothing else of it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        for name, weight in layer._parameters.items():
            copied = None if weight is None else nn.Parameter(weight.detach().clone(), weight.requires_grad)
            self.register_parameter(name, copied)
        for name, tensor in layer._buffers.items():
            persistent = name not in layer._non_persistent_buffers_set
            self.register_buffer(name, None if tensor is None else tensor.clone(), persistent)

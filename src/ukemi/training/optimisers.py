"""Update rules by name, each of them able to skip an update by a flag on the device (see `training.guard`)."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Optimizer, RMSprop

Parameters = Iterable[nn.Parameter]


def sgd(parameters: Parameters, rate: Tensor, weight_decay: float, momentum: float) -> Optimizer:
    """With Nesterov momentum."""
    return SGD(parameters, lr=rate, weight_decay=weight_decay, momentum=momentum, nesterov=momentum > 0, fused=True)


def adam(parameters: Parameters, rate: Tensor, weight_decay: float, momentum: float) -> Optimizer:
    return Adam(parameters, lr=rate, weight_decay=weight_decay, fused=True, capturable=rate.is_cuda)


def adamw(parameters: Parameters, rate: Tensor, weight_decay: float, momentum: float) -> Optimizer:
    return AdamW(parameters, lr=rate, weight_decay=weight_decay, fused=True, capturable=rate.is_cuda)


def rmsprop(parameters: Parameters, rate: Tensor, weight_decay: float, momentum: float) -> Optimizer:
    """Forgets a tenth per step, as the networks of STYX were trained (Keras's setting)."""
    made = RMSprop(parameters, lr=rate, alpha=0.9, eps=1e-7, weight_decay=weight_decay, capturable=rate.is_cuda)
    return _skipping(made)


def adadelta(parameters: Parameters, rate: Tensor, weight_decay: float, momentum: float) -> Optimizer:
    """Forgets a twentieth per step (Keras's setting); its usual rate is 1."""
    made = Adadelta(parameters, lr=rate, rho=0.95, eps=1e-7, weight_decay=weight_decay, capturable=rate.is_cuda)
    return _skipping(made)


OPTIMISERS: dict[str, Callable[[Parameters, Tensor, float, float], Optimizer]] = {
    "sgd": sgd,
    "adam": adam,
    "adamw": adamw,
    "rmsprop": rmsprop,
    "adadelta": adadelta,
}


def _skipping(optimiser: Optimizer) -> Optimizer:
    """What fused optimisers do by themselves: no weight moves where `found_inf` is 1."""
    optimiser.register_step_pre_hook(_masked)
    return optimiser


@torch.no_grad()
def _masked(optimiser: Optimizer, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """A gradient of 0 at a rate of 0; by `masked_fill`, because 0 times what is not finite is not 0."""
    bad = optimiser.found_inf.bool()  # type: ignore[attr-defined]
    for group in optimiser.param_groups:
        group["lr"].masked_fill_(bad, 0)
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.masked_fill_(bad, 0)

"""Neurons as numbers: one value per channel and image, and the section of its range that it falls into.

A neuron is a channel of a layer, and its value for an image is the mean over the layer's places, as in DeepXplore
(Pei et al. 2017). Outputs are `[M, units]`, `[M, tokens, units]` or `[M, units, H, W]`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ukemi.errors import UserError


def unit_means(outputs: Sequence[Tensor]) -> Tensor:
    """The mean over space of every unit of every layer, `[M, units]`, layer after layer.

    >>> unit_means([torch.ones(2, 3, 4, 4), torch.zeros(2, 5)]).sum(1)
    tensor([3., 3.])
    """
    return _joined(unit_mean, outputs)


def scaled_means(outputs: Sequence[Tensor]) -> Tensor:
    """The same after each image's output was scaled to 0..1 by its own extremes within the layer, `[M, units]`.

    So a unit is judged beside the other units of its layer for the same image (DeepXplore). A layer that gives one
    number everywhere can't be scaled; its units are 0.

    >>> scaled_means([torch.tensor([[1.0, 2.0, 5.0]]), torch.ones(1, 2)])
    tensor([[0.0000, 0.2500, 1.0000, 0.0000, 0.0000]])
    """
    return _joined(scaled_mean, outputs)


def unit_mean(output: Tensor) -> Tensor:
    """The mean over space of one layer's units, `[M, units]`, in float32 (a float64 network's: float64)."""
    output = output if output.dtype == torch.float64 else output.float()
    if output.ndim < 2:
        raise UserError(f"activations: a layer gave {list(output.shape)}, but [M, units, ...] is needed.")
    if output.ndim == 2:
        return output
    return output.mean(1) if output.ndim == 3 else output.mean(tuple(range(2, output.ndim)))


def scaled_mean(output: Tensor) -> Tensor:
    """The mean over space of one layer's scaled units, `[M, units]`."""
    mean_MU = unit_mean(output)
    everything = tuple(range(1, output.ndim))
    low_M1, high_M1 = (end(everything)[:, None].to(mean_MU.dtype) for end in (output.amin, output.amax))
    # averaged first and scaled then, which is the same for less work
    return torch.where(high_M1 > low_M1, (mean_MU - low_M1) / (high_M1 - low_M1), 0)


def sections(values_MU: Tensor, low_U: Tensor, high_U: Tensor, count: int) -> Tensor:
    """Which of `count` equal sections of its range `[low, high]` each unit's value falls into, int64 `[M, U]`.

    Sections count from 0 and hold their lower end, the last one both; -1 is outside, and so is NaN (the k-multisection
    of DeepGauge, Ma et al. 2018). A range of one value has the section 0 only.

    >>> sections(torch.tensor([[0.0], [0.5], [1.0], [1.1]]), torch.zeros(1), torch.ones(1), 4).flatten()
    tensor([ 0,  2,  3, -1])
    """
    width_U = torch.where(high_U > low_U, high_U - low_U, 1)
    place_MU = ((values_MU - low_U) / width_U * count).clamp(0, count - 1)
    inside_MU = (values_MU >= low_U) & (values_MU <= high_U)
    return torch.where(inside_MU, place_MU, -1).long()


def _joined(of: Callable[[Tensor], Tensor], outputs: Sequence[Tensor]) -> Tensor:
    if not outputs:
        raise UserError("activations: no layer's output was given; none of the model's layers ran while recording.")
    parts = [of(output) for output in outputs]
    if len({len(part) for part in parts}) > 1:
        rows = ", ".join(str(len(part)) for part in parts)
        raise UserError(f"activations: every layer should give one row per image, but they gave {rows} rows.")
    return torch.cat(parts, 1)

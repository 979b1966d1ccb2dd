"""Which layers and functions of torch mean what to a slice."""

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from ukemi.activations.recording import ACTIVATIONS

ACTIVATING: tuple[Any, ...] = (
    *(F.relu, torch.relu, torch.relu_, F.relu6, F.leaky_relu, F.leaky_relu_, F.prelu, F.rrelu, F.threshold),
    *(F.elu, F.elu_, F.celu, F.selu, F.gelu, F.silu, F.mish, F.softplus, F.softsign, F.hardtanh, F.hardswish),
    *(F.tanh, torch.tanh, F.sigmoid, torch.sigmoid, F.hardsigmoid, F.logsigmoid, torch.clamp),
    *("relu", "relu_", "tanh", "tanh_", "sigmoid", "sigmoid_", "clamp", "clamp_", "clip"),
)
NORMING: tuple[Any, ...] = (F.batch_norm, torch.batch_norm)
COPYING: tuple[Any, ...] = (
    *(F.dropout, F.dropout2d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout),
    *("contiguous", "clone", "detach", "to", "type", "float", "double", "half", "bfloat16"),
)
SHAPING: tuple[Any, ...] = (
    *(torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze),
    *("flatten", "reshape", "view", "squeeze", "unsqueeze"),
)
SCALING: tuple[Any, ...] = (
    *(operator.mul, operator.truediv, torch.mul, torch.div, operator.imul, operator.itruediv, operator.neg),
    *("mul", "mul_", "div", "div_", "neg"),
)
ADDING: tuple[Any, ...] = (operator.add, operator.iadd, torch.add, "add", "add_")
TAKING: tuple[Any, ...] = (operator.sub, operator.isub, torch.sub, "sub", "sub_")
JOINING: tuple[Any, ...] = (torch.cat, torch.concat, torch.concatenate)
MEANS: tuple[Any, ...] = (torch.mean, "mean")
LARGEST: tuple[Any, ...] = (torch.amax, "amax")

SOFTMAX: tuple[Any, ...] = (
    *(nn.Softmax, nn.LogSoftmax, F.softmax, F.log_softmax, torch.softmax, torch.log_softmax),
    *("softmax", "log_softmax"),
)
SUMMING: tuple[Any, ...] = (
    *(_ConvNd, nn.Linear, nn.Bilinear, nn.MultiheadAttention, nn.RNNBase),
    *(F.linear, F.bilinear, F.conv1d, F.conv2d, F.conv3d),
    *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
    *(operator.matmul, torch.matmul, torch.mm, torch.bmm, torch.einsum, "matmul", "mm", "bmm"),
)
"""sums by weights, whether they can be sliced or not"""

MAX_POOLS = (nn.MaxPool2d, F.max_pool2d, torch.max_pool2d)
AVERAGE_POOLS = (nn.AvgPool2d, F.avg_pool2d)
ADAPTIVE_POOLS = (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d)
POOLS = MAX_POOLS + AVERAGE_POOLS + ADAPTIVE_POOLS
RESIZING = (nn.Upsample, F.interpolate, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d)
"""places are mixed or repeated within each channel"""
PADDING = (nn.ZeroPad2d, nn.ConstantPad2d, F.pad)


def is_norm(node: fx.Node, module: nn.Module | None) -> bool:
    """BatchNorm, as layer or function."""
    return isinstance(module, _BatchNorm) or one_of(node, module, NORMING)


def is_activation(node: fx.Node, module: nn.Module | None) -> bool:
    """An activation that gives each channel one channel, as a layer, function or method."""
    if module is not None:
        return isinstance(module, ACTIVATIONS) and not isinstance(module, nn.GLU)
    return one_of(node, None, ACTIVATING)


def is_passing(node: fx.Node, module: nn.Module | None) -> bool:
    """What hands its input on, number by number: activations, BatchNorm, copies."""
    return is_activation(node, module) or is_norm(node, module) or is_copy(node, module)


def is_copy(node: fx.Node, module: nn.Module | None) -> bool:
    """What changes no number: copies, and dropout, which rests."""
    return isinstance(module, _DropoutNd | nn.Identity) or one_of(node, None, COPYING)


def is_question(node: fx.Node) -> bool:
    """What only asks for a size."""
    return one_of(node, None, ("size", "dim", "numel", getattr))


def one_of(node: fx.Node, module: nn.Module | None, kinds: tuple[Any, ...]) -> bool:
    """Whether the node calls one of `kinds`: classes of layers, functions, names of methods."""
    if module is not None:
        return isinstance(module, tuple(kind for kind in kinds if isinstance(kind, type)))
    if node.op == "call_method":
        return node.target in [kind for kind in kinds if isinstance(kind, str)]
    return node.op == "call_function" and any(node.target is kind for kind in kinds)


def setting(node: fx.Node, module: nn.Module | None, place: int, name: str, default: Any = None) -> Any:
    """A setting of a layer by its name, or an argument of a call by place or name."""
    if module is not None:
        return getattr(module, name, default)
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)

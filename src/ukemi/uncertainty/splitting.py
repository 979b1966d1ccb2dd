"""A network cut before its first dropout: what comes before is the same in every pass, so it is computed once."""

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from ukemi.uncertainty.dropout import drops

NEAR = 1e-4
"""how far, as a share of the largest logit, the two parts in a row may be from the whole network"""


class Whole:
    """A network that is not cut: its head gives the images as they are."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def head(self, images_NCHW: Tensor) -> list[Tensor]:
        """What the tail needs, each `[N, …]`."""
        return [images_NCHW]

    def tail(self, values: Sequence[Tensor]) -> Tensor:
        """Logits `[N, K]` from what `head` gave, rows repeated at will."""
        return self._model(values[0])


class Cut(Whole):
    """A traced network, cut before the first layer that drops. It runs on the network's own layers and weights, so it
    is never behind what becomes of them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        graph, self._constants = _traced(model)
        nodes = list(graph.nodes)
        at = next(place for place, node in enumerate(nodes) if _drops(model, node))
        self._first, self._second = nodes[:at], nodes[at:]
        later = set(self._second)
        self._live = [node for node in self._first if later & set(node.users) and node.op != "get_attr"]
        self._over = _last_uses(nodes)

    def head(self, images_NCHW: Tensor) -> list[Tensor]:
        known: dict[fx.Node, Any] = {}
        for node in self._first:
            known[node] = images_NCHW if node.op == "placeholder" else self._value(node, known)
            self._forget(node, known)
        return [known[node] for node in self._live]

    def tail(self, values: Sequence[Tensor]) -> Tensor:
        known: dict[fx.Node, Any] = dict(zip(self._live, values, strict=True))
        known |= {node: self._value(node, known) for node in self._first if node.op == "get_attr"}
        for node in self._second:
            known[node] = self._value(node, known)
            self._forget(node, known)
        return known[self._second[-1]]

    def _forget(self, node: fx.Node, known: dict[fx.Node, Any]) -> None:
        """What nobody asks for after `node` leaves memory: else all layers would be held at once."""
        for over in self._over.get(node, ()):
            known.pop(over, None)

    def _value(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda given: known[given])
        if node.op == "output":
            return args[0]
        if node.op == "get_attr":
            name = str(node.target)
            return self._constants[name] if name in self._constants else operator.attrgetter(name)(self._model)
        if node.op == "call_function":
            return node.target(*args, **kwargs)  # type: ignore[operator]
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return self._model.get_submodule(str(node.target))(*args, **kwargs)


def _traced(model: nn.Module) -> tuple[fx.Graph, dict[str, Tensor]]:
    """Its graph, and the tensors that tracing made constant, which a tracer leaves behind on the network."""
    held = set(vars(model))
    try:
        graph = fx.Tracer().trace(model)
    finally:
        constants = {name: vars(model).pop(name) for name in vars(model).keys() - held}
    return graph, constants


def _last_uses(nodes: Sequence[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """Behind each node those values that it is the last to use."""
    last = {used: node for node in nodes for used in node.all_input_nodes}
    found: dict[fx.Node, list[fx.Node]] = {}
    for used, node in last.items():
        found.setdefault(node, []).append(used)
    return found


def cut(model: nn.Module, images_NCHW: Tensor) -> Whole:
    """The network cut before its first dropout, tried out on `images_NCHW`; whole where that can't be done.

    It can't where the network can't be traced, or where something other than rows of tensors crosses the cut. Call it
    in evaluation mode without gradient.
    """
    whole = Whole(model)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a tracer's, about what it makes constant; the trial below decides
            parts = Cut(model)
        return parts if _same(parts, whole, images_NCHW) else whole
    except Exception:  # any network may fail to be traced in any way; it is then run as a whole
        return whole


def _same(parts: Cut, whole: Whole, images_NCHW: Tensor) -> bool:
    for rows in (2, 3):
        images = images_NCHW[:1].expand(rows, *images_NCHW.shape[1:])
        values = parts.head(images)
        if not values or not all(isinstance(value, Tensor) and value.shape[:1] == (rows,) for value in values):
            return False
        twice = [value.repeat_interleave(2, 0) for value in values]
        given, wanted = parts.tail(twice), whole.tail([images]).repeat_interleave(2, 0)
        if given.shape != wanted.shape or not torch.allclose(given, wanted, atol=NEAR * float(wanted.abs().max())):
            return False
    return True


def _drops(model: nn.Module, node: fx.Node) -> bool:
    return node.op == "call_module" and drops(model.get_submodule(str(node.target)))

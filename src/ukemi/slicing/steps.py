"""From a graph to the steps that contributions take backwards, and the walk over them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor, fx, nn

from ukemi.activations.recording import WEIGHTED
from ukemi.errors import UserError
from ukemi.models.layers import MaxNormLinear
from ukemi.slicing import operations as known
from ukemi.slicing.operations import one_of, setting
from ukemi.slicing.plain import Look, has_weights
from ukemi.slicing.tracing import ancestors, graph_of, module_of, weighted_nodes
from ukemi.slicing.windows import Pair, Window, even, of_convolution, pair

Shape = tuple[int, ...]
"""of one sample's tensor: `(units,)` or `(channels, H, W)`"""
GATHERED = "only places of maps may be pooled, all of them or in windows"


@dataclass(frozen=True)
class Step:
    """A node of the graph, by name, and those that contributions go on to."""

    node: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Weighted(Step):
    """A Linear (without window) or Conv2d."""

    name: str
    layer: nn.Linear | nn.Conv2d
    window: Window | None

    @property
    def weight(self) -> str:
        return f"{self.name}.weight"

    @property
    def groups(self) -> int:
        return self.layer.groups if isinstance(self.layer, nn.Conv2d) else 1

    def used(self) -> Tensor:
        """The weights that the layer works with, `[out, in / groups, F]` with F places of a kernel."""
        weight = self.layer.shortened() if isinstance(self.layer, MaxNormLinear) else self.layer.weight
        return weight.detach().flatten(2) if weight.ndim > 2 else weight.detach()[:, :, None]


@dataclass(frozen=True)
class Passed(Step):
    """Hands every channel on, and every place too unless `mixed` names what mixes them. `pads` were added."""

    mixed: str = ""
    pads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pooled(Step):
    """The mean or the largest of windows within each channel; no window where they don't share the map evenly."""

    what: str
    largest: bool
    window: Window | None


@dataclass(frozen=True)
class Reshaped(Step):
    """The same numbers in another shape; `flat` where channels became units of their places."""

    before: Shape
    flat: bool


@dataclass(frozen=True)
class Joined(Step):
    """Channels of several, one behind the other."""

    widths: tuple[int, ...]


@dataclass(frozen=True)
class Summed(Step):
    """A sum; `signs` are those of the terms."""

    signs: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What a network's slice is made along."""

    graph: fx.Graph
    steps: tuple[Step, ...]
    """in the order of execution"""
    live: frozenset[str]
    """nodes that depend on a weight: contributions to others lead nowhere"""
    output: str
    logits: int

    def weighted(self) -> list[Weighted]:
        return [step for step in self.steps if isinstance(step, Weighted)]

    def back(self, start: Tensor, through: Callable[[Any, Tensor], Sequence[Tensor]]) -> None:
        """Walks from the logits back: `through(step, arrived)` gives what goes on to each source; sums where ways
        meet."""
        arrived = {self.output: start}
        for step in reversed(self.steps):
            given = arrived.pop(step.node, None)
            if given is not None:
                for source, part in zip(step.sources, through(step, given), strict=True):
                    if source in self.live:
                        arrived[source] = arrived[source] + part if source in arrived else part


def plan_of(model: nn.Module, images: Tensor) -> Plan:
    """The steps of a network for images of this shape; what can't be sliced is named. Looks at two images."""
    graph = graph_of(model)
    leading, weighted = ancestors(graph), set(weighted_nodes(model, graph))
    watch = Look(model, graph, [node.name for node in graph.nodes], lambda value: getattr(value, "shape", None))
    watch.run(images[:2] if len(images) > 1 else images.expand(2, *images.shape[1:]))
    if watch.odd:
        raise watch.odd[0]
    shapes = {name: tuple(shape) for name, shape in watch.kept.items() if shape is not None}
    moving = _reached(graph, {node for node in graph.nodes if node.op == "placeholder"})
    live = {node for node in _reached(graph, weighted) if node in leading and node.name in shapes}
    (end,) = (node for node in graph.nodes if node.op == "output")
    output = end.args[0]
    reader = _Reader(model, shapes, moving)
    for node in graph.nodes:
        if node in leading and node in moving and node not in live and has_weights(model, node):
            raise reader.refused(node)
    # the output itself is no step
    steps = tuple(reader.step(node) for node in graph.nodes if node in live and node is not end)
    return Plan(graph, steps, frozenset(node.name for node in live), str(output), shapes[str(output)][1])


def _reached(graph: fx.Graph, start: set[fx.Node]) -> set[fx.Node]:
    """The nodes that depend on one of `start`, and these."""
    found = set(start)
    for node in graph.nodes:
        if any(source in found for source in node.all_input_nodes):
            found.add(node)
    return found


@dataclass(frozen=True)
class _Reader:
    """Reads nodes as steps."""

    model: nn.Module
    shapes: Mapping[str, Shape]
    """with the batch of two in front"""
    moving: set[fx.Node]
    """what depends on the images; all else is constant"""

    def step(self, node: fx.Node) -> Step:
        module = module_of(self.model, node)
        if isinstance(module, WEIGHTED):
            return self._weighted(node, module)
        if known.is_passing(node, module):
            return Passed(node.name, self._one(node, (2, 3, 4)))
        for kinds, read in self._readers():
            if one_of(node, module, kinds):
                return read(node, module)
        raise self.refused(node)

    def _readers(self) -> list[tuple[tuple[Any, ...], Callable[[fx.Node, nn.Module | None], Step]]]:
        return [
            ((*known.SHAPING, nn.Flatten), self._reshaped),
            (known.ADDING, self._summed),
            (known.TAKING, self._summed),
            (known.JOINING, self._joined),
            (known.SCALING, self._scaled),
            (known.MAX_POOLS + known.AVERAGE_POOLS, self._pooled),
            (known.ADAPTIVE_POOLS + known.MEANS + known.LARGEST, self._gathered),
            (known.PADDING, self._padded),
            (known.RESIZING, self._resized),
            (known.SOFTMAX, self._softmaxed),
        ]

    def _weighted(self, node: fx.Node, module: nn.Module) -> Step:
        source = self._one(node)
        inside, outside = self._shape(source[0]), self._shape(node.name)
        if isinstance(module, nn.Conv2d):
            window = of_convolution(module, _places(inside), _places(outside))
            return Weighted(node.name, source, str(node.target), module, window)
        assert isinstance(module, nn.Linear)
        if len(inside) != 1:
            raise self.refused(node, f"it works on {list(inside)} per image, but a row of units is needed")
        return Weighted(node.name, source, str(node.target), module, None)

    def _reshaped(self, node: fx.Node, module: nn.Module | None) -> Step:
        source = self._one(node, (2, 3, 4))  # places may go one side at a time: `x.squeeze(3).squeeze(2)`
        before, after = self._shape(source[0]), self._shape(node.name)
        if self.shapes[node.name][0] == 2 and (after[0] == before[0] or after == (prod(before),)):
            return Reshaped(node.name, source, before, flat=after[0] != before[0])
        raise self.refused(node, f"it makes {list(after)} of {list(before)} per image, where channels get lost")

    def _summed(self, node: fx.Node, module: nn.Module | None) -> Step:
        if node.kwargs.get("alpha", 1) != 1:
            raise self.refused(node, "with alpha")
        named = (node.kwargs.get(name) for name in ("input", "other"))
        terms = [term for term in (*node.args[:2], *named) if isinstance(term, fx.Node) and term in self.moving]
        if len(terms) == 1:
            return self._shifted(node, terms[0])
        if len({self.shapes[term.name] for term in terms}) > 1:
            raise self.refused(node, "its terms have different shapes")
        signs = (1, -1 if one_of(node, module, known.TAKING) else 1)
        return Summed(node.name, tuple(term.name for term in terms), signs)

    def _scaled(self, node: fx.Node, module: nn.Module | None) -> Step:
        moving = [term for term in node.all_input_nodes if term in self.moving]
        if len(moving) > 1:
            raise self.refused(node, "two activations are multiplied")
        return self._shifted(node, moving[0])

    def _shifted(self, node: fx.Node, source: fx.Node) -> Step:
        """Something with a constant."""
        if self.shapes[node.name] != self.shapes[source.name]:
            raise self.refused(node, "its constant makes more numbers of one")
        return Passed(node.name, (source.name,))

    def _joined(self, node: fx.Node, module: nn.Module | None) -> Step:
        parts = setting(node, None, 0, "tensors")
        if not isinstance(parts, list | tuple):
            raise self.refused(node, "it joins parts of one tensor")
        if setting(node, None, 1, "dim", node.kwargs.get("axis", 0)) not in (1, 1 - len(self.shapes[node.name])):
            raise self.refused(node, "it joins along another dimension than the channels")
        widths = tuple(self._shape(part.name)[0] for part in parts)
        return Joined(node.name, tuple(part.name for part in parts), widths)

    def _pooled(self, node: fx.Node, module: nn.Module | None) -> Step:
        source = self._one(node)
        inside, outside = _places(self._shape(source[0])), _places(self._shape(node.name))
        largest = one_of(node, module, known.MAX_POOLS)
        kernel = pair(setting(node, module, 1, "kernel_size"))
        stride = pair(setting(node, module, 2, "stride") or kernel)
        before = pair(setting(node, module, 3, "padding", 0))
        dilation = pair(setting(node, module, 4, "dilation", 1)) if largest else (1, 1)
        return Pooled(
            node.name, source, _named(node, module), largest, Window(kernel, stride, before, dilation, inside, outside)
        )

    def _gathered(self, node: fx.Node, module: nn.Module | None) -> Step:
        """Pools whose windows follow from the sizes, and means and maxima over places."""
        kinds = next((kinds for kinds in (known.MEANS, known.LARGEST) if one_of(node, module, kinds)), ())
        source = self._map_of(node, kinds) if kinds else self._one(node)[0]
        inside, left = self._shape(source), self._shape(node.name)[1:]
        if len(inside) != 3:
            raise self.refused(node, GATHERED)
        if not left or prod(left) == 1:
            left = 1, 1
        elif len(left) == 1:  # one side is left of the map
            left = (left[0], 1) if self._dims(node) == [3] else (1, left[0])
        largest = one_of(node, module, (nn.AdaptiveMaxPool2d, known.ADAPTIVE_POOLS[-1], *known.LARGEST))
        return Pooled(node.name, (source,), _named(node, module), largest, even(_places(inside), (left[0], left[1])))

    def _map_of(self, node: fx.Node, kinds: tuple[Any, ...]) -> str:
        """The map that a mean or maximum is taken of. One of all places may be taken side by side, `x.mean(3).mean(2)`,
        or of a row of them, `x.flatten(2).mean(-1)`: it is one of the map before."""
        (source,), dims = self._one(node, (2, 3, 4)), self._dims(node)
        if not dims or min(dims) < 2:
            raise self.refused(node, GATHERED)
        at, whole = node, prod(self._shape(node.name)[1:]) == 1
        while whole and self._keeps(at, kinds):
            at = at.all_input_nodes[0]
            shape = self._shape(at.name)
            if len(shape) == 3 and shape[0] == self._shape(source)[0]:
                source = at.name
        return source

    def _keeps(self, node: fx.Node, kinds: tuple[Any, ...]) -> bool:
        """Whether a mean or maximum behind this node is one of what stands before it."""
        module = module_of(self.model, node)
        return one_of(node, module, (*kinds, *known.SHAPING, nn.Flatten)) or known.is_copy(node, module)

    def _dims(self, node: fx.Node) -> list[int]:
        """Which dimensions a mean or maximum is taken over, counted from the front."""
        given = setting(node, None, 1, "dim", node.kwargs.get("axis", ()))  # `axis` is numpy's word
        (source,) = self._one(node, (2, 3, 4))
        return sorted(d % len(self.shapes[source]) for d in _listed(given))

    def _softmaxed(self, node: fx.Node, module: nn.Module | None) -> Step:
        """At the end: a class's logit is what its output rests on."""
        ends = all(user.op == "output" for user in node.users)
        if not ends or setting(node, module, 1, "dim") not in (1, -1):
            raise self.refused(node, "only the output may be a softmax, over the classes")
        return Passed(node.name, self._one(node))

    def _resized(self, node: fx.Node, module: nn.Module | None) -> Step:
        return Passed(node.name, self._one(node), mixed=_named(node, module))

    def _padded(self, node: fx.Node, module: nn.Module | None) -> Step:
        pads = tuple(setting(node, module, 1, "padding" if module else "pad"))
        if module is None and setting(node, None, 2, "mode", "constant") != "constant":
            return self._resized(node, module)
        if len(pads) != 4:
            raise self.refused(node, "only maps may be padded")
        return Passed(node.name, self._one(node), pads=pads)

    def _one(self, node: fx.Node, dims: Shape = (2, 4)) -> tuple[str]:
        """The tensor that a node works on."""
        source = node.args[0] if node.args else node.kwargs.get("input")
        if not isinstance(source, fx.Node) or len(self.shapes.get(source.name, ())) not in dims:
            raise self.refused(node, "it doesn't work on [N, units] or [N, channels, H, W]")
        return (source.name,)

    def _shape(self, name: str) -> Shape:
        return self.shapes[name][1:]

    def refused(self, node: fx.Node, why: str = "") -> UserError:
        what = _named(node, module_of(self.model, node))
        return UserError(f"model: {what} can't be sliced" + (f": {why}." if why else "."))


def _listed(dims: Any) -> list[int]:
    return [dims] if isinstance(dims, int) else list(dims or ())


def _places(shape: Shape) -> Pair:
    return shape[1], shape[2]


def _named(node: fx.Node, module: nn.Module | None) -> str:
    if module is not None:
        return f"layer {str(node.target)!r} ({type(module).__name__})"
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"operation {target!r} (at {node.name!r})"

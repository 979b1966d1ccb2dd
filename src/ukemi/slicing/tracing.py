"""A network as a graph of layers and operations (torch.fx), and its key layers: those with weights."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ukemi.activations import unit_mean
from ukemi.activations.recording import ACTIVATIONS, WEIGHTED
from ukemi.errors import UserError
from ukemi.schema import reason
from ukemi.slicing.operations import POOLS, is_activation, is_norm, is_passing, is_question, one_of

LEAVES = (*WEIGHTED, *ACTIVATIONS, _BatchNorm, _DropoutNd)
"""kinds of layers that stay one node of the graph even where a user's class refines them"""

_GRAPHS: "WeakKeyDictionary[nn.Module, dict[tuple[tuple[int, bool], ...], fx.Graph]]" = WeakKeyDictionary()


@dataclass(frozen=True)
class KeyLayer:
    """A Linear or Conv2d on the way to the logits."""

    name: str
    """of the module, `features.0`"""
    weight: str
    """of its parameter, `features.0.weight`"""
    after: str
    """the last module (or, where it is called as a function, operation) of its BatchNorm and activation; its own name
    where none follow"""
    outputs: int
    """how many neurons it has: units of a Linear, channels of a Conv2d"""


def key_layers(model: nn.Module, *, tied: bool = False) -> list[KeyLayer]:
    """The layers with weights on the way to the logits, in the order of execution; one that runs twice stands where it
    ran first. `key_layers(model)[-1 - p]` is the layer that DARE calls l_{r-p} (section 3.1.2). Several that share one
    weight have no slices of their own and are refused, unless `tied` ones will do.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> [(layer.name, layer.weight, layer.after) for layer in key_layers(net)]
    [('1', '1.weight', '2'), ('3', '3.weight', '3')]
    """
    graph = graph_of(model)
    layers, owners = [], dict[nn.Parameter, str]()
    for name in dict.fromkeys(str(node.target) for node in weighted_nodes(model, graph)):
        module = model.get_submodule(name)
        weight = module._parameters.get("weight")
        if weight is None:
            raise UserError(f"model: the weight of layer {name!r} is computed, so it can't be sliced or tuned.")
        twin = owners.setdefault(weight, name)
        if twin != name and not tied:
            raise UserError(f"model: layers {twin!r} and {name!r} share one weight, so they can't be sliced.")
        end = _after(model, _last_call(model, graph, name))
        after = str(end.target) if end.op == "call_module" else end.name
        layers.append(KeyLayer(name, f"{name}.weight", after, len(weight)))
    return layers


def activation_of(model: nn.Module, images: Tensor, layer: KeyLayer | str) -> Tensor:
    """What the layer's neurons give for `images`, behind its BatchNorm and activation, `[N, outputs]`.

    A convolution's neuron is its channel: the mean over its places. Nothing behind that point is computed; the model's
    modes stay as they are, and gradients flow where they are on. A layer that runs twice gives what it gave last.

    >>> net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))
    >>> activation_of(net, torch.rand(5, 1, 4, 4), "0").shape
    torch.Size([5, 3])
    """
    graph = graph_of(model)
    end = _after(model, _last_call(model, graph, layer if isinstance(layer, str) else layer.name))
    return unit_mean(Watch(model, _until(graph, end)).run(images))


class Watch(fx.Interpreter):
    """Runs a graph with the model's own layers and keeps what `keep` makes of the outputs of the nodes in `wanted`."""

    def __init__(
        self, model: nn.Module, graph: fx.Graph, wanted: Iterable[str] = (), keep: Callable[[Any], Any] = lambda x: x
    ) -> None:
        super().__init__(model, graph=graph)
        self.wanted, self.keep = set(wanted), keep
        self.kept: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """The node's output; kept at once, since a later layer may write into it."""
        output = super().run_node(n)
        if n.name in self.wanted:
            self.kept[n.name] = self.keep(output)
        return output


def graph_of(model: nn.Module) -> fx.Graph:
    """The graph of the model in its present modes; traced once."""
    known = _GRAPHS.setdefault(model, {})
    modes = tuple((id(module), module.training) for module in model.modules())
    if modes not in known:
        known[modes] = _traced(model)
    return known[modes]


def weighted_nodes(model: nn.Module, graph: fx.Graph) -> list[fx.Node]:
    """The calls of Linear and Conv2d layers on the way to the logits, in the order of execution."""
    leading = ancestors(graph)
    calls = [node for node in graph.nodes if node in leading and isinstance(module_of(model, node), WEIGHTED)]
    if not calls:
        raise UserError(f"model: {type(model).__name__} has no Linear or Conv2d layer to slice or tune.")
    return calls


def ancestors(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that the output is made of."""
    found: set[fx.Node] = set()
    open_nodes = [node for node in graph.nodes if node.op == "output"]
    while open_nodes:
        node = open_nodes.pop()
        found.add(node)
        open_nodes += [source for source in node.all_input_nodes if source not in found]
    return found


def module_of(model: nn.Module, node: fx.Node) -> nn.Module | None:
    """The layer that a node calls."""
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, LEAVES) or super().is_leaf_module(m, module_qualified_name)


def _traced(model: nn.Module) -> fx.Graph:
    try:
        _, *others = inspect.signature(model.forward).parameters.values() or [None]
        settled = {one.name: one.default for one in others if one is not None and one.default is not one.empty}
        return _Tracer().trace(model, settled)
    except Exception as error:  # a user's network fails in any way it likes
        raise UserError(
            f"model: {type(model).__name__} can't be traced by torch.fx, which finds its layers in their order"
            f" ({reason(error)})."
        ) from error


def _last_call(model: nn.Module, graph: fx.Graph, name: str) -> fx.Node:
    calls = [node for node in weighted_nodes(model, graph) if node.target == name]
    if not calls:
        known = ", ".join(dict.fromkeys(str(node.target) for node in weighted_nodes(model, graph)))
        raise UserError(f"layer: {name!r} is no Linear or Conv2d on the way to the logits; there are {known}.")
    return calls[-1]


def _after(model: nn.Module, node: fx.Node) -> fx.Node:
    """Follows the only way on through BatchNorm and activation, in any order; dropout may lie between, and a pool
    before the activation."""
    last, active = node, False
    while len(users := [user for user in node.users if not is_question(user)]) == 1:
        node = users[0]
        module = module_of(model, node)
        if not is_passing(node, module) and (active or not one_of(node, module, POOLS)):
            break
        active = active or is_activation(node, module)
        if is_norm(node, module) or is_activation(node, module):
            last = node
    return last


def _until(graph: fx.Graph, end: fx.Node) -> fx.Graph:
    """The part of the graph that `end` is computed by."""
    part, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        copies[node] = part.node_copy(node, copies.__getitem__)
        if node is end:
            part.output(copies[node])
            break
    return part

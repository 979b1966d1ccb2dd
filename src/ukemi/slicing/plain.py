"""Whether a network's layers are the sums by weights that a slice is made of."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from torch import Tensor, fx, nn

from ukemi.activations.recording import WEIGHTED
from ukemi.errors import UserError
from ukemi.models.layers import MaxNormLinear
from ukemi.slicing.operations import SUMMING, one_of
from ukemi.slicing.tracing import Watch, module_of


class Look(Watch):
    """Watches, and notes in `odd` the layers that make something else of their weights: a user's class may compute
    anything, and a hook may change what goes in or comes out."""

    odd: list[UserError]
    """kept until the run is over: an error inside it would get torch's own lines behind its sentence"""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.odd = []
        return super().run(*args, **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The layer's output, compared with that of a plain one where it might differ."""
        output, module = super().call_module(target, args, kwargs), self.fetch_attr(target)
        kind = next((kind for kind in WEIGHTED if isinstance(module, kind)), None)
        if kind is None or isinstance(module, MaxNormLinear):
            return output
        changed = type(module) is not kind or module._forward_hooks or module._forward_pre_hooks
        if changed and not _alike(output, lambda: kind.forward(module, *args, **kwargs)):
            what = f"layer {str(target)!r} ({type(module).__name__})"
            why = f"it doesn't compute what a {kind.__name__} with its weight does"
            self.odd.append(UserError(f"model: {what} can't be sliced: {why}."))
        return output


def _alike(output: Any, plain: Callable[[], Tensor]) -> bool:
    """Up to rounding; a plain layer may not even take what the user's class does."""
    try:
        wanted = plain()
    except RuntimeError:
        return False
    if not isinstance(output, Tensor) or output.shape != wanted.shape:
        return False
    return bool((output - wanted).abs().max() <= 1e-2 * wanted.abs().max())


def has_weights(model: nn.Module, node: fx.Node) -> bool:
    """Whether a node sums up its input by weights that are trained."""
    module = module_of(model, node)
    if module is not None:
        return one_of(node, module, SUMMING) and any(one.requires_grad for one in module.parameters())
    read = [attrgetter(str(source.target))(model) for source in node.all_input_nodes if source.op == "get_attr"]
    trained = any(isinstance(one, nn.Parameter) and one.requires_grad for one in read)
    return trained and one_of(node, None, SUMMING)

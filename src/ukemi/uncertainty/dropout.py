"""Dropout whose masks are a function of (seed, turn, sample, pass, layer, unit), and dropout for networks without."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from math import prod

import torch
from torch import Tensor, nn

from ukemi import randomness
from ukemi.activations.recording import eager
from ukemi.errors import UserError
from ukemi.models import check_head
from ukemi.models.inference import check_module, scoring
from ukemi.randomness import Stream

WHOLE_MAPS: tuple[type[nn.Module], ...] = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.FeatureAlphaDropout)
"""these drop channels; the others drop single numbers"""
KINDS: tuple[type[nn.Module], ...] = (nn.Dropout, nn.AlphaDropout, *WHOLE_MAPS)
LOWEST = -1.7580993408473766
"""what alpha dropout puts in place of a number: the lowest that SELU gives (Klambauer et al. 2017)"""
INSERTED = "inserted_dropout"
"""the name of an inserted dropout, below the layer whose input it drops"""


def dropouts_of(model: nn.Module) -> list[nn.Module]:
    """The dropout layers of a model, in the order in which it holds them."""
    check_module(model)
    return [module for module in model.modules() if isinstance(module, KINDS)]


def drops(model: nn.Module) -> bool:
    """Whether any of them does anything: a layer with rate 0, as many networks hold, makes every pass the same."""
    return any(float(layer.p) > 0 for layer in dropouts_of(model))  # type: ignore[arg-type]


def insert_dropout(model: nn.Module, rate: float, images: Tensor | None = None) -> nn.Module:
    """A copy of the model that drops inputs of its classifier.

    With some `images [N, C, H, W]` on the model's device, of which two are tried, that is the Linear or Conv2d that
    gives the logits, or the last that runs where something follows it. Without any it is the last Linear that the model
    holds, or the last Conv2d where it holds none: a side head, or a layer of attention, may stand behind the head.

    Names and values of the weights stay as they are, so files of the one fit the other. In training mode it drops as
    any dropout does.
    """
    if not 0 < rate < 1:
        raise UserError(f"dropout: the rate should lie between 0 and 1, but {rate:g} was given.")
    check_module(model)
    changed = deepcopy(model)
    classifier = _classifier(changed, images)
    dropout = nn.Dropout(rate)
    dropout.train(classifier.training)
    classifier.add_module(INSERTED, dropout)
    classifier.register_forward_pre_hook(_dropped)
    return changed


def with_dropout(model: nn.Module, rate: float, images: Tensor | None = None, *, insert: bool = True) -> nn.Module:
    """The model itself where it has dropout (of a rate above 0), else `insert_dropout(model, rate, images)`; without
    `insert` that is an error."""
    if drops(model):
        return model
    if not insert:
        raise UserError(
            f"dropout: {type(model).__name__} has no dropout layer{rateless(model)} and inserting one is forbidden;"
            " allow it, or give an ensemble."
        )
    return insert_dropout(model, rate, images)


def rateless(model: nn.Module) -> str:
    """Said behind `has no dropout layer` of a network that does hold some."""
    return " with a rate above 0" if dropouts_of(model) else ""


def _classifier(model: nn.Module, images: Tensor | None) -> nn.Module:
    kinds = [[module for module in model.modules() if isinstance(module, kind)] for kind in (nn.Linear, nn.Conv2d)]
    held = kinds[0] or kinds[1]
    if not held:
        raise UserError(f"dropout: {type(model).__name__} has no Linear or Conv2d that dropout could stand before.")
    ran = [] if images is None else _answering(model, images[:2], [*kinds[0], *kinds[1]])
    return (ran or held)[-1]


def _answering(model: nn.Module, images: Tensor, layers: Sequence[nn.Module]) -> list[nn.Module]:
    """Those of the layers whose output is the model's; where there is none, all that run, in that order."""
    check_head(model, images, 1)
    ran: list[tuple[nn.Module, Tensor]] = []

    def note(module: nn.Module, given: tuple[object, ...], output: Tensor) -> None:
        ran.append((module, output))

    with scoring(model, images.device), eager(model), ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_hook(note).remove)
        logits = model(images)
        same = [layer for layer, output in ran if output.shape == logits.shape and torch.equal(output, logits)]
    return same or [layer for layer, _ in ran]


def _dropped(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (module.get_submodule(INSERTED)(given[0]), *given[1:])


class Masks:
    """Which rows a pass holds: `shared` rows for each of `index [G]`, each for `many` passes from `first` on.

    Rows lie as `[G, shared, many]`. All rows of one index get the same masks, so that individuals of one seed can be
    compared without noise.
    """

    def __init__(self, index_G: Tensor, shared: int, first: int, many: int, seed: int, turn: int) -> None:
        self._index, self._shared, self._first, self._many = index_G, shared, first, many
        self._seed, self._layer = randomness.key(seed, turn), 0

    @property
    def applied(self) -> int:
        """How many layers were masked so far."""
        return self._layer

    def __call__(self, module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """A forward hook: the dropout's output, masked; layers that drop are counted as they run."""
        rate = float(module.p)  # type: ignore[arg-type]
        if rate == 0:
            return output
        self._check_rows(module, output)
        layer, self._layer = self._layer, self._layer + 1
        whole = isinstance(module, WHOLE_MAPS)
        shape = (*output.shape[1:2], *(1,) * (output.ndim - 2)) if whole else tuple(output.shape[1:])
        key = {"seed": self._seed, "stream": Stream.DROPOUT, "epoch": layer, "first": self._first}
        kept_GTU = randomness.uniform(self._index, self._many, prod(shape), **key) >= rate  # type: ignore[arg-type]
        kept = kept_GTU.view(len(self._index), 1, self._many, *shape)
        rows = output.reshape(len(self._index), self._shared, self._many, *output.shape[1:])
        return _thinned(rows, kept, module, rate).view_as(output)

    def _check_rows(self, module: nn.Module, output: Tensor) -> None:
        rows = len(self._index) * self._shared * self._many
        if len(output) != rows:
            raise UserError(
                f"dropout: {type(module).__name__} is given {list(output.shape)}, but its first dimension should be the"
                f" {rows} images of a pass (a transformer's with batch_first=True); change the network, or take an"
                " ensemble."
            )


def _thinned(rows: Tensor, kept: Tensor, module: nn.Module, rate: float) -> Tensor:
    """What a dropout makes of its input, where `kept` says which numbers stay."""
    if rate == 1:
        return rows * 0
    if not isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout):
        return rows * (kept.to(rows.dtype) * (1 / (1 - rate)))
    scale = ((1 - rate) * (1 + rate * LOWEST**2)) ** -0.5  # mean 0 and variance 1 stay as they are
    return scale * torch.where(kept, rows, LOWEST) - scale * LOWEST * rate


@contextmanager
def masked(model: nn.Module, masks: Masks) -> Iterator[None]:
    """While it lasts, the model's dropout layers apply `masks` (in evaluation mode they would do nothing)."""
    with ExitStack() as hooks:
        for layer in dropouts_of(model):
            handle = layer.register_forward_hook(masks)
            hooks.callback(handle.remove)
        yield

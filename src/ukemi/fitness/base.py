"""What every fitness is: a function of scored variants, with optional hooks and state."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.models.inference import recording


@dataclass(frozen=True)
class Scored:
    """M variants that went through the network in evaluation mode without gradient."""

    model: nn.Module
    images: Tensor
    """`[M, C, H, W]`"""
    labels: Tensor
    """int64 `[M]`"""
    logits: Tensor
    """float32 `[M, K]`"""
    clean: Tensor | None = None
    """the logits `[M, K]` of each variant's unchanged image; only where the fitness has `clean = True`"""
    outputs: tuple[Tensor, ...] = ()
    """what `ukemi.activations.recording` recorded; only where the fitness has `outputs = True`"""


Scorer = Callable[[Scored], Tensor]
"""From M variants to their fitness `[M]`; higher is what the search looks for."""


class Fitness(ABC):
    """A fitness with settings, or with something that it learns from the training data.

    It should look at no values (`.item()`, masks as indices), so that a training step on a GPU can be captured.
    """

    clean: ClassVar[bool] = False
    """whether it reads `Scored.clean`"""
    outputs: ClassVar[bool] = False
    """whether it reads `Scored.outputs`"""
    forwards: int = 0
    """forward passes that `begin_epoch` took so far, counted in images"""

    @abstractmethod
    def __call__(self, scored: Scored) -> Tensor:
        """One number per variant, `[M]`; higher is what the search looks for."""

    def check(self, model: nn.Module, data: Data) -> None:
        """Called once before a run writes anything: what it can't do with this network or these data is said here."""
        return

    def kept(self, output: Tensor) -> Tensor:
        """What `Scored.outputs` holds of a layer's output `[M, units, ...]`: a copy of it, unless less will do, which
        saves memory; a copy, since the network may write into its tensor later."""
        return output.clone()

    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        """Called once before the epoch's first batch, with the training data."""
        return

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs, as tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes back what `state_dict` gave."""
        if state:
            raise UserError(f"fitness: {type(self).__name__} keeps no state, but {sorted(state)} was given.")


def wants(*, clean: bool = False, outputs: bool = False) -> Callable[[Scorer], Scorer]:
    """Says of a fitness function which parts of `Scored` it reads: `@wants(clean=True)`."""

    def marked(function: Scorer) -> Scorer:
        function.clean, function.outputs = clean, outputs  # type: ignore[attr-defined]
        return function

    return marked


def checked(fitness_M: Tensor, scored: Scored, name: str, *, look: bool = True) -> Tensor:
    """What a fitness gave as float64 `[M]`; a wrong shape, or NaN where the logits are finite, is named.

    NaN is looked for on a CPU always and on a GPU where `look` says so, since that waits for the device; never while a
    CUDA graph is captured.
    """
    count = len(scored.labels)
    if not isinstance(fitness_M, Tensor) or fitness_M.shape != (count,):
        given = list(fitness_M.shape) if isinstance(fitness_M, Tensor) else f"a {type(fitness_M).__name__}"
        raise UserError(f"fitness: {name} gave {given}, but one number per variant, [{count}], is needed.")
    fitness_M = fitness_M.detach().to(scored.logits.device, torch.float64)
    if _may_look(fitness_M.device, look):
        lost_M = fitness_M.isnan() & scored.logits.isfinite().all(1)
        if lost_M.any():
            at = int(lost_M.nonzero()[0])
            raise UserError(f"fitness: {name} gave NaN for variant {at} of {count}, whose logits are finite.")
    return fitness_M


def _may_look(device: torch.device, look: bool) -> bool:
    if device.type == "cpu":
        return True
    return look and not recording(device)

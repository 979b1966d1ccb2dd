"""What coverage and surprise share: something is learnt from the clean training data and holds for some epochs."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from ukemi.activations import over_data, unit_mean
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.fitness.base import Fitness, Scored
from ukemi.schema import called


class Learning(Fitness):
    """A fitness that learns from the clean training data, anew with every `every`-th epoch.

    Epochs 0..every-1 are one turn, and so on; the first epoch of a turn that is begun learns with the weights of that
    moment, and what was learnt or loaded holds until the next turn. Tensors once made are updated in place, so that a
    captured CUDA graph reads what was learnt last.
    """

    outputs: ClassVar[bool] = True
    stored: ClassVar[tuple[str, ...]] = ()
    """the names of what `learn` gives"""
    last: ClassVar[bool] = False
    """whether it looks at the last layer only"""

    def __init__(self, every: int = 1) -> None:
        self.every = at_least_one("every", every)
        self._epoch: int | None = None
        self._known: dict[str, Tensor] = {}

    @abstractmethod
    def learn(self, model: nn.Module, data: Data) -> dict[str, Tensor]:
        """What the model as it is says about the data: the tensors named in `stored`."""

    def derived(self, learnt: dict[str, Tensor]) -> dict[str, Tensor]:
        """What can be made of that again, and so is not saved."""
        return {}

    def check(self, model: nn.Module, data: Data) -> None:
        list(over_data(model, data, unit_mean, torch.arange(1), last=self.last))  # only a pass shows what layers give

    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        if self._epoch is not None and epoch // self.every == self._epoch // self.every:
            return
        # ordinary tensors even inside a caller's inference mode: others can't be updated in place later
        with torch.inference_mode(False), torch.no_grad():
            self._take(called(self.learn, "fitness", model, data))
        self._epoch = epoch

    def state_dict(self) -> dict[str, Tensor]:
        if self._epoch is None:
            return {}
        return {"epoch": torch.tensor(self._epoch), **{name: self._known[name].clone() for name in self.stored}}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if not state:
            self._epoch = None
            return
        wanted = {"epoch", *self.stored}
        if state.keys() != wanted:
            raise UserError(
                f"fitness: {type(self).__name__} keeps {', '.join(sorted(wanted))}, but {', '.join(sorted(state))}"
                " was given."
            )
        with torch.inference_mode(False), torch.no_grad():
            self._take({name: state[name] for name in self.stored})
        self._epoch = int(state["epoch"])

    def known(self, scored: Scored) -> dict[str, Tensor]:
        """What was learnt, on the device of the variants."""
        name = type(self).__name__
        if self._epoch is None:
            raise UserError(f"fitness: {name} needs begin_epoch(model, data, epoch) before the first batch.")
        if not scored.outputs:
            raise UserError(f"fitness: {name} reads the layers' outputs, but Scored.outputs is empty.")
        device = scored.logits.device
        if any(tensor.device != device for tensor in self._known.values()):  # a state that was loaded elsewhere
            with torch.inference_mode(False):
                self._known = {key: tensor.to(device) for key, tensor in self._known.items()}
        return self._known

    def fitting(self, values_MU: Tensor, units: int) -> Tensor:
        """The values as they are, where there are as many units as were learnt."""
        if values_MU.shape[1] != units:
            raise UserError(
                f"fitness: {type(self).__name__} learnt {units} units, but the network has {values_MU.shape[1]}."
            )
        return values_MU

    def _take(self, learnt: dict[str, Tensor]) -> None:
        for name, tensor in {**learnt, **self.derived(learnt)}.items():
            mine = self._known.get(name)
            if mine is not None and _alike(mine, tensor):
                mine.copy_(tensor)
            else:
                self._known[name] = tensor.clone()


def _alike(mine: Tensor, given: Tensor) -> bool:
    return mine.shape == given.shape and mine.dtype == given.dtype and mine.device == given.device


def at_least_one(field: str, value: int) -> int:
    """A setting that is a whole number, checked."""
    if not isinstance(value, int) or value < 1:
        raise UserError(f"fitness.{field}: should be a whole number of at least 1, but {value!r} was given.")
    return value

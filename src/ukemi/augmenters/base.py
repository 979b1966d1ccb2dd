"""What every augmenter is: a function of a batch, with optional hooks and state."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import index as index_of
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ukemi import randomness
from ukemi.data import Data, check_pixels
from ukemi.errors import UserError
from ukemi.fused import fusable
from ukemi.models.inference import evaluating
from ukemi.randomness import Stream
from ukemi.ranks import Ranks, out_of_memory
from ukemi.schema import Schema, called, in_short
from ukemi.spaces import Space


class AugmenterConfig(Schema):
    """The settings of an augmenter; `name` picks it."""

    place: ClassVar[str] = "augmenter"
    objective: ClassVar[str] = "cross-entropy"
    """the objective that it is trained with unless another one is named"""

    @abstractmethod
    def build(self, space: Space, seed: int, flips: bool) -> "Augmenter":
        """The augmenter with these settings."""


class Augmenter(ABC):
    """Replaces the images of a batch before a training step; labels are kept.

    `augmenter(model, images, labels, index, epoch) -> images`: `index` is each sample's identity, epochs count from 0.
    """

    genes: Tensor | None = None
    """the chromosomes `[N, G]` that made the last batch, where there are any"""
    forwards: int = 0
    """scoring passes so far, counted in images"""
    spared: int = 0
    """scoring passes that skipping robust samples saved so far"""
    observes: bool = False
    """whether it makes use of `observe`"""
    planned: int | None = None
    """what `plan` said of the batch about to come; None in a loop that does not plan"""
    ranks: Ranks = Ranks()
    """who trains together; each rank is given its own rows of every batch"""

    def __init__(self, *, seed: int = 0, flips: bool = False) -> None:
        self.seed, self.flips = whole("seed", seed), flips
        self._admitted = False

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        """The images to train on, `[N, C, H, W]` in [0, 1]. The first batch's pixels are checked, as the most common
        mistake is to give normalised ones, and so is what is made of them; later ones are not, so that the device
        never waits."""
        if not self._admitted:
            check_pixels(images)
        check_rows("index", index, images)
        check_rows("labels", labels, images)
        epoch = whole("epoch", epoch)
        if epoch < 0:
            raise UserError(f"epoch: epochs count from 0, but {epoch} was given.")
        with evaluating(model):  # what anyone's own method asks of the model should leave no trace in its statistics
            asked = self.augment if self._admitted else self._first
            made = asked(model, images, labels.long(), index, epoch)
        self._check_made(made, len(images))
        return made

    def _first(self, *given: Any) -> Tensor:
        """What fails in anyone's own method is said in a sentence. Later it is raised as it is: a step that is captured
        as a graph may fail and then run without."""
        try:
            return called(self.augment, "augmenter", *given)
        except UserError as error:
            if error.__cause__ is not None and out_of_memory(error.__cause__):
                raise error.__cause__ from None  # ranks have to agree on that
            raise

    def _check_made(self, made: Any, count: int) -> None:
        name = type(self).__name__
        if not isinstance(made, Tensor) or not made.is_floating_point() or made.ndim != 4 or len(made) != count:
            given = f"{made.dtype} {list(made.shape)}" if isinstance(made, Tensor) else f"a {type(made).__name__}"
            raise UserError(f"augmenter: {name} should give images [{count}, C, H, W] in float, but it gave {given}.")
        if not self._admitted:
            check_pixels(made.detach(), f"augmenter: {name}")
            self._admitted = True

    @abstractmethod
    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        """What an augmenter writes: the images to train on. The model is in evaluation mode."""

    def rehearse(self, model: nn.Module, data: Data) -> None:
        """Called once before a run writes anything: what anyone's own parts get wrong should show here."""
        return

    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        """Called once before the epoch's first batch; in a training of ours the model is in evaluation mode."""
        return

    def plan(self, batches: Sequence[Tensor]) -> list[int]:
        """Called after `begin_epoch` with the index of every batch to come: what kind of step each will be.

        Steps of one kind do the same work in the same shapes, so a GPU can replay one as a graph for all."""
        return [0] * len(batches)

    def observe(self, index: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Called after each step with the logits `[N, K]` that the trained images got."""
        return

    def absent(self) -> None:
        """Called instead of a batch on a rank that has no row of it, so that whatever counts batches counts on."""
        return

    def merge(self, rows: Sequence[Tensor]) -> None:
        """Called on all ranks before a checkpoint: rank r was given the samples `rows[r]` since the last time. What is
        remembered of a sample should then be known to all."""
        return

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs, as tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes back what `state_dict` gave."""
        if state:
            raise UserError(f"augmenter: {type(self).__name__} keeps no state, but {sorted(state)} was given.")

    def flipped(self, images: Tensor, index: Tensor, epoch: int) -> Tensor:
        """Mirrors half of the samples, decided once per sample and epoch; the last thing done to a variant."""
        if not self.flips:
            return images
        flip = randomness.uniform(index, seed=self.seed, stream=Stream.FLIP, epoch=epoch)[..., None] < 0.5
        return _mirrored(images, flip)


@fusable
def _mirrored(images: Tensor, which: Tensor) -> Tensor:
    return torch.where(which, images.flip(-1), images)


def check_rows(field: str, rows: Tensor, images: Tensor) -> None:
    """One whole number per image, where the images are. Smaller integers would be taken for masks where they pick
    rows."""
    count = len(images)
    if not isinstance(rows, Tensor) or rows.dtype not in (torch.int32, torch.int64) or rows.shape != (count,):
        given = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, Tensor) else in_short(rows)
        raise UserError(
            f"{field}: one whole number per image is needed, an int64 tensor [{count}], but {given} was given."
        )
    if rows.device != images.device:
        raise UserError(f"{field}: it lies on {rows.device}, but the images on {images.device}; move it there.")


def outside(numbers: Tensor, count: int) -> int | None:
    """One that is not among 0 to count - 1, where there is any. A GPU would have to be waited for; there it is caught
    by the device itself."""
    if numbers.device.type != "cpu" or not len(numbers):
        return None
    return next((end for end in (int(numbers.max()), int(numbers.min())) if not 0 <= end < count), None)


def whole(field: str, value: Any) -> int:
    """A whole number of any kind that is not a tensor (NumPy's too) as an int: other kinds would overflow as a key."""
    if isinstance(value, bool | Tensor) or not hasattr(value, "__index__"):
        raise UserError(f"{field}: a whole number is needed, but {in_short(value)} was given.")
    return index_of(value)

"""What a defence is: a model that is harder to fool, or a detector that says which images not to trust.

Both are judged by what still passes them (`passes`). A hardened model is a `torch.nn.Module` from pixels to logits as
any other, so every measure works on it. Defences that draw random numbers key them by the picture itself (`key_of`): a
model is given nothing else, and an image's answer then never depends on its batch.
"""

from abc import ABC, abstractmethod
from math import ceil
from typing import Self

import torch
from torch import Tensor, nn

from ukemi import randomness
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.models.inference import FEW, default_chunk, home_of, logits, padded, scoring, wrong
from ukemi.randomness import Stream

FALSE_POSITIVES = 0.05
"""the share of benign validation images that a detector may flag"""
_BLOCK = 1024


def key_of(images_NCHW: Tensor) -> Tensor:
    """A number per picture, int64 `[N]`: a hash of its pixels and their places, alike on every device.

    >>> key_of(torch.zeros(2, 1, 2, 2)).unique().numel()
    1
    """
    bits_NV = images_NCHW.float().contiguous().view(torch.int32).flatten(1).long()
    places_V = torch.arange(bits_NV.shape[1], device=bits_NV.device)
    salt_V = randomness.bits(places_V, seed=0, stream=Stream.DEFLECTION)
    mixed_NV = randomness.bits((bits_NV ^ salt_V).flatten(), seed=0, stream=Stream.DEFLECTION)
    return mixed_NV.view_as(bits_NV).sum(1)  # whole numbers that wrap: any order of summing gives the same


class Detector(ABC):
    """Scores images, higher where they are to be trusted less; above its threshold an image is flagged."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.threshold = model, float("nan")

    @abstractmethod
    def score(self, images_NCHW: Tensor) -> Tensor:
        """`[N]`; always called with chunks of one size, in evaluation mode and without a gradient."""

    def scores(self, images_NCHW: Tensor) -> Tensor:
        """The scores of any number of images, `[N]` in float64."""
        device = images_NCHW.device
        chunk = default_chunk(tuple(images_NCHW.shape[1:]), device, FEW)
        blocks = images_NCHW.split(chunk) if len(images_NCHW) else ()
        parts = [torch.empty(0, dtype=torch.float64, device=device)]
        with scoring(self.model, device):
            parts += [self.score(padded(rows, chunk))[: len(rows)].double() for rows in blocks]
            found = torch.cat(parts)
        return found.clone()

    def flags(self, images_NCHW: Tensor) -> Tensor:
        """Which images are not to be trusted, bool `[N]`; one whose score is no number is not."""
        if self.threshold != self.threshold:
            raise UserError(f"detector: {type(self).__name__} has no threshold yet; call fitted(benign) first.")
        return ~(self.scores(images_NCHW) <= self.threshold)

    def fitted(self, benign: Data, false_positives: float = FALSE_POSITIVES) -> Self:
        """Sets the threshold: the lowest that flags at most this share of benign validation images."""
        if not 0 <= false_positives < 1:
            raise UserError(f"false-positives: a share from 0 to below 1 is expected, not {false_positives:g}.")
        if not len(benign):
            raise UserError("benign: without an image there is no threshold.")
        device = home_of(self.model)
        order = torch.arange(len(benign)).split(_BLOCK)
        found = torch.cat([self.scores(batch.images) for batch in benign.batches(order, device)])
        if lost := int(found.isnan().sum()):
            raise UserError(f"benign: {type(self).__name__} finds no score for {lost} of {len(found)} images.")
        self.threshold = float(found.sort().values[ceil((1 - false_positives) * len(found) - 1e-9) - 1])
        return self


Defence = nn.Module | Detector


def passes(defence: Defence, images_NCHW: Tensor, labels_N: Tensor) -> Tensor:
    """Which images get past a defence, bool `[N]`: misclassified by the hardened model; or misclassified by the
    detector's model, and not flagged."""
    if not len(images_NCHW):
        return torch.zeros(0, dtype=torch.bool, device=images_NCHW.device)
    model = defence.model if isinstance(defence, Detector) else defence
    chunk = default_chunk(tuple(images_NCHW.shape[1:]), images_NCHW.device, FEW)
    wrong_N = wrong(logits(model, images_NCHW, chunk), labels_N)
    return wrong_N & ~defence.flags(images_NCHW) if isinstance(defence, Detector) else wrong_N

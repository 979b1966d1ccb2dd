"""Standard: the images as they are."""

from typing import Literal

from torch import Tensor, nn

from ukemi.augmenters.base import Augmenter, AugmenterConfig
from ukemi.schema import Fixed
from ukemi.spaces import Space


class Standard(Augmenter):
    """The images as they are, with flips where they are asked for."""

    class Config(AugmenterConfig):
        """Trains on the images as they are."""

        name: Fixed[Literal["standard"]] = "standard"

        def build(self, space: Space, seed: int, flips: bool) -> "Standard":
            return Standard(seed=seed, flips=flips)

    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        return self.flipped(images, index, epoch)

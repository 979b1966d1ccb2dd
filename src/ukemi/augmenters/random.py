"""Random: every sample a fresh random variant in every epoch."""

from typing import Literal

import torch
from torch import Tensor, nn

from ukemi.augmenters.base import Augmenter, AugmenterConfig
from ukemi.schema import Fixed
from ukemi.spaces import Space, check_space
from ukemi.variations import vary


class Random(Augmenter):
    """One random variant per sample and epoch."""

    class Config(AugmenterConfig):
        """Trains on one random variant per sample and epoch."""

        name: Fixed[Literal["random"]] = "random"

        def build(self, space: Space, seed: int, flips: bool) -> "Random":
            return Random(space, seed=seed, flips=flips)

    def __init__(self, space: Space, *, seed: int = 0, flips: bool = False) -> None:
        super().__init__(seed=seed, flips=flips)
        self.space = check_space(space)

    @torch.no_grad()
    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        self.genes = self.space.sample(index, seed=self.seed, epoch=epoch)[:, 0]
        return self.flipped(vary(images, self.genes, self.space), index, epoch)

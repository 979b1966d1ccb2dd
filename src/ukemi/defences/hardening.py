"""Hardened models: a model behind a transformation of its input, or asked about several forms of it."""

from collections.abc import Callable, Sequence
from math import log
from typing import Literal

import torch
from torch import Tensor, nn

from ukemi.defences.base import key_of
from ukemi.defences.transforms import bit_depth, deflected, median, non_local_means, wavelet_denoised
from ukemi.errors import UserError, check_known
from ukemi.spaces import Gene, Space
from ukemi.variations import vary

Transform = Callable[[Tensor], Tensor]
CROPS = Space(
    (
        Gene("translate_x", -0.05, 0.05, 0.0, 0.0125),
        Gene("translate_y", -0.05, 0.05, 0.0, 0.0125),
        Gene("zoom", 1.0, 1.2, 1.0, 0.025),
    ),
    "crops",
)
"""crops of 0.83 to 1 of the side, shifted by up to a twentieth and brought back to the full size"""
NEARBY = Space(
    (
        Gene("rotation", -10, 10, 0.0, 1),
        Gene("translate_x", -0.05, 0.05, 0.0, 0.0125),
        Gene("translate_y", -0.05, 0.05, 0.0, 0.0125),
        Gene("shear", -0.05, 0.05, 0.0, 0.0125),
    ),
    "nearby",
)
"""small natural variations: a third of T3 and less"""


class Transformed(nn.Module):
    """The model's answer to the transformed image."""

    def __init__(self, model: nn.Module, transform: Transform) -> None:
        super().__init__()
        self.model, self.transform = model, transform

    def forward(self, images_NCHW: Tensor) -> Tensor:
        return self.model(self.transform(images_NCHW))


class Several(nn.Module):
    """The mean of the probabilities that the model gives to several forms of an image, as logits."""

    def __init__(self, model: nn.Module, transforms: Sequence[Transform]) -> None:
        super().__init__()
        self.model, self.transforms = model, tuple(transforms)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        forms = torch.cat([transform(images_NCHW) for transform in self.transforms])
        return _mean(self.model(forms).unflatten(0, (len(self.transforms), -1)))


class Variants(nn.Module):
    """The model asked about `count` random variants of an image: their mean probability, or their vote.

    In a vote each variant's first class counts one; the mean probability only decides between equals. Draws are keyed
    by the picture.
    """

    def __init__(
        self, model: nn.Module, space: Space, count: int = 10, how: Literal["mean", "vote"] = "mean", seed: int = 0
    ) -> None:
        super().__init__()
        if count < 1:
            raise UserError(f"variants: at least 1 is needed, but {count} was given.")
        check_known("how", how, ("mean", "vote"))
        self.model, self.space, self.count, self.how, self.seed = model, space, count, how, seed

    def forward(self, images_NCHW: Tensor) -> Tensor:
        genes_NKG = self.space.sample(key_of(images_NCHW), self.count, seed=self.seed)
        forms = vary(images_NCHW.repeat_interleave(self.count, 0), genes_NKG.flatten(0, 1), self.space)
        logits_KNC = self.model(forms).unflatten(0, (-1, self.count)).transpose(0, 1)
        return _mean(logits_KNC) if self.how == "mean" else _vote(logits_KNC)


def _mean(logits_KNC: Tensor) -> Tensor:
    return logits_KNC.float().log_softmax(2).logsumexp(0) - log(len(logits_KNC))


def _vote(logits_KNC: Tensor) -> Tensor:
    """The share of votes as logits; the mean probability counts as one more vote, spread over the classes."""
    probabilities_KNC = logits_KNC.float().softmax(2)
    votes_NC = torch.zeros_like(probabilities_KNC[0])
    votes_NC.scatter_add_(1, probabilities_KNC.argmax(2).T, torch.ones_like(probabilities_KNC[..., 0].T))
    return ((votes_NC + probabilities_KNC.mean(0)) / (len(logits_KNC) + 1)).clamp(min=1e-30).log()


def squeezers(channels: int) -> list[Transform]:
    """Feature squeezing's (Xu et al. 2018): 1 bit for grey images and 5 for others, a median of 2 x 2, and for colour
    images non-local means (13-3-2)."""
    bits = 1 if channels == 1 else 5
    found: list[Transform] = [lambda images: bit_depth(images, bits), lambda images: median(images, 2)]
    return [*found, non_local_means] if channels == 3 else found


def deflecting(seed: int = 0) -> Transform:
    """Pixel deflection and wavelet denoising, keyed by the picture."""
    return lambda images: wavelet_denoised(deflected(images, key_of(images), seed=seed))

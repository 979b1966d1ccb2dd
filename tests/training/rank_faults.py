"""Networks that fail on the second rank alone, in the middle of a training."""

import os

import torch
from rank_net import Net
from torch import Tensor, nn

from ukemi import UserError

AT = 3
"""the pass of the training in which it happens"""


class Faulty(Net):
    """Raises in its forward pass, once, where it is being trained."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self.fault, self.passes = fault, 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += self.training
        if self.training and self.passes == AT + 1 and os.environ.get("RANK") == "1":
            raise self.fault
        return super().forward(images)


def exhausted() -> nn.Module:
    return Faulty(torch.OutOfMemoryError("CUDA out of memory"))


def fussy() -> nn.Module:
    return Faulty(UserError("network: image seven is upside down."))


def single() -> nn.Module:
    return Net()

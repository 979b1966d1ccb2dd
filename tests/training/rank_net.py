"""Networks without BatchNorm for trainings on several ranks, and one with it."""

import atexit
import os
import signal

import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.data import DataSet, labelled

QUIET = 6
"""steps before the poisoned network gives NaN"""


class Net(nn.Module):
    """One small convolution and a linear head, in the type of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.head = nn.Conv2d(1, 4, 3, stride=2), nn.Linear(4 * 25, 4)

    def forward(self, images: Tensor) -> Tensor:
        features = self.convolution(images.to(self.head.weight.dtype)).relu()
        return self.head(features.flatten(1))


def double() -> nn.Module:
    return Net().double()


def single() -> nn.Module:
    return Net()


def with_norm() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(400, 4))


class Idle(Net):
    """With a parameter that no loss depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.zeros(3))


def idle() -> nn.Module:
    return Idle()


class Poisoned(Net):
    """Gives NaN for a white image once it has been trained for a while; the gradient stays finite, so a rank without
    this image has no sign of it."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += self.training
        logits = super().forward(images)
        white = images.flatten(1).amax(1, keepdim=True) > 0.95
        return torch.where(white & (self.passes > QUIET), torch.nan, logits)


def poisoned() -> nn.Module:
    return Poisoned()


class Dying(Net):
    """Kills the second rank in its twelfth step, the first time that it is started."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += self.training
        first_start = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if first_start and os.environ["RANK"] == "1" and self.passes == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(images)


def dying() -> nn.Module:
    return Dying()


class Late:
    """Aborts the process where Python is taken down, as a thread of a process group may."""

    def __del__(self) -> None:
        os.abort()


def late() -> nn.Module:
    global _kept
    _kept = Late()
    atexit.register(print, "last words")
    return Net()


def data() -> DataSet:
    """One pixel differs between ranks."""
    pixels = torch.zeros(32, 1, 12, 12, dtype=torch.uint8)
    pixels[5, 0, 3, 3] = int(os.environ["RANK"])
    found = labelled(pixels, torch.arange(32) % 4)
    return DataSet("data", found, found)


def absent_data() -> DataSet:
    """There on the first rank only."""
    if os.environ["RANK"] != "0":
        raise UserError("data: it is not on this machine")
    return data()

"""A network that can be cut before its dropout, and images for it."""

import torch
from torch import Tensor, nn


class Branching(nn.Module):
    """Two values cross the cut, one a parameter, and what follows the first dropout has a second one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(1, 4, 3, 2), nn.Conv2d(1, 4, 3, 2), nn.Linear(4 * 16, 3)
        self.drop, self.maps = nn.Dropout(0.4), nn.Dropout2d(0.3)
        self.scale = nn.Parameter(torch.tensor(1.3))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scale
        left, right = self.first(x).relu(), self.second(x)
        y = self.maps(self.drop(left) + right * scale)
        return self.last(torch.flatten(y, 1))


def images(count: int, channels: int = 1, side: int = 9) -> Tensor:
    return torch.rand(count, channels, side, side, dtype=torch.float64)

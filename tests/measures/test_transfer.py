"""Accuracy on frozen sets: per set, and the mean over sets."""

import pytest
import torch
from torch import nn

from ukemi import UserError
from ukemi.data import Data, labelled
from ukemi.measures.transfer import transfer_accuracy


def brightness(shares: list[bool]) -> Data:
    """White images are class 1, black ones class 0; where false, the label is wrong."""
    labels = torch.tensor([at % 2 if right else 1 - at % 2 for at, right in enumerate(shares)])
    images = (torch.arange(len(shares)) % 2).float()[:, None, None, None].expand(-1, 1, 4, 4)
    return labelled(images.clone(), labels, ["black", "white"])


class Bright(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean = images.mean((1, 2, 3)) * self.scale
        return torch.stack([0.5 - mean, mean - 0.5], 1)


def test_every_set_counts_alike() -> None:
    sets = [brightness([True, True, True, False]), brightness([True, False])]
    found = transfer_accuracy(Bright(), sets)
    assert found.per_set == (0.75, 0.5) and found.mean == 0.625


def test_a_set_is_needed() -> None:
    with pytest.raises(UserError, match=r"^sets: at least one"):
        transfer_accuracy(Bright(), [])

"""A network with BatchNorm and dropout for the killed runs."""

from torch import nn


def make() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1),  # between several channels, where layouts differ
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(6 * 25, 4),
    )

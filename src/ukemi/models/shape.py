"""What a network is built for, and what the table says about it."""

from collections.abc import Callable
from typing import NamedTuple

from torch import nn


class Shape(NamedTuple):
    """The images a network takes and the classes it tells apart; `size` is (height, width)."""

    channels: int
    size: tuple[int, int]
    classes: int


Factory = Callable[[Shape], nn.Module]
"""Builds a network, without normalisation, for a shape."""


class Entry(NamedTuple):
    """One line of the table of networks."""

    factory: Factory
    about: str
    shape: Shape
    """The shape of the paper."""
    paper: str
    smallest: int = 1
    """The shortest side in pixels that the network can take."""

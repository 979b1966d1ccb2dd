"""Measuring on several ranks: each measures its share of the images, and all have the whole result."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from ukemi.data.dataset import Data, as_float
from ukemi.ranks import Ranks

Result = TypeVar("Result")
"""A dataclass with one row per image, and counts."""


def shared(
    data: Data, ranks: Ranks | None, measure: Callable[[Data], Result], join: Callable[[list[Result]], Result]
) -> Result:
    """`measure(data)`, where each rank measures its share and `join` puts the parts in a row, in the images' order.

    Fewer images than ranks are measured by every rank. What one rank finds wrong, all refuse.
    """
    if ranks is None or not is_shared(data, ranks):
        return measure(data)
    with ranks.together():
        mine = measure(data.take(ranks.part(torch.arange(len(data), device=data.labels.device))))
    return join(ranks.every(mine))


def is_shared(data: Data, ranks: Ranks) -> bool:
    """Whether each rank measures a part of the images, and not all of them."""
    return not ranks.alone and len(data) >= ranks.size


def in_a_row(parts: Sequence[Data]) -> Data:
    """The images of several parts of one data set, in float pixels, where the first part lies."""
    home = parts[0].labels.device
    images = torch.cat([as_float(part.images[torch.arange(len(part))]).to(home) for part in parts])
    labels, index = (torch.cat([getattr(part, name).to(home) for part in parts]) for name in ("labels", "index"))
    return replace(parts[0], images=images, labels=labels, index=index, groups=None)

"""Which of the contributions are the largest."""

from collections.abc import Sequence
from math import ceil

import torch
from torch import Tensor


def kept_count(total: int, q: float) -> int:
    """How many of `total` are q %: rounded up, so that there is always one.

    >>> kept_count(200, 95.0), kept_count(6, 50.0), kept_count(3, 1.0)
    (190, 3, 1)
    """
    return min(total, max(1, ceil(total * q / 100 - 1e-9)))


def largest(keys: Sequence[Tensor], count: int) -> Tensor:
    """The `count` largest of each row, bool `[R, S]`.

    `keys` are `[R, S]`; where the first is equal the second decides, and so on. Numbers that are equal in all of them
    are alike in every way, and the first of these are taken.

    >>> largest([torch.tensor([[1, 2, 1, 0]]), torch.tensor([[5, 0, 6, 9]])], 2)
    tensor([[False,  True,  True, False]])
    """
    first_RS = keys[0]
    if count == first_RS.shape[1]:
        return torch.ones_like(first_RS, dtype=torch.bool)
    least_R1 = first_RS.kthvalue(first_RS.shape[1] - count + 1, dim=1, keepdim=True).values
    kept_RS = first_RS > least_R1
    # only those that are equal at the border need an order
    row_M, place_M = (first_RS == least_R1).nonzero(as_tuple=True)
    for key_RS in reversed(keys[1:]):
        order_M = key_RS[row_M, place_M].argsort(descending=True, stable=True)
        row_M, place_M = row_M[order_M], place_M[order_M]
    order_M = row_M.argsort(stable=True)
    row_M, place_M = row_M[order_M], place_M[order_M]
    equal_R = torch.bincount(row_M, minlength=len(first_RS))
    rank_M = torch.arange(len(row_M), device=row_M.device) - (equal_R.cumsum(0) - equal_R)[row_M]
    taken_M = rank_M < (count - kept_RS.sum(1))[row_M]
    kept_RS[row_M[taken_M], place_M[taken_M]] = True
    return kept_RS

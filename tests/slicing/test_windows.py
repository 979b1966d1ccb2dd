"""The windows of pools beside torch's own, odd edges and all."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ukemi.slicing.windows import Window

MAPS = torch.rand(2, 3, 8, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@given(
    high=st.integers(4, 8), kernel=st.integers(1, 4), stride=st.integers(1, 4), dilation=st.integers(1, 2),
    padding=st.integers(0, 2), ceil=st.booleans(),
)  # fmt: skip
def test_columns_are_the_windows_of_a_pool_and_folding_is_their_transpose(
    high: int, kernel: int, stride: int, dilation: int, padding: int, ceil: bool
) -> None:
    maps, padding = MAPS[:, :, :high], min(padding, kernel // 2)
    if dilation * (kernel - 1) + 1 > high + 2 * padding:
        return
    pooled = nn.MaxPool2d(kernel, stride, (padding, 0), dilation, ceil_mode=ceil)(maps)
    sides = (high, 9), (pooled.shape[2], pooled.shape[3])
    window = Window((kernel, kernel), (stride, stride), (padding, 0), (dilation, dilation), *sides)
    assert torch.equal(window.columns(maps, -torch.inf).amax(2).view_as(pooled), pooled)
    columns = window.columns(maps)
    numbers = torch.rand(columns.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose((columns * numbers).sum(), (maps * window.folded(numbers)).sum())

"""Where memory runs out while scoring, fewer candidates go through the model at once, and the result is the same."""

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, WorstOf


class Small(nn.Module):
    """Refuses more than `most` rows at once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.head, self.most, self.passes = nn.Linear(64, 3), most, [0]

    def forward(self, images: Tensor) -> Tensor:
        self.passes.append(len(images))
        if len(images) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return self.head(images.flatten(1))


def test_the_chunk_is_halved_and_stays_so() -> None:
    torch.manual_seed(0)
    images, labels, index = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0]), torch.arange(4)
    wide, narrow = Small(1000), Small(12)
    narrow.head = wide.head
    free, tight = WorstOf(T3, k=12), WorstOf(T3, k=12)
    for epoch in range(2):
        expected = free(wide, images, labels, index, epoch)
        found = tight(narrow, images, labels, index, epoch)
        assert torch.equal(found, expected) and torch.equal(tight.genes, free.genes)  # type: ignore[arg-type]
    assert narrow.passes == [0, 48, 24] + 2 * [12] * 4  # 12 candidates at once, 6, then 3 from there on
    assert tight.forwards == free.forwards == 2 * 4 * 12


def test_one_candidate_that_does_not_fit_is_said() -> None:
    images = torch.rand(4, 1, 8, 8)
    with pytest.raises(torch.OutOfMemoryError):
        WorstOf(T3, k=4)(Small(3), images, torch.zeros(4).long(), torch.arange(4), 0)

"""How often an epoch trains samples of one class as they are taken for another (SENSEI's released code)."""

import torch
from torch import Tensor

from ukemi.ranks import Ranks


class Cap:
    """Counts, per pair of classes, the samples that were trained while mistaken, over all ranks alike."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.counts: Tensor | None = None
        """int64 `[classes x classes]` of this epoch"""

    def over(self, labels: Tensor, predicted: Tensor, real: Tensor, classes: int, ranks: Ranks) -> Tensor:
        """Which rows `[N]` are mistaken while their pair is used up, counted in the order of the whole batch."""
        pair_N, wrong_N = labels * classes + predicted, (predicted != labels) & real
        mine_N2 = torch.stack([torch.where(wrong_N, pair_N, -1), torch.full_like(pair_N, classes)], 1)
        parts = ranks.gathered(mine_N2)
        over_M = self._counted(torch.cat(parts))
        return over_M.split([len(part) for part in parts])[ranks.rank]

    def absent(self, device: torch.device, ranks: Ranks) -> None:
        """A rank that has no row of this batch counts the others' rows."""
        nothing = torch.zeros(0, dtype=torch.int64, device=device)
        self.over(nothing, nothing, nothing.bool(), 0, ranks)

    def _counted(self, rows_M2: Tensor) -> Tensor:
        if not len(rows_M2):
            return rows_M2.new_zeros(0, dtype=torch.bool)
        pair_M = rows_M2[:, 0]
        if self.counts is None:
            self.counts = torch.zeros(int(rows_M2[0, 1]) ** 2, dtype=torch.int64, device=pair_M.device)
        wrong_M, pair_M = pair_M >= 0, pair_M.clamp(min=0)
        before_M = ((pair_M[:, None] == pair_M) & wrong_M).tril(-1).sum(1)
        over_M = wrong_M & (self.counts[pair_M] + before_M > self.most)
        self.counts.scatter_add_(0, pair_M, (wrong_M & ~over_M).long())
        return over_M

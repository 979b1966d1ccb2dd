"""Plain accuracy and loss, and which images are recognised."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.models.inference import default_chunk, home_of, logits, right
from ukemi.ranks import Ranks


def accuracy(model: nn.Module, data: Data, device: torch.device, ranks: Ranks | None = None) -> tuple[float, float]:
    """Accuracy and mean cross-entropy of the model on the data; each rank passes its share of them."""
    ranks = ranks or Ranks()
    chunk = default_chunk((data.channels, *data.size), device)
    hits, loss = 0.0, 0.0
    for batch in data.batches(ranks.part(torch.arange(len(data))).split(16 * chunk), device):
        if not len(batch.labels):  # fewer images than ranks
            break
        outputs = logits(model, batch.images, chunk)
        hits += int(right(outputs, batch.labels).sum())
        loss += float(F.cross_entropy(outputs, batch.labels, reduction="sum").double())
    hits, loss = ranks.total(torch.tensor([hits, loss], dtype=torch.float64)).tolist()
    return hits / len(data), loss / len(data)


def recognised(model: nn.Module, data: Data) -> Tensor:
    """Which images the model gets right, bool `[N]` on its device."""
    device = home_of(model)
    chunk = default_chunk((data.channels, *data.size), device)
    batches = data.batches(torch.arange(len(data)).split(16 * chunk), device)
    return torch.cat([right(logits(model, batch.images, chunk), batch.labels) for batch in batches])

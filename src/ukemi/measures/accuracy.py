"""Plain accuracy and loss."""

import torch
import torch.nn.functional as F
from torch import nn

from ukemi.data import Data
from ukemi.models.inference import default_chunk, logits, right


def accuracy(model: nn.Module, data: Data, device: torch.device) -> tuple[float, float]:
    """Accuracy and mean cross-entropy of the model on the data."""
    chunk = default_chunk((data.channels, *data.size), device)
    hits, loss = 0, 0.0
    for batch in data.batches(torch.arange(len(data)).split(16 * chunk), device):
        outputs = logits(model, batch.images, chunk)
        hits += int(right(outputs, batch.labels).sum())
        loss += float(F.cross_entropy(outputs, batch.labels, reduction="sum").double())
    return hits / len(data), loss / len(data)

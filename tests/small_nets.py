"""Small networks that are trained for a few seconds."""

import torch
from torch import nn
from torch.nn import functional as F

from ukemi.data import DataSet


def fitted(model: nn.Module, fashion: DataSet, epochs: int, batch: int = 128) -> nn.Module:
    """The model after some epochs, in evaluation mode and without gradients."""
    images, labels = fashion.train.images.float() / 255, fashion.train.labels
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(batch):
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return model.eval()

"""Cross-entropy against its formula."""

import pytest
import torch
from torch import nn

from ukemi.objectives import CrossEntropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_equals_the_formula(smoothing: float) -> None:
    model = nn.Linear(5, 4)
    images, labels = torch.randn(6, 5), torch.tensor([0, 1, 2, 3, 0, 1])
    outcome = CrossEntropy(smoothing)(model, images, labels, torch.arange(6), 0)
    target = (1 - smoothing) * torch.eye(4)[labels] + smoothing / 4
    expected = -(target * model(images).log_softmax(1)).sum(1)
    assert torch.allclose(outcome.losses, expected, atol=1e-6) and torch.equal(outcome.logits, model(images))

"""Uncertainty as fitness: what the model knows least about (uncertainty-guided testing)."""

import torch
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.fitness.base import Fitness, Scored
from ukemi.models.inference import home_of
from ukemi.uncertainty import DropoutPasses, prediction_confidence, predictive_entropy
from ukemi.uncertainty.dropout import drops


def uncertainty(scored: Scored) -> Tensor:
    """1 - PCS: high where the second class is close behind the first, whatever the label."""
    return 1 - prediction_confidence(scored.logits.double().softmax(1))


class PredictiveEntropy(Fitness):
    """The entropy of the mean of `passes` passes with dropout, for networks that have it.

    All variants of all samples and epochs are asked under the same masks, so that none wins by luck and no value
    depends on a batch. What comes before the first dropout costs one more pass, the rest `passes` passes; these are not
    counted among the scoring passes.
    """

    def __init__(self, passes: int = 10, *, seed: int = 0) -> None:
        self.passes, self.seed = passes, seed
        self._source: DropoutPasses | None = None

    def check(self, model: nn.Module, data: Data) -> None:
        self.begin_epoch(model, data, 0)  # only passes show whether the dropout takes part, and is ever off

    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        # cut here, since that looks at values, which a captured step must not do
        device = home_of(model)
        self._asked(model)(data.batch(torch.arange(1), device).images, torch.zeros(1, dtype=torch.int64, device=device))

    def __call__(self, scored: Scored) -> Tensor:
        index = torch.zeros(1, dtype=torch.int64, device=scored.images.device)
        sampled = self._asked(scored.model)(scored.images, index, shared=len(scored.images))
        return predictive_entropy(sampled.drawn.double())

    def _asked(self, model: nn.Module) -> DropoutPasses:
        if not drops(model):
            raise UserError(
                f"fitness: predictive-entropy needs a network with dropout, but {type(model).__name__} has none;"
                " uncertainty needs no dropout."
            )
        if self._source is None or self._source.model is not model:
            self._source = DropoutPasses(model, self.passes, seed=self.seed)
        return self._source

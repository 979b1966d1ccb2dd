"""Coverage as fitness: how much of a network a variant exercises that the clean training data did not.

What counts as covered is fixed before the epoch, so a variant's fitness depends on no other variant, batch or order.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from ukemi.activations import over_data, scaled_mean, scaled_means, sections, unit_mean, unit_means
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.fitness.base import Scored
from ukemi.fitness.learning import Learning, at_least_one


class NeuronCoverage(Learning):
    """Share of the neurons that the variant activates and no clean training image did at the epoch's start.

    A neuron is activated where its value, scaled within its layer for this image, is above `threshold` (DeepXplore,
    Pei et al. 2017). Learnt anew in every epoch, which takes one pass over the training data.
    """

    stored: ClassVar[tuple[str, ...]] = ("covered",)

    def __init__(self, threshold: float = 0.25) -> None:
        super().__init__()
        if not 0 <= threshold < 1:
            raise UserError(f"fitness.threshold: should be at least 0 and less than 1, but {threshold} was given.")
        self.threshold = threshold

    def learn(self, model: nn.Module, data: Data) -> dict[str, Tensor]:
        seen = [(torch.cat(means, 1) > self.threshold).any(0) for _, means in over_data(model, data, scaled_mean)]
        self.forwards += len(data)
        return {"covered": torch.stack(seen).any(0)}

    def __call__(self, scored: Scored) -> Tensor:
        covered_U = self.known(scored)["covered"]
        means_MU = self.fitting(scaled_means(scored.outputs), len(covered_U))
        return ((means_MU > self.threshold) & ~covered_U).double().mean(1)


class MultisectionCoverage(Learning):
    """Share of the neurons whose value falls where no clean training image's value fell.

    Each neuron's range over the training data is cut into `sections` (k-multisection coverage of DeepGauge, Ma et al.
    2018). A value outside the range counts too (DeepGauge's boundary coverage): the farther a search pushes a neuron,
    the newer it is. Ranges and sections are learnt every `every` epochs, which takes two passes over the training data.
    """

    stored: ClassVar[tuple[str, ...]] = ("low", "high", "hit")

    def __init__(self, sections: int = 100, every: int = 5) -> None:
        super().__init__(every)
        self.sections = at_least_one("sections", sections)

    def kept(self, output: Tensor) -> Tensor:
        return unit_mean(output).clone()

    def learn(self, model: nn.Module, data: Data) -> dict[str, Tensor]:
        ends = [torch.cat(means, 1).aminmax(dim=0) for _, means in over_data(model, data, unit_mean)]
        low_U = torch.stack([end.min for end in ends]).amin(0)
        high_U = torch.stack([end.max for end in ends]).amax(0)
        # one row more than sections: row 0 is outside the range, which is never hit
        hit_SU = torch.zeros(self.sections + 1, len(low_U), dtype=torch.bool, device=low_U.device)
        for _, means in over_data(model, data, unit_mean):
            hit_SU.scatter_(0, sections(torch.cat(means, 1), low_U, high_U, self.sections) + 1, True)
        hit_SU[0] = False
        self.forwards += 2 * len(data)
        return {"low": low_U, "high": high_U, "hit": hit_SU}

    def __call__(self, scored: Scored) -> Tensor:
        known = self.known(scored)
        means_MU = self.fitting(unit_means(scored.outputs), len(known["low"]))
        section_MU = sections(means_MU, known["low"], known["high"], self.sections)
        return (~known["hit"].gather(0, section_MU + 1)).double().mean(1)

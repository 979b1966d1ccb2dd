"""Contributions between neurons, where a convolution's neuron is its channel (DARE, section 3.1.1).

Every layer is read as a dense one over channel means, with the sum of each kernel as weight. Formula 2,
contrib_h = CONTRIB_n * dy_n * w_hn * dy_h, is taken for each sample; its signs are what adds up, over the neurons n
that h feeds and over the samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ukemi.slicing.steps import Joined, Passed, Plan, Pooled, Reshaped, Step, Summed, Weighted

Runs = Sequence[tuple[int, slice]]
"""which rows of a batch belong to which class"""
Add = Callable[[Weighted, int, Tensor, Tensor], None]
"""takes what a class's rows contribute to a layer's synapses: signs and real values, both `[out, in / groups]`"""
Visit = Callable[[Weighted, Tensor, Tensor, Tensor], None]
"""takes a layer, `CONTRIB_n * dy_n` of its outputs `[N, G, O]`, dy_h of its inputs `[N, G, I]`, weights `[G, O, I]`"""


@dataclass(frozen=True)
class Activity:
    """What nodes gave for a batch, and what they give on average."""

    values: Mapping[str, Tensor]
    means: Mapping[str, Tensor]

    def moved(self, name: str) -> Tensor:
        """The relative activation (Formula 1, for each sample)."""
        return self.values[name] - self.means[name]


def needed(plan: Plan) -> set[str]:
    """The nodes whose channel means the walk back looks at."""
    looked_at = [step for step in plan.steps if isinstance(step, Weighted | Summed)]
    return {name for step in looked_at for name in (step.node, *step.sources)}


def walk_back(plan: Plan, activity: Activity, start_NK: Tensor, runs: Runs, add: Add) -> None:
    """From `start_NK`, the contribution of each sample's logits, back to the first layer."""

    def visit(step: Weighted, pulled_NGO: Tensor, moved_NGI: Tensor, weight_GOI: Tensor) -> None:
        for label, rows in runs:
            signs = _pairs(pulled_NGO[rows].sign(), moved_NGI[rows].sign()) * weight_GOI.sign()
            reals = _pairs(pulled_NGO[rows], moved_NGI[rows]) * weight_GOI
            add(step, label, signs.flatten(0, 1), reals.flatten(0, 1))

    visited(plan, activity, start_NK, visit)


def visited(plan: Plan, activity: Activity, start_NK: Tensor, visit: Visit) -> None:
    """The same walk; `visit` sees each layer with the factors of every sample's contributions."""

    def through(step: Step, given_NU: Tensor) -> Sequence[Tensor]:
        if isinstance(step, Weighted):
            return [_through_weights(step, activity, given_NU, visit)]
        if isinstance(step, Summed):
            pulled_NU = given_NU * activity.moved(step.node)
            terms = zip(step.sources, step.signs, strict=True)
            return [(pulled_NU * activity.moved(source)).sign() * sign for source, sign in terms]
        return handed_on(step, given_NU)

    plan.back(start_NK, through)


def handed_on(step: Step, given_NU: Tensor) -> Sequence[Tensor]:
    """Through what has no weights: channel to channel, and the units of a flattened map to their channel."""
    if isinstance(step, Joined):
        return given_NU.split(step.widths, 1)
    if isinstance(step, Reshaped) and step.flat:
        return [given_NU.unflatten(1, (step.before[0], -1)).sum(2)]
    assert isinstance(step, Passed | Pooled | Reshaped)
    return [given_NU]


def _through_weights(step: Weighted, activity: Activity, given_NO: Tensor, visit: Visit) -> Tensor:
    """Shows the layer to `visit` and returns the contributions of its inputs, `[N, in]`."""
    weight_GOI = step.used().sum(2).unflatten(0, (step.groups, -1)).to(given_NO.dtype)
    pulled_NGO = (given_NO * activity.moved(step.node)).unflatten(1, (step.groups, -1))
    moved_NGI = activity.moved(step.sources[0]).unflatten(1, (step.groups, -1))
    visit(step, pulled_NGO, moved_NGI, weight_GOI)
    into_NGI = torch.einsum("ngo,goi->ngi", pulled_NGO.sign(), weight_GOI.sign())
    return (moved_NGI.sign() * into_NGI).flatten(1)


def _pairs(out_NGO: Tensor, in_NGI: Tensor) -> Tensor:
    """Sums over the samples of every product of an output's and an input's number, `[G, O, I]`."""
    return torch.einsum("ngo,ngi->goi", out_NGO, in_NGI)

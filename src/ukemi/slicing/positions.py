"""Contributions between activations at every place of a map (NNSlicer, Zhang et al. 2020).

An output's relative activation is the sum of its inputs', each times its weight. Of these terms the largest are kept,
as few as bring the sum within `theta` of the whole; a kept input contributes
sign(term) * sign(sum) * sign(CONTRIB of the output), and a weight the sum of that over all places. The bias that
NNSlicer's code adds back to an output's relative activation is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ukemi.errors import UserError
from ukemi.slicing.channels import Activity, Add, Runs
from ukemi.slicing.steps import Joined, Passed, Plan, Pooled, Reshaped, Step, Summed, Weighted
from ukemi.slicing.windows import Window

SLACK = 0.01
"""a term that is smaller than the last of the largest by no more than this share is kept too"""
NOTHING = 1e-6
"""a sum below this share of its terms' sizes is taken for none: nothing is kept of it"""
HELD = {"cpu": 2**22, "cuda": 2**26}
"""how many terms are looked at at once"""


def check(plan: Plan) -> None:
    """Names what can only be sliced channel by channel."""
    for step in plan.steps:
        what = ""
        if isinstance(step, Passed) and step.mixed:
            what = f"{step.mixed} mixes them"
        if isinstance(step, Pooled) and step.window is None:
            what = f"{step.what} has windows of different sizes"
        if isinstance(step, Weighted) and getattr(step.layer, "padding_mode", "zeros") != "zeros":
            what = f"layer {step.name!r} (Conv2d) doesn't pad by zeros"
        if what:
            raise UserError(f"reading: nnslicer follows single places, but {what}; the others work by channels.")


def needed(plan: Plan) -> set[str]:
    """The nodes whose outputs the walk back looks at."""
    inputs = {name for step in plan.steps if isinstance(step, Weighted | Summed | Pooled) for name in step.sources}
    return inputs | {step.node for step in plan.steps if isinstance(step, Pooled) and step.largest}


@dataclass(frozen=True)
class _Walk:
    activity: Activity
    theta: float
    runs: Runs
    add: Add

    def through(self, step: Step, given: Tensor) -> Sequence[Tensor]:
        match step:
            case Weighted():
                return [self._weights(step, given)]
            case Pooled():
                return [self._largest(step, given) if step.largest else self._mean(step, given)]
            case Summed():
                return self._terms(step, given)
            case Joined():
                return given.split(step.widths, 1)
            case Reshaped():
                return [given.reshape(len(given), *step.before)]
            case Passed(pads=pads) if pads:
                return [F.pad(given, [-pad for pad in pads])]
        return [given]

    def _weights(self, step: Weighted, given: Tensor) -> Tensor:
        """Q is a sample, a place and a group of channels; T are the terms that the group's outputs there sum up."""
        columns_NIFL = _columns(step, self.activity.moved(step.sources[0]))
        count, _, _, places = columns_NIFL.shape
        terms_QT = columns_NIFL.unflatten(1, (step.groups, -1)).permute(0, 4, 1, 2, 3).flatten(0, 2).flatten(1)
        weight_OIF = step.used().to(terms_QT.dtype)
        outputs, inputs, _ = weight_OIF.shape
        given_NLO = given.reshape(count, outputs, places).transpose(1, 2)
        back_QT, signs_KI = torch.zeros_like(terms_QT), given.new_zeros(len(self.runs) * outputs, inputs)
        run_N = self._run_of(given)
        # outputs that contribute nothing are left out
        for at_R3 in given_NLO.nonzero().split(_rows(terms_QT)):
            sample_R, place_R, output_R = at_R3.unbind(1)
            q_R = (sample_R * places + place_R) * step.groups + output_R // (outputs // step.groups)
            signs_RT = _signs(terms_QT[q_R] * weight_OIF[output_R].flatten(1), self.theta)
            signs_RT *= given_NLO[sample_R, place_R, output_R].sign()[:, None]
            back_QT.index_add_(0, q_R, signs_RT)
            signs_KI.index_add_(0, run_N[sample_R] * outputs + output_R, signs_RT.unflatten(1, (inputs, -1)).sum(2))
        for (label, _), signs_OI in zip(self.runs, signs_KI.split(outputs), strict=True):
            self.add(step, label, signs_OI, signs_OI)
        back_NLGIF = back_QT.unflatten(1, (inputs, -1)).unflatten(0, (count, places, step.groups))
        return _folded(step, back_NLGIF.permute(0, 2, 3, 4, 1).flatten(1, 2))

    def _run_of(self, given: Tensor) -> Tensor:
        """Which of the runs each sample belongs to, int64 `[N]`."""
        lengths = torch.tensor([rows.stop - rows.start for _, rows in self.runs], device=given.device)
        return torch.arange(len(self.runs), device=given.device).repeat_interleave(lengths)

    def _mean(self, step: Pooled, given: Tensor) -> Tensor:
        window = _window(step)
        columns_NCFL = window.columns(self.activity.moved(step.sources[0]))
        terms_RF = columns_NCFL.transpose(2, 3).flatten(0, 2)
        sign_R = given.flatten().sign()
        parts = [_signs(rows, self.theta) for rows in terms_RF.split(_rows(terms_RF))]
        back_RF = torch.cat(parts) * sign_R[:, None]
        count, channels, _, places = columns_NCFL.shape
        return window.folded(back_RF.unflatten(0, (count, channels, places)).transpose(2, 3))

    def _largest(self, step: Pooled, given: Tensor) -> Tensor:
        """Every place that holds its window's largest number gets the window's contribution."""
        window = _window(step)
        columns_NCFL = window.columns(self.activity.values[step.sources[0]], -torch.inf)
        top_NC1L = columns_NCFL.amax(2, keepdim=True)
        return window.folded((columns_NCFL == top_NC1L) * given.reshape(top_NC1L.shape))

    def _terms(self, step: Summed, given: Tensor) -> Sequence[Tensor]:
        terms = [self.activity.moved(source) * sign for source, sign in zip(step.sources, step.signs, strict=True)]
        signs = _signs(torch.stack(terms, -1).flatten(0, -2), self.theta).unflatten(0, given.shape)
        return (signs * given.sign()[..., None]).unbind(-1)


def walk_back(plan: Plan, theta: float, activity: Activity, start_NK: Tensor, runs: Runs, add: Add) -> None:
    """From `start_NK`, the contribution of each sample's logits, back to the first layer."""
    plan.back(start_NK, _Walk(activity, theta, runs, add).through)


def _signs(terms_RT: Tensor, theta: float) -> Tensor:
    """Of each row's terms those that are kept, as +1 where they go the way of the sum, -1 against it, else 0."""
    total_R1 = terms_RT.sum(1, keepdim=True)
    size_RT, order_RT = terms_RT.abs().sort(1, descending=True)
    off_RT = (terms_RT.gather(1, order_RT).cumsum(1) - total_R1).abs()
    near_RT = off_RT <= theta * total_R1.abs()
    near_RT[:, -1] = True  # all terms are the sum, but for rounding
    last_R1 = near_RT.int().argmax(1, keepdim=True)
    least_R1 = size_RT.gather(1, last_R1) * (1 - SLACK)
    some_R1 = total_R1.abs() > NOTHING * size_RT.sum(1, keepdim=True)
    return torch.where((terms_RT.abs() >= least_R1) & some_R1, terms_RT.sign() * total_R1.sign(), 0)


def _columns(step: Weighted, moved: Tensor) -> Tensor:
    """What each output is made of, `[N, in, F, L]`; for a Linear one place, F = L = 1."""
    return moved[:, :, None, None] if step.window is None else step.window.columns(moved)


def _folded(step: Weighted, back_NIFL: Tensor) -> Tensor:
    return back_NIFL[:, :, 0, 0] if step.window is None else step.window.folded(back_NIFL)


def _window(step: Pooled) -> Window:
    assert step.window is not None
    return step.window


def _rows(terms: Tensor) -> int:
    return max(1, HELD.get(terms.device.type, HELD["cpu"]) // terms.shape[1])

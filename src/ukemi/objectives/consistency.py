"""Consistency (Yang et al. 2019): a model should answer alike to an image and to its worst variant.

The loss of a sample is its cross-entropy plus `weight` times a distance R between its two answers:

- `kl`: R = sum over classes of p_clean (log p_clean - log p_worst);
- `l2`: R = sum over classes of (z_clean - z_worst)² / 4 for logits z. With the worst variant picked by its
  cross-entropy, as the augmenters do, this is adversarial logit pairing.

The authors weigh kl with 8 and l2 with 1, and train labels on the clean image (or on both). Our defaults are 1 and
both: on a validation split of CIFAR-10 (ResNet-20, 20 epochs, one seed; `results/choosing.jsonl`) they gave more
accuracy than 3 at the same robust accuracy, and more of both than 8 with clean labels.

Sums run over the classes and means over the samples, here as in the authors' code: there both the cross-entropy and R
are means over the pairs of a batch (64 clean images and their 64 variants), so neither weight hangs on the batch size
and a weight means here what it means there. A quarter of the squared distance is the variance of a pair, summed over
the logits. The authors add 1e-8 to each probability before the logarithm; log-softmax needs no such guard.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from ukemi.errors import UserError
from ukemi.models.separate_norm import SeparateNorm
from ukemi.objectives.base import Objective, ObjectiveConfig, Outcome
from ukemi.schema import Fixed, Number

Kind = Literal["kl", "l2"]
LabelsOn = Literal["worst", "clean", "both"]
Statistics = Literal["shared", "separate-worst", "separate-clean"]


def kl(clean_NK: Tensor, worst_NK: Tensor) -> Tensor:
    """KL(p_clean || p_worst) of the softmax of two sets of logits, `[N]` in nats.

    >>> kl(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0]]))
    tensor([0.])
    """
    return F.kl_div(worst_NK.log_softmax(1), clean_NK.log_softmax(1), reduction="none", log_target=True).sum(1)


def l2(clean_NK: Tensor, worst_NK: Tensor) -> Tensor:
    """A quarter of the squared distance of two sets of logits, `[N]`.

    >>> l2(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]]))
    tensor([6.2500])
    """
    return (clean_NK - worst_NK).square().sum(1) / 4


DISTANCES: dict[Kind, Callable[[Tensor, Tensor], Tensor]] = {"kl": kl, "l2": l2}


class Consistency(Objective):
    """Cross-entropy plus a distance between the answers to the clean image and to its worst variant.

    With shared statistics both halves go through the model as one batch of 2N, and BatchNorm sees their mixture. With
    separate ones they go through it one after the other, and each half has BatchNorm weights and statistics of its own:
    "separate-worst" lets the model keep those of the worst variants, "separate-clean" those of the clean images. The
    other set lies in `extra()`.
    """

    class Config(ObjectiveConfig):
        """Adds a distance between the answers to the clean image and to its worst variant (Yang et al. 2019)."""

        name: Fixed[Literal["consistency"]] = "consistency"
        kind: Kind = "kl"
        """The distance: KL divergence of the probabilities, or a quarter of the squared L2 distance of the logits."""
        weight: Annotated[Number, Field(ge=0)] = 1.0
        """How much the distance counts beside the cross-entropy."""
        labels_on: LabelsOn = "both"
        """Whose cross-entropy is trained: the worst variant's, the clean image's, or the mean of both."""
        statistics: Statistics = "shared"
        """BatchNorm sees both halves at once, or each has its own set and the model keeps the worst or the clean."""
        stop_clean: bool = False
        """Pull the worst variant's answer to the clean image's, but not the other way round."""

        @model_validator(mode="after")
        def _trains_what_is_kept(self) -> "Consistency.Config":
            kept = self.statistics.removeprefix("separate-")
            pulled = self.weight != 0 and not (kept == "clean" and self.stop_clean)
            if kept != "shared" and self.labels_on not in (kept, "both") and not pulled:
                why = "weight 0" if self.weight == 0 else "stop-clean"
                raise UserError(
                    f"{self.place}: labels on {self.labels_on}, {self.statistics} statistics and {why} would leave the"
                    " BatchNorm weights that the model keeps untrained."
                )
            return self

        def build(self, smoothing: float) -> "Consistency":
            return Consistency(smoothing, **self.model_dump(exclude={"name"}))

    wants_clean: ClassVar[bool] = True

    def __init__(
        self,
        smoothing: float = 0.0,
        *,
        kind: Kind = "kl",
        weight: float = 1.0,
        labels_on: LabelsOn = "both",
        statistics: Statistics = "shared",
        stop_clean: bool = False,
    ) -> None:
        Consistency.Config(kind=kind, weight=weight, labels_on=labels_on, statistics=statistics, stop_clean=stop_clean)
        self.smoothing, self.labels_on, self.statistics, self.stop_clean = smoothing, labels_on, statistics, stop_clean
        self.distance, self.weight = DISTANCES[kind], weight
        self._separate: SeparateNorm | None = None

    def attach(self, model: nn.Module) -> None:
        """Makes the second set of BatchNorm weights and statistics, where it is asked for."""
        if self.statistics != "shared":
            self._separate = SeparateNorm(model)

    def extra(self) -> nn.Module | None:
        """The second set of BatchNorm weights and statistics, where there is one."""
        return self._separate

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int, clean: Tensor | None = None
    ) -> Outcome:
        if clean is None or clean.shape != images.shape:
            what = "none" if clean is None else list(clean.shape)
            raise UserError(f"objective: consistency needs clean images of {list(images.shape)}, but got {what}.")
        clean_NK, worst_NK = self._logits(model, _laid_out_as(images, clean), images)
        losses_N = self._cross_entropy(clean_NK, worst_NK, labels)
        if self.weight:
            held_NK = clean_NK.detach() if self.stop_clean else clean_NK
            losses_N = losses_N + self.weight * self.distance(held_NK, worst_NK)
        return Outcome(losses_N, worst_NK)

    def _logits(self, model: nn.Module, clean: Tensor, worst: Tensor) -> tuple[Tensor, Tensor]:
        if self.statistics == "shared":
            clean_NK, worst_NK = model(torch.cat([clean, worst])).float().chunk(2)
            return clean_NK, worst_NK
        if self._separate is None:
            raise UserError("objective: separate statistics need attach(model) before the first batch.")
        # the worst variants first: dropout then draws for them what it would draw without the clean ones
        with self._separate.swapped(self.statistics == "separate-clean"):
            worst_NK = model(worst).float()
        with self._separate.swapped(self.statistics == "separate-worst"):
            clean_NK = model(clean).float()
        return clean_NK, worst_NK

    def _cross_entropy(self, clean_NK: Tensor, worst_NK: Tensor, labels: Tensor) -> Tensor:
        asked = {"worst": [worst_NK], "clean": [clean_NK], "both": [clean_NK, worst_NK]}[self.labels_on]
        parts = [
            F.cross_entropy(logits_NK, labels, reduction="none", label_smoothing=self.smoothing) for logits_NK in asked
        ]
        return parts[0] if len(parts) == 1 else (parts[0] + parts[1]) / 2


def _laid_out_as(images: Tensor, clean: Tensor) -> Tensor:
    """`clean` in the memory format of `images`: of two formats a concatenation keeps neither."""
    last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return clean.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)

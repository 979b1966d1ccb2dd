"""Adversarial training (Goodfellow et al. 2015, Madry et al. 2018; FGSM with a random start: Wong et al. 2020)."""

import inspect
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from ukemi.attacks import ATTACKS
from ukemi.attacks.config import Attack, AttackConfig
from ukemi.attacks.norms import check_radius
from ukemi.data import Data
from ukemi.errors import UserError, field_called
from ukemi.models.inference import home_of
from ukemi.objectives.base import Objective, ObjectiveConfig, Outcome
from ukemi.schema import Fixed, Named, Number, chosen

USUAL = {"epsilon": 8 / 255, "norm": "linf"}
"""What every attack that takes them is told unless something else is."""
TRAINING = {"early": False, "zero_start": False, "random_start": True}
"""What an attack that has these settings is told while training: one random start, and the highest loss it finds."""
_APART = 2**20
"""more epochs than any run has: no two runs share an attack's seed"""


class Adversarial(Objective):
    """Cross-entropy of a batch whose first `ratio` is attacked with the weights about to be updated.

    The augmenter's images are what is attacked. Batches are shuffled, so who is attacked changes from epoch to epoch;
    random starts are a function of (seed, epoch, index).
    """

    class Config(ObjectiveConfig):
        """Trains on what an attack makes of the images (adversarial training)."""

        name: Fixed[Literal["adversarial"]] = "adversarial"
        attack: Named = "pgd"
        """fgsm (with a random start, the fast variant), bim, pgd, any other attack, or package.module:function."""
        epsilon: Annotated[Number, Field(ge=0)] = 8 / 255
        """The attack's budget, in pixels of 0..1, where it has one."""
        norm: Literal["l1", "l2", "linf"] = "linf"
        """The distance that it bounds or makes small, where there is a choice."""
        steps: int | None = Field(None, ge=1)
        """Steps of an iterative attack; default: 10."""
        step_size: Annotated[Number, Field(gt=0)] | None = None
        """Length of a step; default: the attack's own."""
        ratio: Annotated[Number, Field(gt=0, le=1)] = 1.0
        """Share of each batch that is attacked; at least one image is."""

        @model_validator(mode="after")
        def _fits(self) -> "Adversarial.Config":
            self.attacks()
            if self.norm == "linf":  # the other limits depend on the images
                self.check(())
            return self

        def check(self, image_shape: tuple[int, ...]) -> None:
            check_radius(self.epsilon, self.norm, image_shape, "objective.epsilon")

        def attacks(self) -> Attack:
            function = chosen(self.attack, ATTACKS, "objective.attack")
            takes = inspect.signature(function).parameters
            anything = any(each.kind is each.VAR_KEYWORD for each in takes.values())
            steps = self.steps or (10 if "steps" in takes else None)
            told = {"epsilon": self.epsilon, "norm": self.norm, "steps": steps, "step_size": self.step_size}
            # a default that an attack has no use for is none of its settings
            idle = {name for name, usual in USUAL.items() if name not in takes and told[name] == usual and not anything}
            told = {name: value for name, value in told.items() if name not in idle}
            try:
                return AttackConfig(attack=self.attack, **told).made()
            except UserError as error:  # it names its own field
                raise UserError(f"objective.{error}") from None

        def build(self, smoothing: float) -> "Adversarial":
            return Adversarial(self.attacks(), smoothing, ratio=self.ratio)

    mixes: ClassVar[bool] = True

    def __init__(self, attack: Attack, smoothing: float = 0.0, *, ratio: float = 1.0) -> None:
        self.attack, self.smoothing, self.ratio = attack, smoothing, ratio
        takes = inspect.signature(attack).parameters
        self._options = {name: value for name, value in TRAINING.items() if name in takes}
        self._seeded, self._seed = "seed" in takes, 0

    def plan(self, seed: int, epoch: int, steps: int) -> list[int]:
        self._seed = seed
        return super().plan(seed, epoch, steps)

    def rehearse(self, model: nn.Module, data: Data) -> None:
        """The attack on two images, in evaluation mode: nothing of the training is touched."""
        batch = data.batch(torch.arange(min(2, len(data))), home_of(model))
        with field_called("objective.norm", "norm"):
            self.attack(model, batch.images, batch.labels, index=batch.index, **self._told(0))

    def _told(self, epoch: int) -> dict[str, Any]:
        return {**self._options, **({"seed": self._seed * _APART + epoch} if self._seeded else {})}

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int, clean: Tensor | None = None
    ) -> Outcome:
        count = max(1, round(self.ratio * len(images)))
        found = self.attack(model, images[:count], labels[:count], index=index[:count], **self._told(epoch))
        images = torch.cat([found.images.detach().to(images.dtype), images[count:]])
        logits_NK = model(images).float()
        return Outcome(F.cross_entropy(logits_NK, labels, reduction="none", label_smoothing=self.smoothing), logits_NK)

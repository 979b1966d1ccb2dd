"""What a training costs in passes, found by trying a few images: so that methods can be given the same budget."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ukemi.comparing.plan import Plan, Planned
from ukemi.data import Data
from ukemi.repairs.retraining import DRAWS
from ukemi.training import TrainConfig
from ukemi.training.setup import load_sets, make_model

FEW = 16
"""images that are tried"""
RETRAINED = 5
"""epochs of adversarial retraining (SENSEI, Exp-3)"""


@dataclass(frozen=True)
class Cost:
    """What a training takes per image."""

    scoring: tuple[float, ...]
    """scoring passes of each epoch; later epochs take what the last one does"""
    forwards: float
    """of a training step"""
    backwards: float
    after: float = 0.0
    """passes of a repair that follows, at most"""

    def until(self, epochs: int) -> float:
        """Forward and backward passes per image of so many epochs, and of what follows."""
        scored = sum(self.scoring[min(at, len(self.scoring) - 1)] for at in range(epochs))
        return scored + epochs * (self.forwards + self.backwards) + self.after

    def epochs_for(self, budget: float) -> int:
        """How many epochs come nearest to a budget of passes per image; at least one."""
        many = 1
        while self.until(many + 1) <= budget:
            many += 1
        return many + (self.until(many + 1) - budget < budget - self.until(many))


def cost_of(one: Planned, data: Data) -> Cost:
    """Tries the augmenter and the objective on a few images, epoch by epoch until nothing new is to be expected.

    Scoring passes are those that the augmenter counts. A pass of the objective's counts as forward and backward where
    gradients are on. Robust samples that a trained model would let a search skip are not skipped here.
    """
    config, rows = one.config, torch.arange(min(FEW, len(data)))
    few = replace(data.take(rows), index=rows, identities=len(rows))
    model = make_model(config, few, data.classes, None)
    objective = config.objective.build(config.smoothing)
    objective.attach(model)
    augmenter = config.augmenter.build(config.chosen_space(), config.seed, config.flips)
    batch, scoring, step = few.batch(rows, "cpu"), [], [0.0, 0.0]
    for epoch in range(getattr(config.augmenter, "warmup", 0) + 2):
        before = augmenter.forwards
        augmenter.begin_epoch(model, few, epoch)
        augmenter.planned = augmenter.plan([few.index])[0]
        objective.kind = objective.plan(config.seed, epoch, 1)[0]
        images = augmenter(model, batch.images, batch.labels, batch.index, epoch)
        model.train()
        with _counted(model, objective.teacher) as counts:
            clean = batch.images if objective.wants_clean else None
            objective(model, images, batch.labels, batch.index, epoch, clean)
        step = [count / len(rows) for count in counts]
        alone = objective.mixes and augmenter.observes  # the loop looks at such images once more, unmixed
        scoring.append((augmenter.forwards - before) / len(rows) + alone)
    if one.then is None:
        return Cost(tuple(scoring), step[0], step[1])
    # every image, and at most one variant of each that fools, forwards and backwards
    return Cost(tuple(passes + DRAWS for passes in scoring), step[0], step[1], after=2 * 2 * RETRAINED)


@contextmanager
def _counted(*networks: nn.Module | None) -> Iterator[list[int]]:
    counts = [0, 0]

    def count(_: nn.Module, given: tuple[Any, ...], __: Any) -> None:
        counts[0] += len(given[0])
        counts[1] += len(given[0]) * torch.is_grad_enabled()

    hooks = [network.register_forward_hook(count) for network in networks if network is not None]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()


def equalised(plan: Plan, said: Callable[[str], None] = lambda text: None) -> Plan:
    """The same plan with epochs changed, so that within a case every method has the passes of the dearest one."""
    costs: dict[tuple[str, str], Cost] = {}
    for one in plan.planned:
        if (one.case, one.method) not in costs:
            said(f"{one.case}, {one.method}: passes are counted")
            costs[one.case, one.method] = cost_of(one, load_sets(one.config).train)
    budgets: dict[str, float] = {}
    for one in plan.planned:
        spent = costs[one.case, one.method].until(one.config.epochs)
        budgets[one.case] = max(budgets.get(one.case, 0.0), spent)
    changed = [_with_epochs(one, costs[one.case, one.method].epochs_for(budgets[one.case])) for one in plan.planned]
    return replace(plan, planned=tuple(changed))


def _with_epochs(one: Planned, epochs: int) -> Planned:
    """Named drops of a step schedule keep their share of the training."""
    drops = tuple(round(drop * epochs / one.config.epochs) for drop in one.config.drops)
    values = {name: getattr(one.config, name) for name in one.config.model_fields_set}
    return replace(one, config=TrainConfig(**{**values, "epochs": epochs, "drops": drops}))

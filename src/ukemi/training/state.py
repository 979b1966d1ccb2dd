"""All that changes while training, and how it gets into a checkpoint and out of one.

A checkpoint does not depend on the number of ranks: what each of them counted is added up, and what each of them found
is merged, before the first one writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.augmenters import Augmenter
from ukemi.errors import UserError
from ukemi.models.inference import home_of
from ukemi.objectives import Objective, Outcome
from ukemi.ranks import Ranks
from ukemi.training.average import Average
from ukemi.training.checkpoints import Checkpoint, checkpoint_path, forget_old, write_checkpoint
from ukemi.training.display import Display
from ukemi.training.guard import Guard, TrainingStopped
from ukemi.training.run import Run
from ukemi.training.setup import load_model
from ukemi.training.spent import Spent

SUMS = ("loss", "right", "seen")


@dataclass
class State:
    """All that changes while training. Sums and passes are those of this rank."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    augmenter: Augmenter
    objective: Objective
    guard: Guard
    rate: Tensor
    """the learning rate, where the optimiser reads it on the device"""
    sums: dict[str, Tensor]
    """loss, right answers, images and genes of the epoch so far, float64 on the device"""
    classes: tuple[str, ...]
    """the names of the labels; they belong to the weights"""
    average: Average
    ranks: Ranks = field(default_factory=Ranks)
    parallel: Callable[..., Outcome] | None = None
    """the objective of the model with gradients from all ranks; None in a world of one"""
    epoch: int = 0
    step: int = 0
    """the next step of this epoch"""
    whole: int = 0
    """rows of the batch at hand, those of all ranks"""
    absent: bool = False
    """whether none of them is this rank's"""
    searched: bool = False
    """whether the augmenter is done with this step"""
    exhausted: bool = False
    """whether memory ran out in this step"""
    unmerged: list[Tensor] = field(default_factory=list)
    """identities of the batches since the last merge, those of all ranks"""
    scored: int = 0
    """scoring passes so far, counted in images"""
    spared: int = 0
    """scoring passes that skipping robust samples saved so far"""
    pass_seconds: float = 0.0
    """what a scoring pass takes per image; timed once, where skipping saves some"""
    spent: Spent = field(default_factory=Spent)
    seconds: float = 0.0
    clock: float = field(default_factory=monotonic)

    def elapsed(self) -> float:
        return self.seconds + monotonic() - self.clock

    def totals(self) -> tuple[dict[str, Tensor], int, int]:
        """Sums, scoring passes and saved ones of all ranks."""
        counts = torch.tensor([self.scored, self.spared], dtype=torch.int64)
        scored, spared = self.ranks.total(counts).tolist()
        return {name: self.ranks.total(value) for name, value in self.sums.items()}, scored, spared

    def merge(self) -> None:
        """Everyone learns what each rank's search found."""
        if self.unmerged and not self.ranks.alone:
            parts = zip(*map(self.ranks.parts, self.unmerged), strict=True)
            self.augmenter.merge([torch.cat(theirs) for theirs in parts])
        self.unmerged.clear()

    def clear_sums(self) -> None:
        for total in self.sums.values():
            total.zero_()

    def keep_counts_of_first(self) -> None:
        """What a checkpoint holds was counted by all ranks; the first goes on from it, the others from 0."""
        if not self.ranks.first:
            self.scored = self.spared = 0
            self.clear_sums()


def save(run: Run, state: State) -> None:
    """Writes a checkpoint; every rank calls it, the first one writes and the others wait."""
    state.merge()
    sums, scored, spared = state.totals()
    tensors = {f"model.{name}": tensor for name, tensor in state.model.state_dict().items()}
    for number, kept in state.optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{name}": value for name, value in kept.items() if value is not None}
    tensors |= {f"augmenter.{name}": tensor for name, tensor in state.augmenter.state_dict().items()}
    tensors |= {f"sums.{name}": tensor for name, tensor in sums.items()}
    tensors |= {f"average.{name}": tensor for name, tensor in state.average.tensors.items()}
    extra = state.objective.extra()
    tensors |= {} if extra is None else {f"objective.{name}": tensor for name, tensor in extra.state_dict().items()}
    kept = [tensor for name, tensor in tensors.items() if name.startswith(("model.", "objective."))]
    if not all(bool(tensor.isfinite().all()) for tensor in kept):
        raise TrainingStopped(f"the weights after epoch {state.epoch}, step {state.step} are not finite; not saved.")
    values: dict[str, Any] = {"epoch": state.epoch, "step": state.step, "classes": state.classes}
    values |= {"log_bytes": run.log_length(), "seconds": state.elapsed(), "scoring_forwards": scored}
    values |= {"scoring_forwards_saved": spared}
    with state.ranks.together():
        if state.ranks.first:
            write_checkpoint(checkpoint_path(run.checkpoints, state.epoch, state.step), tensors, values)
            forget_old(run.checkpoints)


def resume(run: Run, state: State, display: Display) -> None:
    """Takes up the newest whole checkpoint; where there is none yet, the run starts anew."""
    with state.ranks.together():
        checkpoint, refused = run.last_checkpoint()
        if checkpoint is None:
            if refused:
                raise UserError(f"resume: {run.folder} holds no whole checkpoint: {refused[-1][1]}")
            if run.weights_path.exists():  # a repair wrote them, or the checkpoints were cleared away
                raise UserError(f"resume: {run.folder} holds weights, but no checkpoint to go on from.")
        else:
            for _, sentence in refused:
                display.note(f"{sentence} The one before it is used.")
            _take(run, state, checkpoint)
            display.at(state.epoch)
    where = f"epoch {state.epoch}, step {state.step}"
    state.ranks.same("resume", where, f"all ranks need the same folder {run.folder}")
    if state.ranks.first:
        run.cut_log(0 if checkpoint is None else checkpoint.values["log_bytes"])
        for path, _ in refused:  # out of the way of the last two that are kept
            path.rename(path.with_suffix(".damaged"))


def _take(run: Run, state: State, checkpoint: Checkpoint) -> None:
    load_model(state.model, checkpoint, run.checkpoints)
    _load_optimiser(state.optimiser, checkpoint.part("optimiser"))
    device = home_of(state.model)
    state.augmenter.load_state_dict({name: tensor.to(device) for name, tensor in checkpoint.part("augmenter").items()})
    for name, tensor in checkpoint.part("sums").items():
        state.sums[name].copy_(tensor)
    for name, tensor in checkpoint.part("average").items():
        state.average.tensors[name].copy_(tensor)
    extra = state.objective.extra()
    if extra is not None:
        extra.load_state_dict(checkpoint.part("objective"))
    state.epoch, state.step = checkpoint.values["epoch"], checkpoint.values["step"]
    state.seconds, state.clock = checkpoint.values["seconds"], monotonic()
    state.scored = checkpoint.values["scoring_forwards"]
    state.spared = checkpoint.values.get("scoring_forwards_saved", 0)
    state.spent.scored = state.scored
    state.keep_counts_of_first()


def _load_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    stored: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        stored.setdefault(int(number), {})[name] = _laid_out_as(weights[int(number)], tensor)
    groups = optimiser.state_dict()["param_groups"]
    rates = [group["lr"] for group in optimiser.param_groups]
    optimiser.load_state_dict({"state": stored, "param_groups": groups})
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate  # the very tensor, not the copy that loading makes


def _laid_out_as(weight: Tensor, tensor: Tensor) -> Tensor:
    """The same numbers in the weight's memory layout (channels-last): a step over two layouts rounds otherwise."""
    if tensor.shape != weight.shape:
        return tensor
    return torch.empty_like(weight, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

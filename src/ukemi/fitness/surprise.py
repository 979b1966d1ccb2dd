"""Surprise adequacy as fitness (Kim, Feldt, Yoo 2019): how unlike the training data of its class a variant looks.

A trace is the mean over space of each unit of the last recorded layer, the one that the classifier reads: one number
per channel keeps densities of a few hundred traces meaningful.
"""

from dataclasses import fields
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from ukemi import randomness
from ukemi.activations import (
    Densities,
    Neighbours,
    densities,
    distance_surprise,
    likelihood_surprise,
    neighbours,
    over_data,
    unit_mean,
)
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.fitness.base import Scored
from ukemi.fitness.learning import Learning, at_least_one
from ukemi.randomness import Stream

Record = TypeVar("Record", Densities, Neighbours)


def _tensors(record: Densities | Neighbours) -> dict[str, Tensor]:
    """Its fields under names of their own, so that they can be kept and updated in place."""
    return {f"{type(record).__name__}.{field.name}": getattr(record, field.name) for field in fields(record)}


def _record(kind: type[Record], known: dict[str, Tensor]) -> Record:
    return kind(**{field.name: known[f"{kind.__name__}.{field.name}"] for field in fields(kind)})


class Surprise(Learning):
    """Keeps the traces of at most `most` clean training images, the same number of each class, drawn by `seed` once
    and for all and passed through the network every `every` epochs."""

    stored: ClassVar[tuple[str, ...]] = ("traces", "labels", "classes")
    last: ClassVar[bool] = True

    def __init__(self, every: int = 5, most: int = 2000, *, seed: int = 0) -> None:
        super().__init__(every)
        self.most, self.seed = at_least_one("most", most), seed

    def kept(self, output: Tensor) -> Tensor:
        return unit_mean(output).clone()

    def check(self, model: nn.Module, data: Data) -> None:
        super().check(model, data)
        _share(data, self.most)

    def learn(self, model: nn.Module, data: Data) -> dict[str, Tensor]:
        positions = chosen(data, self.most, self.seed)
        found = [(means[-1], batch.labels) for batch, means in over_data(model, data, unit_mean, positions, last=True)]
        traces_TD, labels_T = (torch.cat(parts) for parts in zip(*found, strict=True))
        if not traces_TD.isfinite().all():
            raise UserError("fitness: the network's outputs for the clean training images are not finite.")
        self.forwards += len(positions)
        classes = torch.tensor(len(data.classes), device=traces_TD.device)
        return {"traces": traces_TD, "labels": labels_T, "classes": classes}

    def compared(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        """The variants' traces `[M, D]`, and what was learnt."""
        known = self.known(scored)
        return self.fitting(unit_mean(scored.outputs[-1]), known["traces"].shape[1]), known


def chosen(data: Data, most: int, seed: int) -> Tensor:
    """Positions of at most `most` samples, at most equally many of each class; a function of identities and seed."""
    share = _share(data, most)
    labels_N = data.labels.cpu()
    order = randomness.bits(data.index.cpu(), seed=seed, stream=Stream.SUBSET).argsort(stable=True)
    order = order[labels_N[order].argsort(stable=True)]
    counts_K = torch.bincount(labels_N, minlength=len(data.classes))
    first_K = counts_K.cumsum(0) - counts_K
    place_N = torch.arange(len(order)) - first_K[labels_N[order]]
    return order[place_N < share].sort().values


def _share(data: Data, most: int) -> int:
    """How many samples of each class are drawn."""
    share = most // len(data.classes)
    if share < 2:
        raise UserError(
            f"fitness.most: {most} samples are less than two for each of {len(data.classes)} classes; give more."
        )
    return share


class LikelihoodSurprise(Surprise):
    """`-log` of the density of the training traces of the variant's class (LSA).

    Of a layer with more than `units` units those whose traces vary most are used: the covariance of a class has
    units² numbers, and more units than traces say little. Those of too low variance within a class are left out.
    """

    def __init__(self, every: int = 5, most: int = 2000, *, units: int = 256, seed: int = 0) -> None:
        super().__init__(every, most, seed=seed)
        self.units = at_least_one("units", units)

    def derived(self, learnt: dict[str, Tensor]) -> dict[str, Tensor]:
        traces_TD = learnt["traces"]
        order_D = traces_TD.double().var(0, unbiased=False).argsort(descending=True, stable=True)
        units_D = order_D[: self.units].sort().values
        kde = densities(traces_TD[:, units_D], learnt["labels"], int(learnt["classes"]))
        return {"units": units_D, **_tensors(kde)}

    def __call__(self, scored: Scored) -> Tensor:
        traces_MU, known = self.compared(scored)
        return likelihood_surprise(traces_MU.index_select(1, known["units"]), scored.labels, _record(Densities, known))


class DistanceSurprise(Surprise):
    """The distance to the nearest training trace of the variant's class, as a share of the distance from there to the
    nearest one of another class (DSA): above 1 the variant has left its class."""

    def derived(self, learnt: dict[str, Tensor]) -> dict[str, Tensor]:
        return _tensors(neighbours(learnt["traces"], learnt["labels"], int(learnt["classes"])))

    def __call__(self, scored: Scored) -> Tensor:
        traces_MD, known = self.compared(scored)
        return distance_surprise(traces_MD, scored.labels, _record(Neighbours, known))

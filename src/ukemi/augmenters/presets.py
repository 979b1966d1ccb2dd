"""The settings of the SENSEI family, and its members by name."""

from math import ceil
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator

from ukemi.augmenters.base import Augmenter, AugmenterConfig
from ukemi.errors import UserError
from ukemi.fitness import fitness_of
from ukemi.genetics import (
    CROSSOVERS,
    MUTATIONS,
    SELECTIONS,
    Breeding,
    First,
    Invalid,
    Parents,
    first_population,
    roulette,
    tournament,
)
from ukemi.schema import Fixed, Named, Number, chosen
from ukemi.spaces import Space


class SenseiSettings(AugmenterConfig):
    """Searches each sample's worst variant with a genetic algorithm that goes on over the epochs."""

    population: int = Field(10, ge=2, le=10_000)
    """Variants scored per sample and epoch."""
    crossover: Annotated[Number, Field(ge=0, le=1)] = 0.4
    """How often a child comes from two parents; else one parent is mutated."""
    crossing: Named = "one-point"
    """How two parents mix: one-point (the paper), one-point-or-none (AUGMENTATION), uniform (the released code), or
    package.module:function."""
    mutation: Named = "redraw"
    """How one parent changes: redraw (the paper), step (the released code), or package.module:function."""
    edge: Annotated[Number, Field(ge=0, le=1)] = 0.0
    """How often a gene drawn anew lies at an end of its range, where models fail."""
    parents: Parents = "random"
    """Two different parents drawn evenly, or the fittest and the one most different from it (the released code)."""
    invalid: Invalid = "redraw"
    """A child outside the ranges is drawn again (the paper) or clipped (the released code)."""
    compete: bool = False
    """Parents are scored again and compete with fewer, new children; else children replace parents (the paper)."""
    selection: Named = "elitism"
    """Who lives on: elitism (SENSEI), roulette (SENSEI-RW), tournament (SENSEI-T), or package.module:function."""
    keep: Annotated[Number, Field(gt=0, le=1)] = 0.4
    """Share of the population that lives on; roulette and tournament draw as many as the population instead."""
    first: First = "random"
    """The first population: random, or dealt from a grid (the released code)."""
    identity: bool = False
    """Put the unchanged image into the first population."""
    warmup: int = Field(1, ge=0)
    """Epochs before the search begins."""
    warmup_on: Literal["clean", "random"] = "clean"
    """What those epochs train on: the images as they are (the papers), or a random variant of each."""
    fitness: Named = "cross-entropy"
    """What is searched for: cross-entropy, margin, kl, neuron-coverage, … (see `ukemi augmenters`), or
    package.module:name."""
    when: Literal["batch", "epoch"] = "batch"
    """Search right before each step, or for all samples before the epoch (as the AUGMENTATION paper did)."""
    skip: Literal["never", "loss", "classification"] = "never"
    """Skip the search of robust samples (SENSEI-SA): by the loss of all their variants, or by all being right."""
    threshold: Annotated[Number, Field(gt=0)] = 1e-3
    """A loss up to this is robust, where samples are skipped by loss."""
    skipped: Literal["worst", "clean", "random"] = "worst"
    """What a skipped sample is trained on: its last worst variant, itself, or a random variant."""
    coin: Literal["child", "batch"] = "child"
    """Crossover or mutation is decided per child, or once per batch (the released code)."""
    cap: int = Field(0, ge=0)
    """Once more than this many samples of a class are mistaken for another one in an epoch, the second-worst is trained
    (the released code: 1000); 0 never."""

    @model_validator(mode="after")
    def _known(self) -> "SenseiSettings":
        self.breeding()
        chosen(self.selection, SELECTIONS, "augmenter.selection")
        fitness_of(self.fitness)
        if self.compete and self.survivors() >= self.population:
            raise UserError(
                f"augmenter.compete: {self.survivors()} of {self.population} live on, which leaves no room for"
                " children; elitism with a smaller keep does."
            )
        return self

    def survivors(self) -> int:
        """Roulette and tournament draw as many as the population; elitism and anyone's own keep a share of it."""
        select = chosen(self.selection, SELECTIONS, "augmenter.selection")
        return self.population if select in (roulette, tournament) else max(1, ceil(self.keep * self.population - 1e-9))

    def breeding(self) -> Breeding:
        return Breeding(
            rate=self.crossover,
            crossover=chosen(self.crossing, CROSSOVERS, "augmenter.crossing"),
            mutation=chosen(self.mutation, MUTATIONS, "augmenter.mutation"),
            edge=self.edge,
            parents=self.parents,
            invalid=self.invalid,
            apart=self.compete,
        )

    def build(self, space: Space, seed: int, flips: bool) -> Augmenter:
        from ukemi.augmenters.sensei import Sensei  # it is made from these settings

        # dealt to nobody: too many cards, or a space without the identity, are refused before a run is written
        first_population(torch.arange(0), self.population, space, seed=seed, first=self.first, identity=self.identity)
        return Sensei(space, seed=seed, flips=flips, settings=self)


class SenseiConfig(SenseiSettings):
    """Trains on the worst variant that a genetic search per sample finds, over the epochs (SENSEI, Algorithms 2, 3)."""

    name: Fixed[Literal["sensei"]] = "sensei"


class SenseiSAConfig(SenseiSettings):
    """SENSEI that skips the search of samples for as long as they are robust (SENSEI-SA)."""

    name: Fixed[Literal["sensei-sa"]] = "sensei-sa"
    skip: Literal["never", "loss", "classification"] = "loss"
    """Skip the search of robust samples: by the loss of all their variants, or by all being right."""


class SenseiRWConfig(SenseiSettings):
    """SENSEI with survivors drawn by a roulette wheel (SENSEI-RW)."""

    name: Fixed[Literal["sensei-rw"]] = "sensei-rw"
    selection: Named = "roulette"
    """Who lives on: elitism, roulette, tournament, or package.module:function."""


class SenseiTConfig(SenseiSettings):
    """SENSEI with survivors that won a tournament of five (SENSEI-T)."""

    name: Fixed[Literal["sensei-t"]] = "sensei-t"
    selection: Named = "tournament"
    """Who lives on: elitism, roulette, tournament, or package.module:function."""


class AugmentationConfig(SenseiSettings):
    """SENSEI as the AUGMENTATION paper did it: all samples are searched before the epoch; a cut may take no gene."""

    name: Fixed[Literal["augmentation"]] = "augmentation"
    crossing: Named = "one-point-or-none"
    """How two parents mix: one-point, one-point-or-none, uniform, or package.module:function."""
    when: Literal["batch", "epoch"] = "epoch"
    """Search for all samples before the epoch, or right before each step."""


class SenseiReleasedConfig(SenseiSettings):
    """The search of SENSEI's released code, which differs from its paper and depends on the order of the batches."""

    name: Fixed[Literal["sensei-released"]] = "sensei-released"
    crossing: Named = "uniform"
    """How two parents mix: one-point, one-point-or-none, uniform, or package.module:function."""
    mutation: Named = "step"
    """How one parent changes: redraw, step, or package.module:function."""
    parents: Parents = "fittest"
    """The fittest and the one most different from it, or two different ones drawn evenly."""
    invalid: Invalid = "clip"
    """A child outside the ranges is clipped or drawn again."""
    compete: bool = True
    """Parents are scored again and compete with fewer, new children; else children replace parents."""
    first: First = "grid"
    """The first population: dealt from a grid, or random."""
    identity: bool = True
    """Put the unchanged image into the first population."""
    warmup: int = Field(0, ge=0)
    """Epochs before the search begins."""
    fitness: Named = "binary-cross-entropy"
    """What is searched for: summed binary cross-entropy here; any of `ukemi augmenters` or package.module:name."""
    coin: Literal["child", "batch"] = "batch"
    """Crossover or mutation is decided once per batch, or per child."""
    cap: int = Field(1000, ge=0)
    """Once more than this many samples of a class are mistaken for another in an epoch, the second-worst is trained."""


class UkemiConfig(SenseiSettings):
    """Our own: parents compete with new children only, new genes often lie at the ends of their ranges, and the loss is
    `consistency` unless another objective is named."""

    objective: ClassVar[str] = "consistency"
    name: Fixed[Literal["ukemi"]] = "ukemi"
    compete: bool = True
    """Parents are scored again and compete with fewer, new children; else children replace parents."""
    edge: Annotated[Number, Field(ge=0, le=1)] = 0.3
    """How often a gene drawn anew lies at an end of its range, where models fail."""


PRESETS: dict[str, type[SenseiSettings]] = {
    "sensei": SenseiConfig,
    "sensei-sa": SenseiSAConfig,
    "sensei-rw": SenseiRWConfig,
    "sensei-t": SenseiTConfig,
    "sensei-released": SenseiReleasedConfig,
    "augmentation": AugmentationConfig,
    "ukemi": UkemiConfig,
}
"""The SENSEI family by name."""

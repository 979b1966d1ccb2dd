"""`ukemi generate`."""

from pathlib import Path
from time import monotonic
from typing import Literal

from pydantic import Field
from rich.console import Console

from ukemi import reports
from ukemi.cli.bars import bar
from ukemi.cli.parse import parse
from ukemi.cli.uncertain import (
    UncertainConfig,
    asked_on_ranks,
    check_uncertain,
    finds_thresholds,
    recognised,
    shown,
    thresholds_of,
)
from ukemi.errors import UserError
from ukemi.models.inference import home_of
from ukemi.ranks import is_first
from ukemi.reports.generation import SET, numbers_of
from ukemi.spaces import space_of
from ukemi.training.checkpoints import check_folder
from ukemi.training.sets import generated_set, write_set
from ukemi.uncertainty import SearchSettings, Target, generate, natural
from ukemi.uncertainty.generation import PixelMaker
from ukemi.uncertainty.patterns import number_of
from ukemi.uncertainty.targets import Goal

PIXELS_ONLY = ("tournament", "exchange", "mutation", "grains", "climbers")
"""settings that the natural generator has no use for"""


class GenerateConfig(SearchSettings, UncertainConfig):
    """Searches for inputs of a pattern of uncertainty that nobody tested: noise within an Linf ball, or natural
    variations, evolved from images that the model recognises; writes a set, generation.json and a page.

    `ukemi generate RUN --pattern HH --goal misclassified` takes a run folder of `ukemi train`; --model, --weights and
    --data work as in `ukemi evaluate`. Success is counted under dropout masks that the search never saw.
    """

    pattern: str = "HH"
    """Low or high PCS, then low or high VR: LL, LH, HL, HH."""
    goal: Goal = "misclassified"
    """Whether the input is to be misclassified, or its label kept."""
    generator: Literal["pixels", "natural"] = "pixels"
    """What is evolved: noise on pixels, or the genes of --space."""
    space: str = "t3"
    """Of the natural generator: t2, t3, t6, or package.module:SPACE."""
    images: int = Field(100, ge=1)
    """Start from at most this many images, a fixed choice by the seed; those that the model gets wrong are left out."""
    gallery: int = Field(12, ge=0)
    """How many inputs the page shows."""
    out: Path | None = None
    """Where to write; default: RUN/generated/PATTERN-GOAL, or ./generated/PATTERN-GOAL; of another part than test with
    -SPLIT behind it."""


def run(arguments: list[str]) -> int:
    config = parse(GenerateConfig, arguments, "generate")
    _check(config)
    began = monotonic()
    settings = SearchSettings.taken_from(config)
    maker = natural(space_of(config.space)) if config.generator == "natural" else PixelMaker
    with asked_on_ranks(config, config.images) as found:
        seeds = recognised(found)
        thresholds, found_by = thresholds_of(config, found)
        target = Target(config.pattern, config.goal, thresholds, config.confidence, config.against)
        told = {"maker": maker, "seed": config.seed, "ranks": found.ranks}
        with bar("seeds", len(seeds)) as report:
            made = generate(found.source, seeds, target, settings, report=report, **told)  # type: ignore[arg-type]
    if not found.ranks.first:
        return 0
    own = {name: value for name, value in shown(config, found).items() if name not in _unused(config)}
    out = _out(config)
    kept = generated_set(
        found.model, seeds, made, numbers_of(made), own, data=str(found.named["data"]), split=config.split,
        seed=config.seed,
    )  # fmt: skip
    write_set(out / SET, kept)
    seen = reports.GenerationReport(
        title=str(config.run or config.model),
        found=made,
        seeds=seeds,
        found_by=found_by,
        settings={**found.named, **own},
        device=str(home_of(found.model)),
        seconds=monotonic() - began,
        gallery=config.gallery,
        seed=config.seed,
    )
    reports.write_generation(out, seen)
    console = Console(highlight=False, markup=False)
    console.print(reports.generation_table(made))
    console.print(
        f"set:     {out / SET}\nnumbers: {out / 'generation.json'}\npage:    {out / 'page.html'}", soft_wrap=True
    )
    return 0


def _out(config: GenerateConfig) -> Path:
    part = "" if config.split == "test" else f"-{config.split}"
    return config.out or config.folder / "generated" / f"{config.pattern.upper()}-{config.goal}{part}"


def _check(config: GenerateConfig) -> None:
    """What can be known to be wrong before anything is measured."""
    check_uncertain(config, "generate")
    number_of(config.pattern)
    if config.generator == "natural":
        space_of(config.space)
        for name in PIXELS_ONLY:
            if getattr(config, name) != _usual(name):
                raise UserError(
                    f"{name}: it belongs to --generator pixels; natural variations are bred as SENSEI's are."
                )
        if config.epsilon != _usual("epsilon") and not finds_thresholds(config):
            raise UserError(
                "epsilon: natural variations have no budget, and with given thresholds no attack needs one."
            )
    elif config.space != _usual("space"):
        raise UserError(f"space: it belongs to --generator natural, but the generator is {config.generator}.")
    if is_first():
        check_folder(_out(config))


def _unused(config: GenerateConfig) -> set[str]:
    """Settings that take no part in this search."""
    unused = {"space"} if config.generator == "pixels" else {*PIXELS_ONLY}
    if not finds_thresholds(config):
        unused |= {"attacks", "validation_images"} | ({"epsilon"} if config.generator == "natural" else set())
    return unused


def _usual(name: str) -> object:
    return GenerateConfig.model_fields[name].default

"""`ukemi uncertainty`."""

from pathlib import Path
from time import monotonic
from typing import Literal

from pydantic import Field
from rich.console import Console

from ukemi import reports
from ukemi.cli.bars import bar
from ukemi.cli.parse import parse
from ukemi.cli.uncertain import (
    Asked,
    UncertainConfig,
    asked_on_ranks,
    attacked,
    attacks_of,
    check_uncertain,
    finds_thresholds,
    kept_of,
    set_name,
    shown,
    thresholds_of,
)
from ukemi.data import Data
from ukemi.errors import field_called
from ukemi.measures.uncertainty import BENIGN, natural_variants, profile
from ukemi.models.inference import home_of
from ukemi.ranks import is_first
from ukemi.spaces import space_of
from ukemi.training.checkpoints import check_folder
from ukemi.training.sets import AdversarialSet, check_once, fuzzed_set, read_set_for, weights_hash, write_set
from ukemi.uncertainty import GUIDES, fuzz
from ukemi.uncertainty.fuzzing import Guide


class UncertaintyConfig(UncertainConfig):
    """Profiles what a classifier does not know: PCS, VR, PE and MI of benign, varied, attacked and fuzzed images, the
    four patterns of low and high PCS and VR, which metric tells attacked images best, and the calibration error; writes
    tables, uncertainty.json and a page.

    `ukemi uncertainty RUN` takes a run folder of `ukemi train`; --model, --weights and --data work as in `ukemi
    evaluate`. Thresholds are found on validation images, never on those that are profiled.
    """

    images: int = Field(500, ge=1)
    """Profile at most this many images, a fixed choice by the seed."""
    variants: str | None = "t3"
    """Also one random natural variant of every image, from this space (None leaves it out)."""
    fuzzers: tuple[Literal["deephunter", "tensorfuzz"], ...] = ("deephunter", "tensorfuzz")
    """Also what these fuzzers turn from right to wrong (none named: no fuzzer)."""
    keep_fuzzed: bool = False
    """Save all that the fuzzers kept, as sets beside the page: FUZZER.safetensors."""
    sets: tuple[Path, ...] = ()
    """Also these saved sets of `ukemi attack` or `ukemi generate`, what succeeded in them."""
    gallery: int = Field(3, ge=0)
    """Pictures per pattern and source."""
    out: Path | None = None
    """Where to write; default: RUN/uncertainty, or ./uncertainty."""


def run(arguments: list[str]) -> int:
    config = parse(UncertaintyConfig, arguments, "uncertainty")
    saved = _check(config)
    began = monotonic()
    with asked_on_ranks(config, config.images, apart=finds_thresholds(config)) as found:
        kept = kept_of(saved, found)  # before the long work: they may be another model's
        guides = _guides(config, found)
        thresholds, found_by = thresholds_of(config, found)
        groups = _groups(config, found, kept, guides)
        with bar("passes", sum(map(len, groups.values()))) as report:
            profiled = profile(
                found.source,
                groups,
                thresholds,
                confidence=config.confidence,
                against=config.against,
                turned={*attacks_of(config), *config.fuzzers},
                report=report,
                ranks=found.ranks,
            )
    if not found.ranks.first:
        return 0
    own = shown(config, found)
    seen = reports.UncertaintyReport(
        title=str(config.run or config.model),
        profile=profiled,
        passes=found.source.passes,
        source="ensemble" if config.ensemble else "dropout",
        found_by=found_by,
        settings={**found.named, **own},
        device=str(home_of(found.model)),
        seconds=monotonic() - began,
        gallery=config.gallery,
        seed=config.seed,
        model=weights_hash(found.model),
    )
    out = _out(config)
    reports.write_uncertainty(out, seen)
    console = Console(highlight=False, markup=False)
    console.print(reports.pattern_table(profiled))
    console.print(reports.auroc_table(profiled))
    console.print(f"expected calibration error {profiled.reliability().expected_error:.4f}")
    console.print(f"numbers: {out / 'uncertainty.json'}\npage:    {out / 'page.html'}", soft_wrap=True)
    return 0


def _out(config: UncertaintyConfig) -> Path:
    return config.out or config.folder / "uncertainty"


def _check(config: UncertaintyConfig) -> dict[str, AdversarialSet]:
    """The saved sets; and what can be known to be wrong before anything is measured."""
    check_uncertain(config, "uncertainty")
    if config.variants is not None:
        with field_called("variants", "space"):
            space_of(config.variants)
    if is_first():
        check_folder(_out(config))
    check_once("sets", config.sets)
    return {set_name(path): read_set_for("sets", path)[0] for path in config.sets}


def _guides(config: UncertaintyConfig, found: Asked) -> dict[str, Guide]:
    """What guides each fuzzer; a network may show no neurons to guide by."""
    with field_called("fuzzers", "activations"):
        return {name: GUIDES[name](found.model, found.validation) for name in config.fuzzers}


def _groups(
    config: UncertaintyConfig, found: Asked, kept: dict[str, Data], guides: dict[str, Guide]
) -> dict[str, Data]:
    groups = {BENIGN: found.data}
    if config.variants is not None:
        space = space_of(config.variants)
        groups[f"natural {space.name}"] = natural_variants(found.model, found.data, space, seed=config.seed)
    groups |= attacked(config, found, found.data)
    for name, guide in guides.items():
        with bar(name, 1) as report:
            # what is new depends on all that came before: not to be divided, so the first rank's counts for all
            made = found.ranks.every(fuzz(found.model, found.data, guide, seed=config.seed, report=report))[0]
        groups[name] = made.as_data(found.data)
        if config.keep_fuzzed and found.ranks.first:
            named = {"data": str(found.named["data"]), "split": config.split, "seed": config.seed}
            write_set(_out(config) / f"{name}.safetensors", fuzzed_set(found.model, found.data, made, **named))  # type: ignore[arg-type]
    return groups | kept

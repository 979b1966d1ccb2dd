"""`ukemi defend`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

from pydantic import Field
from rich.console import Console

from ukemi import reports
from ukemi.cli.bars import bar
from ukemi.cli.parse import parse
from ukemi.cli.uncertain import (
    Asked,
    UncertainConfig,
    asked,
    attacked,
    attacked_validation,
    check_uncertain,
    kept_of,
    set_name,
    shown,
    thresholds_of,
)
from ukemi.data import Data, in_a_row
from ukemi.defences import DEFENCES, TRAINING, Defence, Setting, defence_of, study
from ukemi.defences.registry import check_defence
from ukemi.errors import UserError
from ukemi.measures.uncertainty import BENIGN, profile
from ukemi.models.inference import home_of
from ukemi.training import Run
from ukemi.training.checkpoints import check_folder
from ukemi.training.sets import AdversarialSet, check_once, read_set_for, some_inputs


class DefendConfig(UncertainConfig):
    """Puts defences on a classifier and counts what gets past them: benign images that they lose, and attacked, fuzzed
    and generated inputs that still fool it; writes a table, defences.json and a page.

    `ukemi defend RUN --sets FILE…` takes a run folder of `ukemi train` and sets of `ukemi attack`, `ukemi generate` or
    `ukemi uncertainty --keep-fuzzed`; --model, --weights and --data work as in `ukemi evaluate`. An input passes a
    hardened model if that gets it wrong, and a detector if the model gets it wrong and it is not flagged.
    """

    sets: tuple[Path, ...] = ()
    """Saved sets; of each what succeeded in it. Attacks of --attacks on the test images come beside them."""
    samples: int | None = Field(None, ge=1)
    """Of each set at most this many inputs, a fixed choice by the seed, so that none outnumbers the others (a fuzzer
    keeps thousands); default: all that succeeded."""
    defences: tuple[str, ...] = ()
    """By name, or package.module:function; default: all that need no training (distillation and label-smoothing train
    networks of their own into RUN/defences, and take as long)."""
    images: int = Field(500, ge=1)
    """Attack at most this many images, a fixed choice by the seed; they are the benign ones too."""
    out: Path | None = None
    """Where to write; default: RUN/defended, or ./defended."""


def run(arguments: list[str]) -> int:
    config = parse(DefendConfig, arguments, "defend")
    saved = _check(config)
    began = monotonic()
    found = asked(config, config.images, apart=True)  # detectors are fitted on the validation images
    kept = kept_of(saved, found)
    if config.samples is not None:
        kept = {name: some_inputs(data, config.samples, config.seed) for name, data in kept.items()}
    known = attacked_validation(config, found)
    setting = _setting(config, found, known)
    left_out: dict[str, str] = {}
    makers = _makers(config, setting, left_out)  # before the long work: anyone's own may fail
    groups = _groups(config, found, kept)
    thresholds, found_by = thresholds_of(config, found, known)
    with bar("passes", sum(map(len, groups.values()))) as report:
        profiled = profile(
            found.source, groups, thresholds, confidence=config.confidence, against=config.against, report=report
        )
    with bar("defences", len(makers)) as report:
        judged = study(profiled, makers, report)
    seen = reports.DefenceReport(
        title=str(config.run or config.model),
        study=judged,
        found_by=found_by,
        settings={**found.named, **shown(config, found, drops=True)},  # mc-dropout
        device=str(home_of(found.model)),
        seconds=monotonic() - began,
        left_out=left_out,
    )
    out = _out(config)
    reports.write_defences(out, seen)
    console = Console(highlight=False, markup=False)
    kinds = {name: _kind(saved.get(name)) for name in judged.fooling()}
    console.print(reports.defence_table(judged, kinds))
    for name, why in left_out.items():
        console.print(f"left out: {name} ({why})", soft_wrap=True)
    console.print(f"numbers: {out / 'defences.json'}\npage:    {out / 'page.html'}", soft_wrap=True)
    return 0


def _out(config: DefendConfig) -> Path:
    return config.out or config.folder / "defended"


def _check(config: DefendConfig) -> dict[str, AdversarialSet]:
    """The saved sets by their names; and what can be known to be wrong before anything is measured."""
    if not config.sets and not config.attacks:
        raise UserError("sets: without a set and without attacks there is nothing to defend against.")
    check_uncertain(config, "defend")
    for name in config.defences:
        check_defence(name)
        if config.defences.count(name) > 1:
            raise UserError(f"defences: {name} is given twice.")
        if name in TRAINING and config.run is None:
            raise UserError(f"defences: {name} trains the network anew, so a run folder is needed.")
    check_folder(_out(config))
    check_once("sets", config.sets)
    return {name: read_set_for("sets", path)[0] for path, name in _names(config.sets).items()}


def _names(paths: tuple[Path, ...]) -> dict[Path, str]:
    """What each set is called; none as another, nor as the benign images."""
    short = {path: _short(path, paths) for path in paths}
    taken = [BENIGN, *short.values()]
    return {path: name if taken.count(name) == 1 else set_name(path) for path, name in short.items()}


def _short(path: Path, beside: tuple[Path, ...]) -> str:
    """As short as tells the sets apart: LH-misclassified for …/LH-misclassified/generated.safetensors."""
    if [each.stem for each in beside].count(path.stem) == 1:
        return path.stem
    folder = path.parent.name  # none of a file in the current folder
    return folder if folder and [each.parent.name for each in beside].count(folder) == 1 else set_name(path)


def _kind(saved: AdversarialSet | None) -> str:
    return {"generate": "generated", "fuzz": "fuzzed"}.get("" if saved is None else saved.attack, "attacked")


def _groups(config: DefendConfig, found: Asked, kept: dict[str, Data]) -> dict[str, Data]:
    groups = {BENIGN: found.data, **kept}
    for name, turned in attacked(config, found, found.data).items():
        groups[name if name not in groups else f"{name} here"] = turned
    return groups


def _setting(config: DefendConfig, found: Asked, turned: Sequence[Data]) -> Setting:
    some = [part for part in turned if len(part)]
    run = None if config.run is None else Run(config.run)
    return Setting(
        model=found.model,
        benign=found.validation,
        adversarial=in_a_row(some) if some else None,
        run=run,
        dropout=config.dropout,
        passes=config.passes,
        seed=config.seed,
    )


def _makers(config: DefendConfig, setting: Setting, left_out: dict[str, str]) -> dict[str, Callable[[], Defence]]:
    """What is named must be worn; of the rest, what this model can't wear is left out and said so. Only those that
    train a network are made when their turn comes."""
    made: dict[str, Callable[[], Defence]] = {}
    for name in config.defences:
        later = partial(defence_of, name, setting)
        made[name] = later if name in TRAINING else partial(_itself, later())
    if made:
        return made
    for name in DEFENCES:
        if name in TRAINING:
            continue
        try:
            made[name] = partial(_itself, defence_of(name, setting))
        except UserError as error:
            left_out[name] = str(error)
    return made


def _itself(defence: Defence) -> Defence:
    return defence

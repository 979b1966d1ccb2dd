"""`ukemi attack`."""

from dataclasses import replace
from pathlib import Path

from pydantic import Field
from rich.console import Console

from ukemi import reports
from ukemi.attacks.config import AttackConfig, AttackSettings
from ukemi.cli.attacking import STYX, attacked
from ukemi.cli.bars import bar
from ukemi.cli.brought import BroughtConfig, brought, check_brought, few_of
from ukemi.cli.parse import parse
from ukemi.data import is_shared
from ukemi.errors import UserError
from ukemi.ranks import is_first
from ukemi.reports.adversarial import SET
from ukemi.schema import Named
from ukemi.training.checkpoints import check_folder
from ukemi.training.parallel import check_measured, measuring
from ukemi.training.sets import Recorder, in_one, write_set


class AttackCommandConfig(AttackSettings, BroughtConfig):
    """Attacks a classifier itself (white-box), and writes the adversarial images, attack.json and a page with the
    images that fool it.

    `ukemi attack RUN --attack pgd --epsilon 8/255` takes a run folder of `ukemi train`; --model, --weights and --data
    work as in `ukemi evaluate`.
    """

    attack: Named = "pgd"
    """The attack: fgsm, bim, pgd, deepfool, carlini-wagner, jsma, square, or package.module:function."""
    images: int | None = Field(None, ge=1)
    """Attack this many images only, a fixed choice by the seed; those that the model gets wrong are left alone."""
    gallery: int = Field(12, ge=0)
    """How many images that fool the model the page shows."""
    out: Path | None = None
    """Where to write; default: RUN/attack, or ./attack; with -NAME behind it for another attack than pgd, and with
    -NAME-SPLIT for another part than test."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Random starts and the choice of images; without a run, also splits data that have no test part."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    config = parse(AttackCommandConfig, arguments, "attack")
    _check(config)
    told = AttackConfig.taken_from(config)
    recorder = Recorder(told.made(config.seed))
    with measuring(config.device) as (ranks, device):
        with ranks.together():
            given = brought(config, device, seed=config.seed)
        check_measured(config, given.model, given.data, ranks)
        model, data = given.model, few_of(given.data, config)
        with bar("attack", len(data)) as report:
            result = attacked(model, data, told, recorder, report=report, ranks=ranks)
        made = recorder.set(model, data, told, data=str(given.settings["data"]), split=config.split, seed=config.seed)
        made = in_one(ranks.every(made)) if is_shared(data, ranks) else made
        made = replace(made, norm=result.found.norm)
    if not ranks.first:
        return 0
    own = config.model_dump(mode="json", exclude={*BroughtConfig.model_fields, "out", "device"}, exclude_none=True)
    seen = reports.examine_attack(
        model,
        data,
        result,
        made,
        title=str(config.run or config.model),
        settings=given.settings | own,
        gallery=config.gallery,
        seed=config.seed,
    )
    out = _out(config)
    write_set(out / SET, made)
    reports.write_attack(out, seen)
    console = Console(highlight=False, markup=False)
    console.print(reports.attack_table(result))
    for note in reports.attack_notes(seen):
        console.print(note, style="yellow", markup=False)
    console.print(f"set:     {out / SET}\nnumbers: {out / 'attack.json'}\npage:    {out / 'page.html'}", soft_wrap=True)
    return 0


def _out(config: AttackCommandConfig) -> Path:
    """A folder per attack and part: a set is not written over by another."""
    part = "" if config.split == "test" else f"-{config.split}"
    name = "" if config.attack == "pgd" and not part else f"-{config.attack}"
    return config.out or config.folder / f"attack{name}{part}".replace(":", ".")


def _check(config: AttackCommandConfig) -> None:
    """What can be known to be wrong before anything is measured."""
    if config.attack == STYX:
        raise UserError("attack: styx is a grid of attacks; `ukemi evaluate --attack styx` runs it.")
    check_brought(config, "attack")
    if is_first():
        check_folder(_out(config))

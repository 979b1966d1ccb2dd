"""`ukemi evaluate`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Annotated, Protocol

from pydantic import Field
from rich.console import Console
from torch import nn

from ukemi import reports
from ukemi.attacks.config import AttackSettings
from ukemi.cli.attacking import attacked_by, attacks_of, set_of, transferred
from ukemi.cli.bars import bar
from ukemi.cli.brought import Brought, BroughtConfig, brought, check_brought, few_of
from ukemi.cli.parse import parse
from ukemi.data import Data
from ukemi.errors import UserError, check_known, field_called
from ukemi.measures import Robustness, robustness_of
from ukemi.measures.attacks import as_csv
from ukemi.ranks import Ranks, is_first
from ukemi.schema import Fixed, Named, Number
from ukemi.spaces import GRIDS, Gene, Space
from ukemi.training.checkpoints import check_file, check_folder, write_whole
from ukemi.training.parallel import check_measured, measuring


class VariantsConfig(BroughtConfig):
    """How a model is measured under natural variants."""

    images: int | None = Field(None, ge=1)
    """Measure this many images only, a fixed choice by the seed."""
    space: str | None = None
    """What is varied: t2, t3, t6, or package.module:SPACE; default: the run's, or t3."""
    genes: Fixed[tuple[Gene, ...]] = ()
    """A space of your own, as [[genes]] tables (TOML only)."""
    levels: int = Field(3, ge=2)
    """Values per gene: low, middle and high for 3."""
    grid: str | None = None
    """A named grid instead of space and levels: t3-81, t6-2187, t3-81-3px, t6-2187-3px, engstrom-775, t2-27; for
    regression beside the papers' code t3-81-released, t6-2187-released, t3-81-kaist."""
    mean_accuracy: bool = False
    """Also the mean accuracy over all variants (evaluates every one, so it takes longer)."""
    fail_under: tuple[str, ...] = ()
    """Exit with 1 where a number is below its limit: robust=0.8, accuracy=0.9, mean=0.85, attacked=0.5 (the lowest
    under any attack that is run)."""
    junit: Path | None = None
    """Also write the limits as a JUnit file."""
    out: Path | None = None
    """Where to write; default: RUN/evaluation, or ./evaluation."""
    gallery: int = Field(12, ge=0)
    """How many broken images the page shows."""
    landscapes: int = Field(4, ge=0)
    """How many loss landscapes the page shows."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Draws the images that are shown; without a run, also splits data that have no test part."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""


class EvaluateConfig(AttackSettings, VariantsConfig):
    """Finds where a classifier breaks, and writes a table, evaluation.json and a page with the pictures that break it.

    `ukemi evaluate RUN` takes a run folder of `ukemi train`; `ukemi evaluate --model package.module:factory --weights
    FILE --data FOLDER` takes your own model (pixels in [0, 1] in, logits out) and your own images. `--attack pgd
    --epsilon 8/255` also attacks the model, white-box.
    """

    attack: Named = None
    """Also attack the model: fgsm, bim, pgd, deepfool, carlini-wagner, jsma, square, package.module:function; or styx,
    STYX's whole grid of settings."""
    epsilons: tuple[Annotated[Number, Field(ge=0)], ...] = ()
    """Attack at each of these budgets instead of one --epsilon, for a curve: 0 1/255 2/255 4/255 8/255."""
    adversarial_set: tuple[Path, ...] = ()
    """Also measure transfer (empirical robustness, calibration rate): accuracy on saved sets of `ukemi attack` and its
    mean over them, beside their attacks on this model itself."""


def run(arguments: list[str]) -> int:
    config = parse(EvaluateConfig, arguments, "evaluate")
    limits, attacks = _checked(config), attacks_of(config, config.epsilons)
    sets = {path: set_of(path, config.split) for path in config.adversarial_set}
    with measuring(config.device) as (ranks, device):
        with ranks.together():
            given = brought(config, device, seed=config.seed, varied=varied_in_runs_own(config))
            space = varied_space(config, given)
            if limits:
                _check_finished(config, given)
        model, data = given.model, given.data
        check_measured(config, model, data, ranks)
        transfer = transferred(model, data, sets, config, ranks)
        data = few_of(data, config)
        with field_called("epsilons" if config.epsilons else "epsilon", "epsilon"):
            attacked = attacked_by(model, data, attacks, config.seed, ranks) if attacks else []
        began = monotonic()
        found = measured(model, data, space, config.grid or config.levels, mean=config.mean_accuracy, ranks=ranks)
    if not ranks.first:
        return 0
    evaluation = reports.examine(
        model,
        data,
        found,
        title=str(config.run or config.model),
        model_name=given.settings["model"],
        data_name=given.settings["data"],
        log=given.log,
        settings={
            **given.settings,
            **config.model_dump(mode="json", exclude_defaults=True),
            "space": found.space.name,
        },
        gallery=config.gallery,
        landscapes=config.landscapes,
        seed=config.seed,
        seconds=monotonic() - began,
    )
    return _told(config, replace(evaluation, attacks=tuple(attacked), transfer=tuple(transfer), limits=limits))


def _told(config: EvaluateConfig, evaluation: reports.Evaluation) -> int:
    """Writes what was found and prints it; the exit code says whether a limit was missed."""
    out, attacked = _out(config), evaluation.attacks
    reports.write_json(out / "evaluation.json", evaluation)
    reports.write_page(out / "page.html", [evaluation], f"Where {evaluation.title} breaks")
    checks = reports.checks_of(evaluation, evaluation.limits)
    if config.junit is not None:
        reports.write_junit(config.junit, checks)
    console = Console(highlight=False, markup=False)
    console.print(reports.table([evaluation], console.width))
    (out / "attacks.csv").unlink(missing_ok=True)  # of an evaluation before
    if attacked:
        write_whole(out / "attacks.csv", as_csv([reports.attack_row(one) for one in attacked]).encode())
        console.print(reports.attacks_table(attacked))
    if evaluation.transfer:
        console.print(reports.transfer_table(evaluation.transfer))
    for note in reports.evaluation_notes(evaluation):
        console.print(note, style="yellow", markup=False)
    console.print(f"numbers: {out / 'evaluation.json'}\npage:    {out / 'page.html'}", soft_wrap=True)
    if attacked:
        console.print(f"attacks: {out / 'attacks.csv'}", soft_wrap=True)
    missed = [check for check in checks if not check.passed]
    for said in reports.limits_said(missed):
        console.print(said, style="red")
    return 1 if missed else 0


def _out(config: EvaluateConfig) -> Path:
    part = "" if config.split == "test" or config.run is None else f"-{config.split}"
    return config.out or config.folder / f"evaluation{part}"


def _checked(config: EvaluateConfig) -> dict[str, float]:
    """The limits; and what can be known to be wrong before anything is measured."""
    limits = reports.parse_fail_under(config.fail_under)
    if "mean" in limits and not config.mean_accuracy:
        raise UserError("fail-under: mean needs --mean-accuracy beside it.")
    if "attacked" in limits and config.attack is None:
        raise UserError("fail-under: attacked needs --attack beside it.")
    if config.junit is not None and not limits:
        raise UserError("junit: a JUnit file holds the limits, so --fail-under is needed beside it.")
    if config.junit is not None and is_first():
        check_file(config.junit, "junit")
    check_grid(config)
    check_brought(config, "evaluate")
    if is_first():
        check_folder(_out(config))
    return limits


def _check_finished(config: EvaluateConfig, given: Brought) -> None:
    """A gate is for weights that are there to stay."""
    if "unfinished" in given.settings:
        raise UserError(
            f"fail-under: {config.run} has no finished weights, only {given.settings['unfinished']}; finish it"
            f" with `ukemi train --resume {quote(str(config.run))}`."
        )


class Varied(Protocol):
    """What a command says about the variants that it measures."""

    @property
    def grid(self) -> str | None: ...
    @property
    def space(self) -> str | None: ...
    @property
    def genes(self) -> Sequence[Gene]: ...
    @property
    def levels(self) -> int: ...


def varied_in_runs_own(config: Varied) -> bool:
    """Whether images are varied in the run's own space, where it is a run."""
    return config.space is None and not config.genes and config.grid is None


def varied_space(config: Varied, given: Brought) -> Space:
    """What is varied; where no named grid brings its own, it has to have so many levels."""
    space = given.space(config.space, config.genes)
    if config.grid is None:
        space.check_levels(config.levels)
    return space


def check_grid(config: Varied) -> None:
    """A named grid has to be known, and brings its own space."""
    if config.grid is None:
        return
    check_known("grid", config.grid, GRIDS)
    if config.space is not None or config.genes:
        raise UserError(f"grid: {config.grid} brings its own space; give --grid or a space, not both.")


def measured(
    model: nn.Module,
    data: Data,
    space: Space,
    grid: int | str,
    *,
    mean: bool = False,
    about: str = "variants",
    ranks: Ranks | None = None,
) -> Robustness:
    """Robust accuracy with a progress bar."""
    with bar(about, len(data)) as report:
        return robustness_of(model, data, space, grid, mean=mean, report=report, ranks=ranks)

"""`ukemi selfcheck`."""

from pathlib import Path
from time import monotonic
from typing import Annotated

from pydantic import Field
from rich.console import Console

from ukemi.cli.bars import bar
from ukemi.cli.brought import BroughtConfig, brought, check_brought
from ukemi.cli.parse import parse
from ukemi.measures.reliability import selfcheck
from ukemi.reports.selfcheck import selfcheck_table, write_selfcheck
from ukemi.schema import Number
from ukemi.training.checkpoints import check_folder
from ukemi.training.config import device_of
from ukemi.training.setup import fixed_subset


class SelfcheckConfig(BroughtConfig):
    """Says whether a robust accuracy of this model can be trusted: looks for the usual ways in which attacks fail
    without saying so, and writes a table, selfcheck.json and a page. Exits with 1 where a flag is raised.

    `ukemi selfcheck RUN` takes a run folder of `ukemi train`; --model, --weights and --data work as in `ukemi
    evaluate`.
    """

    images: int = Field(200, ge=1)
    """Attack at most this many images, a fixed choice by the seed."""
    epsilon: Annotated[Number, Field(gt=0, lt=1)] = 8 / 255
    """The budget in linf whose robust accuracy is in question, in pixels of 0..1: 8/255."""
    steps: int = Field(40, ge=1)
    """PGD's steps; it is also run with a fourth and with four times of them."""
    queries: int = Field(500, ge=1)
    """Forward passes per image of Square, the search without gradients."""
    tolerance: Annotated[Number, Field(ge=0, lt=1)] = 0.02
    """A flag is raised above this share of the images; one image alone never raises it."""
    out: Path | None = None
    """Where to write; default: RUN/selfcheck, or ./selfcheck."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Draws the images and the attacks' random starts; without a run, also splits data that have no test part."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    config = parse(SelfcheckConfig, arguments, "selfcheck")
    _check(config)
    device = device_of(config.device)
    given = brought(config, device, seed=config.seed)
    data = fixed_subset(given.data, min(config.images, len(given.data)), config.seed)
    began = monotonic()
    options = {name: getattr(config, name) for name in ("epsilon", "steps", "queries", "tolerance", "seed")}
    with bar("selfcheck", 1) as report:
        found = selfcheck(given.model, data, **options, report=report)
    out = _out(config)
    write_selfcheck(
        out,
        found,
        title=str(config.run or config.model),
        settings={
            **given.settings,
            **config.model_dump(mode="json", exclude={*BroughtConfig.model_fields, "out", "device"}),
        },
        seconds=monotonic() - began,
        device=str(device),
    )
    console = Console(highlight=False, markup=False)
    console.print(selfcheck_table(found))
    console.print(f"numbers: {out / 'selfcheck.json'}\npage:    {out / 'page.html'}", soft_wrap=True)
    return 1 if found.raised else 0


def _out(config: SelfcheckConfig) -> Path:
    return config.out or config.folder / "selfcheck"


def _check(config: SelfcheckConfig) -> None:
    """What can be known to be wrong before anything is measured."""
    check_brought(config, "selfcheck")
    check_folder(_out(config))

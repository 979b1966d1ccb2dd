"""`ukemi slice`."""

from pathlib import Path
from time import monotonic
from typing import Annotated, Literal

from pydantic import Field
from rich.console import Console

from ukemi import reports
from ukemi.cli.bars import bar
from ukemi.cli.brought import BroughtConfig, brought, check_brought
from ukemi.cli.parse import parse
from ukemi.errors import UserError, field_called
from ukemi.schema import Number
from ukemi.slicing import Reading, slices_of, write_slices
from ukemi.training.checkpoints import check_folder
from ukemi.training.config import device_of
from ukemi.training.setup import fixed_subset

FILE = "slices.safetensors"


class SliceConfig(BroughtConfig):
    """Finds the synapses and neurons of a classifier that matter to each class (NNSlicer, as DARE uses it), and writes
    slices.safetensors, slices.json and a page: what each class keeps, how many neurons stay key, how classes overlap.

    `ukemi slice RUN` takes a run folder of `ukemi train`; --model, --weights and --data work as in `ukemi evaluate`.
    """

    reading: Reading = "paper"
    """paper: the q % largest sums of signs per layer; released: the same cut per output neuron; set-mean: one mean
    activation per class; nnslicer: place by place, by theta."""
    q: Annotated[Number, Field(gt=0, le=100)] = 95.0
    """How many percent of each layer's synapses a class keeps; nnslicer makes no use of it."""
    theta: Annotated[Number, Field(ge=0, lt=1)] = 0.2
    """nnslicer keeps as few terms of a sum as come within this share of it."""
    samples: int | None = Field(None, ge=1)
    """Slice by this many images only, a fixed choice by the seed; every class needs one."""
    profile: int | None = Field(None, ge=1)
    """Take mean activations over this many images only; default: all of the split."""
    split: Literal["test", "train", "all"] = "train"
    """Which part of the data is looked at."""
    contributions: bool = False
    """Also write the sums that were ranked: a file five times as large."""
    batch_size: int | None = Field(None, ge=1)
    """Images per pass; default: what suits the device."""
    out: Path | None = None
    """Where to write; default: RUN/slices, or ./slices."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Draws the images; without a run, also splits data that have no test part."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    config = parse(SliceConfig, arguments, "slice")
    _check(config)
    device = device_of(config.device)
    given = brought(config, device, seed=config.seed)
    data = given.data
    samples, baseline = (
        data if count is None else fixed_subset(data, min(count, len(data)), config.seed)
        for count in (config.samples, config.profile)
    )
    began = monotonic()
    about = "data" if config.samples is None else "samples"
    with field_called(about, "classes"), bar("slice", len(samples) + len(baseline)) as report:
        found = slices_of(
            given.model,
            samples,
            baseline=baseline,
            reading=config.reading,
            q=config.q,
            theta=config.theta,
            batch_size=config.batch_size,
            report=report,
        )
    seconds = monotonic() - began
    out = _out(config)
    write_slices(out / FILE, found, contributions=config.contributions)
    own = config.model_dump(mode="json", exclude={*BroughtConfig.model_fields, "out", "device"}, exclude_none=True)
    settings = {
        **given.settings,
        **own,
        "split": config.split,
        "images": len(samples),
        "profiled images": len(baseline),
    }
    title = str(config.run or config.model)
    reports.write_slices_report(out, found, title=title, settings=settings, seconds=seconds, device=str(device))
    console = Console(highlight=False, markup=False)
    console.print(reports.slices_table(found))
    paths = f"slices:  {out / FILE}\nnumbers: {out / 'slices.json'}\npage:    {out / 'slices.html'}"
    console.print(paths, soft_wrap=True)
    return 0


def _out(config: SliceConfig) -> Path:
    return config.out or config.folder / "slices"


def _check(config: SliceConfig) -> None:
    """What can be known to be wrong before anything is measured."""
    check_brought(config, "slice")
    nnslicer = config.reading == "nnslicer"
    for name, belongs in (("theta", nnslicer), ("q", not nnslicer)):
        if not belongs and getattr(config, name) != SliceConfig.model_fields[name].default:
            raise UserError(f"{name}: the reading {config.reading} makes no use of it.")
    check_folder(_out(config))

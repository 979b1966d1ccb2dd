"""`ukemi search`."""

from pathlib import Path
from time import monotonic

from pydantic import Field
from rich.console import Console

from ukemi import reports
from ukemi.augmenters import AUGMENTERS, AugmenterConfig
from ukemi.cli.bars import bar
from ukemi.cli.brought import BroughtConfig, brought, check_brought
from ukemi.cli.evaluate import check_grid, varied_in_runs_own, varied_space
from ukemi.cli.parse import parse
from ukemi.errors import UserError, check_known
from ukemi.measures import search_quality
from ukemi.measures.inner import SEARCHES, Method
from ukemi.models.check_head import PROBABILITIES
from ukemi.schema import Fixed, value_of
from ukemi.spaces import Gene
from ukemi.training.checkpoints import check_folder
from ukemi.training.config import device_of
from ukemi.training.setup import fixed_subset

NO_SEARCH = ("standard", "styx")
"""augmenters that vary nothing, or not by genes"""


class SearchConfig(BroughtConfig):
    """Measures how well each method finds the worst variants of a classifier's images while its weights rest, at equal
    forward passes, beside an exhaustive grid; writes a table, search.json and a page with curves.

    `ukemi search RUN` takes a run folder of `ukemi train`; --model, --weights and --data work as in `ukemi evaluate`.
    """

    images: int = Field(200, ge=1)
    """Search at most this many images, a fixed choice by the seed."""
    methods: tuple[str, ...] = SEARCHES
    """Augmenters by name (see `ukemi augmenters`), settings behind commas: worst-of,k=20 or ukemi,edge=0.5,keep=0.2."""
    generations: int = Field(20, ge=1)
    """Each method may spend ten forward passes per image and generation."""
    seeds: int = Field(3, ge=1)
    """Search so many times, from --seed on, for the standard deviation."""
    space: str | None = None
    """What is varied: t2, t3, t6, or package.module:SPACE; default: the run's, or t3."""
    genes: Fixed[tuple[Gene, ...]] = ()
    """A space of your own, as [[genes]] tables (TOML only)."""
    levels: int = Field(3, ge=2)
    """The grid's values per gene: low, middle and high for 3."""
    grid: str | None = None
    """A named grid instead of space and levels: t3-81, t6-2187, t3-81-3px, t6-2187-3px, engstrom-775, t2-27."""
    out: Path | None = None
    """Where to write; default: RUN/search, or ./search."""
    seed: int = Field(0, ge=0, lt=2**32)
    """The first seed; draws the images too and, without a run, splits data that have no test part."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    config = parse(SearchConfig, arguments, "search")
    methods = _checked(config)
    device = device_of(config.device)
    given = brought(config, device, seed=config.seed, varied=varied_in_runs_own(config))
    if given.settings.get("outputs"):  # losses are all that is shown here
        raise UserError(PROBABILITIES)
    space = varied_space(config, given)
    data = fixed_subset(given.data, min(config.images, len(given.data)), config.seed)
    began = monotonic()
    seeds = range(config.seed, config.seed + config.seeds)
    with bar("search") as report:
        found = search_quality(
            given.model,
            data,
            space,
            methods,
            generations=config.generations,
            grid=config.grid or config.levels,
            seed=seeds,
            report=report,
        )
    out = _out(config)
    reports.write_search(
        out,
        found,
        title=str(config.run or config.model),
        settings={
            **given.settings,
            **config.model_dump(mode="json", exclude={*BroughtConfig.model_fields, "out", "device", "genes"}),
            **config.model_dump(mode="json", include={"genes"}, exclude_defaults=True),
            "space": found.space.name,
        },
        seconds=monotonic() - began,
        device=str(device),
    )
    console = Console(highlight=False, markup=False)
    console.print(reports.search_table(found))
    console.print(f"numbers: {out / 'search.json'}\npage:    {out / 'page.html'}", soft_wrap=True)
    return 0


def method_of(text: str) -> AugmenterConfig:
    """Settings from `NAME` or `NAME,SETTING=VALUE,…`."""
    name, *settings = text.split(",")
    check_known("methods", name, [known for known in AUGMENTERS if known not in NO_SEARCH])
    pairs = [setting.partition("=") for setting in settings]
    if not all(key and equals and value for key, equals, value in pairs):
        raise UserError(f"methods: {text!r} should have the form NAME,SETTING=VALUE,SETTING=VALUE.")
    return AUGMENTERS[name](**{key.replace("-", "_"): value_of(value) for key, _, value in pairs})


def _out(config: SearchConfig) -> Path:
    return config.out or config.folder / "search"


def _checked(config: SearchConfig) -> dict[str, Method]:
    """The methods; and what can be known to be wrong before anything is measured."""
    if not config.methods:
        raise UserError("methods: at least one is needed.")
    for text in config.methods:
        if config.methods.count(text) > 1:
            raise UserError(f"methods: {text} is given twice.")
    methods: dict[str, Method] = {text: method_of(text) for text in config.methods}
    check_brought(config, "search")
    check_grid(config)
    check_folder(_out(config))
    return methods

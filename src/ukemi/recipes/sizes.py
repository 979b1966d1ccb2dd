"""How large a recipe is, in one sentence: tables of different sizes should not be read as one."""

from collections.abc import Iterable

from ukemi.comparing import CompareConfig, planned
from ukemi.experiments import ExperimentConfig
from ukemi.reports.words import count, plural


def size_of(config: CompareConfig | ExperimentConfig) -> str:
    """Seeds, what is done with each, epochs, and test images."""
    if isinstance(config, ExperimentConfig):
        trained = [config.epochs_of(cell) for cell in config.cells if not cell.not_run]
        return f"{_seeds(config)} x {plural(len(config.cells), 'cell')}, {_range(trained, 'epoch')}"
    plan = planned(config)
    images = {measured.images for measured in plan.measured.values()}
    shown = "all test images" if images == {None} else _range([one for one in images if one is not None], "test image")
    rest = " or all" * (None in images and len(images) > 1)
    cases, methods = plural(len(plan.measured), "case"), plural(len(config.methods), "method")
    epochs = _range([one.config.epochs for one in plan.planned], "epoch")
    epochs += " of the dearest method, more of cheaper ones" * config.equal_cost
    return f"{_seeds(config)} x {cases} x {methods}, {epochs}, {shown}{rest}"


def _seeds(config: CompareConfig | ExperimentConfig) -> str:
    return plural(config.seeds, "seed")


def _range(values: Iterable[int], what: str) -> str:
    low, *_, high = sorted([*values] * 2)
    return plural(high, what) if low == high else f"{count(low)} to {plural(high, what)}"

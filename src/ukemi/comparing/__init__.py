"""Comparing: methods x cases x seeds as one plan, one loop, one table."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from ukemi.comparing.cluster import connected, work_on
from ukemi.comparing.config import Case, CompareConfig, Method
from ukemi.comparing.costs import equalised
from ukemi.comparing.display import Watch, watched
from ukemi.comparing.edited import told_of_edits
from ukemi.comparing.outcomes import finished, try_measures
from ukemi.comparing.plan import Plan, Planned, planned
from ukemi.comparing.result import Comparison, gathered, summary
from ukemi.comparing.running import work, work_in
from ukemi.data import SOURCES, Data
from ukemi.data.loading import find, places
from ukemi.errors import UserError
from ukemi.training import Interrupted, TrainConfig
from ukemi.training.loop import rehearse as try_out
from ukemi.training.setup import load_sets

READ_BY = ("data", "data_folder", "size", "channels", "classes", "stream", "workers", "validation", "seed")
"""the settings of a training that say which images it reads: a method may have its own"""

__all__ = [
    "Case",
    "CompareConfig",
    "Comparison",
    "Method",
    "Plan",
    "Planned",
    "absent",
    "compare",
    "gathered",
    "plan_of",
    "planned",
    "summary",
]


def plan_of(config: CompareConfig, said: Callable[[str], None] = lambda text: None) -> Plan:
    """All that is to be done; cases of public sets that are not there are left out and named."""
    plan = planned(config)
    missing = {one.case: absent(one.config) for one in plan.planned if absent(one.config)}
    plan = planned(config, missing) if missing else plan
    return equalised(plan, said) if config.equal_cost else plan


def compare(
    config: CompareConfig,
    said: Callable[[str], None] = lambda text: None,
    salvaged: Callable[[Comparison], None] = lambda found: None,
) -> Comparison:
    """Runs what is missing, resumes what was interrupted, skips what is done, and says what came of it. Where a run
    failed, `salvaged` gets what came of the others before that is raised."""
    with connected(config) if config.engine == "ray" else nullcontext() as ray:  # first: an address may be wrong
        plan = plan_of(config, said)
        for sentence in told_of_edits(plan):
            said(sentence)
        rehearse(plan, here=ray is None)
        if plan.planned:
            make_folder(config.out, "out")
            make_folder(plan.runs, "runs")
        try:
            if ray is not None:
                work_on(ray, plan, config, config.device, said)
            else:
                with watched(Watch(plan, config.jobs)):
                    work(plan) if config.jobs == 1 else work_in(partial(work, plan, time()), config.jobs)
        except Interrupted:
            raise
        except Exception:
            with suppress(UserError):  # a file that can't be read may be what failed
                salvaged(gathered(config, plan))
            raise
    return gathered(config, plan)


def rehearse(plan: Plan, *, here: bool = True) -> None:
    """Loads the data of every case with work to do, makes its network and tries what each method does with it: a
    mistake should show before any training. The device is looked for where runs are made `here`."""
    check_test_images(plan)
    seen: set[tuple[str, str]] = set()
    known: dict[tuple[Any, ...], Data] = {}
    for one in plan.planned:
        one.check(plan.runs)
        if (one.case, one.method) in seen or finished(one.run(plan.runs), plan.measured[one.case]):
            continue
        seen.add((one.case, one.method))
        if here:
            one.config.chosen_device()
        told = tuple(getattr(one.config, name) for name in READ_BY)
        if told not in known:
            known = {told: load_sets(one.config).train}  # one set at a time: they may be large
        try_out(one.config, known[told])
        try_measures(one.config, known[told], plan.measured[one.case])


def check_test_images(plan: Plan) -> None:
    """Refuses a method whose own data bring other test images than those of its case: methods are compared image by
    image."""
    first: dict[str, Planned] = {}
    for one in plan.planned:
        other = first.setdefault(one.case, one)
        elsewhere = any(getattr(one.config, name) != getattr(other.config, name) for name in ("data", "data_folder"))
        if elsewhere and one.seed == other.seed and _tested(one) != _tested(other):
            raise UserError(
                f"methods.{one.method}: its test images are not those of {other.method} on {one.case}, and methods are"
                " compared image by image; cases may have data of their own."
            )


def _tested(one: Planned) -> list[tuple[int, str]]:
    test = load_sets(one.config).test
    both = zip(test.index.tolist(), test.labels.tolist(), strict=True)
    return [(index, test.classes[label]) for index, label in both]


def make_folder(folder: Path, field: str) -> None:
    """Before any training: what can't be written should show now."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{field}: {folder} can't be made ({error.strerror or error}).") from None


def absent(config: TrainConfig) -> str:
    """Why the data of a training are not there; empty where they are, or are nobody's public set."""
    source = SOURCES.get(config.data)
    if source is None or find(source, places(config.data_folder)) is not None:
        return ""
    return f"the data set {source.name} is not there (ukemi data says how to get it)"

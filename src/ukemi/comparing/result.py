"""From outcomes to the answer: means and spreads per method, differences per pair, one verdict."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ukemi.comparing.config import ENGINE, CompareConfig
from ukemi.comparing.outcomes import FAILED, STOPPED, Outcome, outcome_path, read_outcome, read_reason
from ukemi.comparing.plan import Plan
from ukemi.comparing.shown import Shown, read_shown
from ukemi.measures.statistics import Interval, Paired, Spread, image_bootstrap, paired, spread

SCHEMA = 1
"""Version of comparison.json's fields: raised when one changes its meaning or goes."""
COSTS = ("seconds", "forwards", "backwards", "epochs")


@dataclass(frozen=True)
class Pair:
    """Two methods on one case (or over all cases) by one measure."""

    first: str
    second: str
    measure: str
    over_seeds: Paired
    over_images: Interval | None
    """95 % of the bootstrap over test images; None for measures that are not taken per image"""


@dataclass(frozen=True)
class CaseResult:
    """One case: its outcomes by method and seed."""

    name: str
    grids: tuple[str, ...]
    outcomes: dict[str, dict[int, Outcome]]
    stopped: dict[str, dict[int, str]]
    """trainings that could not be finished, and why"""
    missing: str = ""
    """why nothing could be run here"""
    shown: dict[str, dict[int, Shown]] = field(default_factory=dict)
    """pictures by method and seed, where there are any"""
    printed: dict[str, float] = field(default_factory=dict)
    """by method: the robust accuracy that a paper prints, in percent"""
    failed: dict[str, dict[int, str]] = field(default_factory=dict)
    """runs that went wrong when they were last tried, and how; the same command tries them again"""

    def measures(self) -> list[str]:
        names = [name for seeds in self.outcomes.values() for one in seeds.values() for name in one.measures]
        return list(dict.fromkeys(names))

    def seeds(self, methods: Collection[str]) -> set[int]:
        """With which all of these finished."""
        return set.intersection(*(set(self.outcomes.get(name, {})) for name in methods))

    def tested(self, measure: str = "accuracy") -> set[tuple[int, ...]]:
        """The test images of every run, by their identities; one entry where all runs have the same."""
        runs = (one for seeds in self.outcomes.values() for one in seeds.values())
        return {tuple(one.index[measure].tolist()) for one in runs if measure in one.index}

    def values(self, method: str, measure: str) -> dict[int, float]:
        """By seed."""
        return {
            seed: getattr(one, measure) if measure in COSTS else one.measures[measure]
            for seed, one in self.outcomes.get(method, {}).items()
        }

    def spread(self, method: str, measure: str) -> Spread | None:
        values = list(self.values(method, measure).values())
        return spread(values) if values else None

    def pair(self, first: str, second: str, measure: str) -> Pair | None:
        """With the seeds that both have; None where there is none."""
        one, two = self.values(first, measure), self.values(second, measure)
        seeds = [seed for seed in one if seed in two]
        if not seeds:
            return None
        over_seeds = paired([one[seed] for seed in seeds], [two[seed] for seed in seeds])
        return Pair(first, second, measure, over_seeds, self._over_images(first, second, measure, seeds))

    def _over_images(self, first: str, second: str, measure: str, seeds: Sequence[int]) -> Interval | None:
        kept = [(self.outcomes[first][seed], self.outcomes[second][seed]) for seed in seeds]
        if not all(measure in one.images for one, _ in kept):
            return None
        apart = [one.images[measure].double() - two.images[measure].double() for one, two in kept]
        return image_bootstrap(_per_image(apart, [one.index[measure] for one, _ in kept]))[1]


def _per_image(apart: Sequence[Tensor], index: Sequence[Tensor]) -> Tensor:
    """The mean difference of every image over the seeds with which it was tested: a set that has no test part of its
    own is split by the seed, so that not every seed tests every image."""
    identities, which = torch.cat(list(index)).unique(return_inverse=True)
    sums = torch.zeros(len(identities), dtype=torch.float64).index_add_(0, which, torch.cat(list(apart)))
    return sums / which.bincount(minlength=len(identities))


@dataclass(frozen=True)
class Comparison:
    """All that was found."""

    title: str
    methods: tuple[str, ...]
    baseline: str
    decides: str
    """the measure by which methods are ranked"""
    seeds: tuple[int, ...]
    cases: tuple[CaseResult, ...]
    open: int
    """runs that are not finished, those that failed too"""
    settings: dict[str, Any]

    def run_cases(self) -> list[CaseResult]:
        return [case for case in self.cases if case.outcomes]

    def shared(self) -> list[CaseResult]:
        """The cases that all methods finished which finished any, with the seeds that all of them have in all of these:
        who stops where it is hard should not lead by what is left."""
        known = {name for case in self.cases for name in case.outcomes}
        cases = [case for case in self.run_cases() if case.seeds(known)]
        seeds = sorted(set.intersection(*(case.seeds(known) for case in cases))) if cases else []
        kept = [{name: {seed: runs[seed] for seed in seeds} for name, runs in case.outcomes.items()} for case in cases]
        return [replace(case, outcomes=runs) for case, runs in zip(cases, kept, strict=True)] if seeds else []

    def machines(self) -> list[str]:
        """What the runs were finished on, as far as they say."""
        every = [one for case in self.cases for runs in case.outcomes.values() for one in runs.values()]
        return sorted({one.machine for one in every} - {""})

    def measures(self) -> list[str]:
        return list(dict.fromkeys(name for case in self.run_cases() for name in case.measures()))

    def pairs(self, case: CaseResult, measure: str) -> list[Pair]:
        """All pairs of methods, the later one against the earlier."""
        found = [case.pair(second, first, measure) for first, second in combinations(self.methods, 2)]
        return [pair for pair in found if pair is not None]

    def overall(self, first: str, second: str, measure: str, cases: Sequence[CaseResult] | None = None) -> Pair | None:
        """Over all cases (or these) that both methods finished: the mean over the cases, seed by seed."""
        both = [case for case in (self.run_cases() if cases is None else cases) if measure in case.measures()]
        values = [(case.values(first, measure), case.values(second, measure)) for case in both]
        values = [(one, two) for one, two in values if one and two]
        seeds = [seed for seed in self.seeds if all(seed in one and seed in two for one, two in values)]
        if not values or not seeds:
            return None
        means = [[sum(pair[side][seed] for pair in values) / len(values) for seed in seeds] for side in (0, 1)]
        return Pair(first, second, measure, paired(means[0], means[1]), None)

    def ranked(self) -> list[str]:
        """The methods by their mean over what all finished, best first; those without any outcome are left out."""
        means = {method: self.mean(method) for method in self.methods}
        known = {method: mean for method, mean in means.items() if mean is not None}
        return sorted(known, key=lambda method: -known[method])

    def mean(self, method: str) -> float | None:
        """Over what all methods finished, or where that is nothing, over its own runs."""
        found = [case.spread(method, self.decides) for case in self.shared() or self.run_cases()]
        means = [one.mean for one in found if one is not None]
        return sum(means) / len(means) if means else None

    def answer(self) -> Pair | None:
        """The best method against the one behind it; None where they share nothing."""
        best, shared = self.ranked(), self.shared()
        if len(best) < 2:
            return None
        if len(shared) == 1:
            return shared[0].pair(best[0], best[1], self.decides)
        return self.overall(best[0], best[1], self.decides, shared)

    def tally(self, first: str, second: str, measure: str) -> tuple[int, int, int]:
        """In how many cases the first wins, ties and loses, by the t interval over seeds."""
        pairs = [case.pair(first, second, measure) for case in self.run_cases() if measure in case.measures()]
        verdicts = [pair.over_seeds.verdict for pair in pairs if pair is not None]
        return verdicts.count("win"), verdicts.count("tie"), verdicts.count("loss")


def gathered(config: CompareConfig, plan: Plan) -> Comparison:
    """What the runs have come to so far."""
    printed = {case.title(): config.printed(case) for case in config.chosen_cases()}
    cases = {
        name: CaseResult(name, measured.grids, {}, {}, plan.missing.get(name, ""), printed=printed[name])
        for name, measured in plan.measured.items()
    }
    unfinished = 0
    for one in plan.planned:
        run, measured, case = one.run(plan.runs), plan.measured[one.case], cases[one.case]
        stopped, failed = (read_reason(run, name) for name in (STOPPED, FAILED))
        if stopped is not None:
            case.stopped.setdefault(one.method, {})[one.seed] = stopped
        elif outcome_path(run, measured).exists():
            base = one.base().run(plan.runs) if one.then else None
            case.outcomes.setdefault(one.method, {})[one.seed] = read_outcome(run, measured, base)
            shown = read_shown(run, measured)
            if shown is not None:
                case.shown.setdefault(one.method, {})[one.seed] = shown
        else:
            unfinished += 1
            if failed is not None:
                case.failed.setdefault(one.method, {})[one.seed] = failed
    unused = {"data", "models"} if config.cases else {"cases"}
    return Comparison(
        config.title,
        tuple(method.name for method in config.methods),
        config.chosen_baseline(),
        config.decides,
        tuple(range(config.seed, config.seed + config.seeds)),
        tuple(cases.values()),
        unfinished,
        config.model_dump(mode="json", exclude={"out", "runs", "device", "data_folder", *unused, *ENGINE}),
    )


def summary(found: Comparison, **about: Any) -> dict[str, Any]:
    """All numbers as JSON knows them."""
    answer = found.answer()
    return {
        "schema": SCHEMA,
        "title": found.title,
        "methods": list(found.methods),
        "baseline": found.baseline,
        "decides": found.decides,
        "seeds": list(found.seeds),
        "open_runs": found.open,
        "answer": None if answer is None else _pair(answer),
        "cases": [_case(found, case) for case in found.cases],
        "overall": [_overall(found, method) for method in found.methods if method != found.baseline],
        "settings": found.settings,
        **about,
    }


def _case(found: Comparison, case: CaseResult) -> dict[str, Any]:
    measures = case.measures()
    return {
        "case": case.name,
        "grids": list(case.grids),
        "not_run": case.missing or None,
        "printed": case.printed,
        "test_images": max(map(len, case.tested()), default=None),
        **{name: _by_seed(getattr(case, name)) for name in ("stopped", "failed")},
        "methods": {
            method: {measure: _spread(case, method, measure) for measure in (*measures, *COSTS)}
            for method in case.outcomes
        },
        "pairs": [_pair(pair) for measure in measures for pair in found.pairs(case, measure)],
    }


def _by_seed(reasons: dict[str, dict[int, str]]) -> dict[str, dict[str, str]]:
    return {method: {str(seed): why for seed, why in seeds.items()} for method, seeds in reasons.items()}


def _spread(case: CaseResult, method: str, measure: str) -> dict[str, Any]:
    found = case.spread(method, measure)
    assert found is not None
    by_seed = {str(seed): value for seed, value in case.values(method, measure).items()}
    return {"mean": found.mean, "deviation": found.deviation, "n": found.count, "by_seed": by_seed}


def _overall(found: Comparison, method: str) -> dict[str, Any]:
    pair = found.overall(method, found.baseline, found.decides)
    wins, ties, losses = found.tally(method, found.baseline, found.decides)
    told = {"method": method, "cases_won": wins, "cases_tied": ties, "cases_lost": losses}
    return told | ({} if pair is None else _pair(pair))


def _pair(pair: Pair) -> dict[str, Any]:
    seeds = pair.over_seeds
    return {
        "first": pair.first,
        "second": pair.second,
        "measure": pair.measure,
        "difference": seeds.mean,
        "differences": list(seeds.differences),
        "t_interval_95_over_seeds": None if seeds.interval is None else list(seeds.interval),
        "p": seeds.p,
        "bootstrap_95_over_images": None if pair.over_images is None else list(pair.over_images),
        "cohens_d": seeds.effect,
        "wins": seeds.wins,
        "ties": seeds.ties,
        "losses": seeds.losses,
        "verdict": seeds.verdict,
    }

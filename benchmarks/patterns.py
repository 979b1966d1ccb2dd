"""How often each pattern of uncertainty can be reached, with each goal: a row per pattern and goal, as Markdown.

python benchmarks/patterns.py RUN --images 60 --epsilon 0.3 [--thresholds 0.7 0.2] [--climbers 0] [--mutation 0]
    [--natural t6] [--patterns HH]
"""

import argparse
from pathlib import Path
from time import monotonic

from ukemi.cli.generate import GenerateConfig
from ukemi.cli.uncertain import asked, recognised, thresholds_of
from ukemi.spaces import space_of
from ukemi.uncertainty import GOALS, PATTERNS, SearchSettings, Target, generate, natural
from ukemi.uncertainty.generation import PixelMaker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--passes", type=int, default=50)
    parser.add_argument("--epsilon", type=float, default=8 / 255)
    parser.add_argument("--mutation", type=float, default=SearchSettings().mutation)
    parser.add_argument("--climbers", type=int, default=SearchSettings().climbers)
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=PATTERNS)
    parser.add_argument("--thresholds", type=float, nargs=2, default=None, metavar=("PCS", "VR"))
    parser.add_argument("--natural", default=None, metavar="SPACE")
    told = parser.parse_args()
    limits = (
        {}
        if told.thresholds is None
        else {f"{name}_thresholds": (value,) for name, value in zip(("pcs", "vr"), told.thresholds, strict=True)}
    )
    config = GenerateConfig(run=told.run, images=told.images, passes=told.passes, epsilon=told.epsilon, **limits)
    found = asked(config, config.images)
    seeds = recognised(found)
    thresholds, found_by = thresholds_of(config, found)
    settings = SearchSettings(epsilon=told.epsilon, mutation=told.mutation, climbers=told.climbers)
    maker = PixelMaker if told.natural is None else natural(space_of(told.natural))
    print(f"{len(seeds)} seeds, {thresholds} ({found_by}), {settings}, natural {told.natural}\n")
    print("| pattern | goal | success | claimed | best fitness | median fitness | generations | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for goal in GOALS:
        for pattern in told.patterns:
            began = monotonic()
            made = generate(found.source, seeds, Target(pattern, goal, thresholds), settings, maker=maker)
            numbers = f"{made.success_rate:.0%} | {int(made.claimed.sum())} | {float(made.fitness.max()):.3f}"
            rest = f"{float(made.fitness.median()):.3f} | {float(made.generations.double().mean()):.1f}"
            print(f"| {pattern} | {goal} | {numbers} | {rest} | {monotonic() - began:.0f} |", flush=True)


if __name__ == "__main__":
    main()

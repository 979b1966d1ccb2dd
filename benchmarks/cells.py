"""Trains and measures the cells of a table of experiments, one after the other, and goes on where it stopped.

    python benchmarks/cells.py run --groups cifar10-t3 --seeds 0 --seconds 500
    python benchmarks/cells.py report

The cells are in `benchmarks/cells.toml`: every one is a training (the settings of `ukemi train`) and the grid on which
it is measured. One line per finished cell and seed goes to `results/cells.jsonl`; what is there is not run again.
Groups are run in the order in which they are named; the same command may run several times beside itself (--shared).
--compile trains every cell compiled and autotuned, which takes about half the time of an H200 on a small network.
--validation 0.1 measures on a validation split instead of the test set, to choose settings; such lines say so.
"""

import argparse
import json
import statistics
import tempfile
import tomllib
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from lines import HERE, Line, append, commit, device_name, left, read
from subsets import fewer

from ukemi.measures import robustness_of
from ukemi.repairs import retrain
from ukemi.spaces import named_grid
from ukemi.training import TrainConfig, train
from ukemi.training.setup import load_sets, trained_model

ABOUT = ("group", "name", "grid", "paper", "target", "take", "test", "same", "then", "note")
FIGURE_4 = (1, 2, 5, 10, 15, 20, 24, 30)
"""epochs that are shown"""


def cells(path: Path, groups: list[str] | None) -> list[dict[str, Any]]:
    tables = tomllib.loads(path.read_text())
    found = []
    for group in groups or tables["groups"]:
        shared = dict(tables["groups"][group])
        shared = {**tables.get("like", {}).get(shared.pop("like", ""), {}), **shared}
        papers, methods, _ = shared.pop("paper", {}), shared.pop("methods", []), shared.pop("note", "")
        named = [{"name": name, **tables["methods"][name]} for name in methods]
        papers = {name: {"paper": figure} for name, figure in papers.items()}
        own = [cell for cell in tables.get("cells", []) if cell["group"] == group]
        found += [{**shared, "group": group, **papers.get(cell["name"], {}), **cell} for cell in [*own, *named]]
    return found


def told(cell: dict[str, Any], seed: int, args: argparse.Namespace, out: Path) -> TrainConfig:
    fields = {name.replace("-", "_"): value for name, value in cell.items() if name not in ABOUT}
    fields |= json.loads(args.change or "{}")
    if args.compile:
        fields |= {"compile": True, "autotune": True}
    if args.data:
        fields["data_folder"] = args.data
    if "take" in cell:
        fields["data"] = str(fewer(fields["data"], args.data, cell["take"], out.parent / "few.npz", cell.get("test")))
    return TrainConfig(**fields, seed=seed, validation=args.validation, out=out)


def measured(config: TrainConfig, cell: dict[str, Any], validation: bool) -> dict[str, Any]:
    began = perf_counter()
    run = train(config, quiet=True)
    row: dict[str, Any] = {"seconds": perf_counter() - began}
    log = run.read_log()
    row["epoch_seconds"] = statistics.median(b["seconds"] - a["seconds"] for a, b in pairwise(log))
    row["losses"] = [round(line["loss"], 3) for line in log]
    row["scoring_forwards"] = log[-1]["scoring_forwards"]
    if cell.get("then") == "retrain":
        retrained = retrain(run, quiet=True)
        run, row["scoring_forwards"], row["seconds"] = retrained.run, retrained.forwards, perf_counter() - began
    row["scoring_forwards_saved"] = log[-1].get("scoring_forwards_saved", 0)
    sets, device = load_sets(config), config.chosen_device()
    held = sets.validation if validation else sets.test
    assert held is not None
    model, held = trained_model(run, config, held)
    model, held = model.to(device, memory_format=torch.channels_last), held.to(device)  # type: ignore[call-overload]
    space, grid = named_grid(cell["grid"], held.size)
    began = perf_counter()
    found = robustness_of(model, held, space, grid=grid)
    row |= {"accuracy": found.accuracy, "robust": found.robust_accuracy}
    return row | {"images": len(held), "evaluation_seconds": perf_counter() - began}


def wanted(args: argparse.Namespace) -> Iterator[tuple[Line, dict[str, Any]]]:
    """One seed of everything first."""
    for seed in args.seeds:
        for cell in cells(args.cells, args.groups):
            if args.names is None or cell["name"] in args.names:
                key = {"group": cell["group"], "name": cell["name"], "seed": seed, "validation": args.validation}
                yield {**key, "change": args.change or ""}, cell


def run(args: argparse.Namespace) -> None:
    about = {"device": device_name(), "torch": torch.__version__, "commit": args.commit or commit()}
    for key, cell in left(wanted(args), args.out, args.seconds):
        with tempfile.TemporaryDirectory() as folder:
            config = told(cell, key["seed"], args, Path(folder) / "run")
            line = {**key, **measured(config, cell, args.validation > 0), **about}
        line |= {"epochs": config.epochs, "grid": cell["grid"], "shared": args.shared}
        append(args.out, line | {"compiled": config.compile, "autotuned": config.autotune})
        shown = {name: round(line[name], 4) for name in ("accuracy", "robust", "seconds", "epoch_seconds")}
        print({**key, **shown}, flush=True)


def report(args: argparse.Namespace) -> None:
    """One table per group that has a line; cells without one are listed as open."""
    lines = [line for line in read(args.out) if not line["validation"] and not line["change"]]
    text = "# Cells\n\nMade by `python benchmarks/cells.py report` from `results/cells.jsonl`, which"
    text += " `python benchmarks/cells.py run` wrote; the settings are in `benchmarks/cells.toml`. Test images;"
    text += " mean ± standard deviation over n seeds. Seconds run from reading the data to the written weights;"
    text += " there are none where other work ran on the same device, or where --compile was asked for.\n"
    untouched = ""
    for group, members in groupby(cells(args.cells, args.groups), key=lambda cell: str(cell["group"])):
        own, table = [line for line in lines if line["group"] == group], list(members)
        if own:
            said = tomllib.loads(args.cells.read_text())["groups"][group].get("note")
            text += f"\n## {group}\n\n" + rows(table, own) + (f"\n{said}\n" if said else "")
        else:
            untouched += f"- {group}: {'; '.join(cell['name'] for cell in table)}\n"
    text += gains(lines, args) + reductions(lines, args) + chosen_losses(lines)
    text += f"\n## Open groups\n\n{untouched}" if untouched else ""
    machines = sorted({f"{line['device']}, torch {line['torch']}, commit {line['commit']}" for line in lines})
    text += "\nMachines: " + "; ".join(machines) + ".\n"
    (args.out.parent / "cells.md").write_text(text)
    print(text)


def rows(table: list[dict[str, Any]], lines: list[Line]) -> str:
    """The table of a group, and what is said of its cells."""
    text = "| cell | n | accuracy | robust | grid | paper | target | epochs | seconds | s / epoch | passes saved |\n"
    text += "| --- " * 11 + "|\n"
    for cell in table:
        own = [line for line in lines if line["name"] == cell["name"]]
        about = (str(cell.get("paper", "")), str(cell.get("target", "")))
        if not own:
            text += f"| {cell['name']} | open | | | {cell['grid']} | {about[0]} | {about[1]} | | | | |\n"
            continue
        text += f"| {cell['name']} | {len(own)} | {spread(own, 'accuracy')} | {spread(own, 'robust')} |"
        alone = [line for line in own if not line.get("shared") and _as_told(line, cell)]
        text += f" {cell['grid']} | {about[0]} | {about[1]} | {own[0]['epochs']} | {spread(alone, 'seconds', 1)} |"
        saved = sum(line.get("scoring_forwards_saved", 0) for line in own)
        share = saved / max(1, saved + sum(line.get("scoring_forwards", 0) for line in own))
        text += f" {spread(alone, 'epoch_seconds', 1)} | {f'{share:.0%}' if saved else ''} |\n"
    return text + "".join(f"\n{cell['name']}: {cell['note']}\n" for cell in table if "note" in cell)


def _as_told(line: Line, cell: dict[str, Any]) -> bool:
    """Whether it was trained as its cell says; older lines, which do not tell, were."""
    told = {"compiled": cell.get("compile", False), "autotuned": cell.get("autotune", False)}
    return all(line.get(name, value) == value for name, value in told.items())


def chosen_losses(lines: list[Line]) -> str:
    """Paper 1, Figure 4: the loss of the variants that were trained on, which a better search makes higher."""
    text = "\n## Loss of the variants that were trained on (paper 1, Figure 4)\n\n"
    text += "Mean training loss of an epoch, seed 0.\n"
    text += "\n| group | method | " + " | ".join(f"epoch {epoch}" for epoch in FIGURE_4) + " |\n"
    text += "| --- " * (2 + len(FIGURE_4)) + "|\n"
    kept = [line for line in lines if line["seed"] == 0 and "losses" in line]
    for group in dict.fromkeys(line["group"] for line in kept):
        own = {line["name"]: line["losses"] for line in kept if line["group"] == group}
        names = [name for name in ("random", "worst-of-10", "sensei") if name in own]
        if len(names) < 2:
            continue
        for name in names:
            shown = (f"{own[name][epoch - 1]:.3f}" if epoch <= len(own[name]) else "" for epoch in FIGURE_4)
            text += f"| {group} | {name} | {' | '.join(shown)} |\n"
    return text


def plain(line: Line) -> str:
    """A cell's name without its network."""
    return str(line["name"]).removesuffix(", resnet20")


def gains(lines: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """Does the search beat worst-of-10? Points of robust accuracy above it, seed by seed, at equal scoring passes."""
    text = "\n## Does the search beat worst-of-10?\n\nPoints of robust accuracy above worst-of-10 with the same seed,"
    text += (
        " data, epochs and scoring passes per sample and epoch (the search's first epoch is clean, so it has one epoch"
    )
    text += " of passes less): mean ± standard deviation, and the number of seeds.\n\n"
    text += "| set, images, epochs | sensei | sensei edge 0.3 | ukemi (cross-entropy) |\n" + "| --- " * 4 + "|\n"
    measured = []
    for group, same in dict.fromkeys((cell["group"], cell.get("same")) for cell in cells(args.cells, args.groups)):
        if not group.startswith("search-or-luck"):
            continue
        shared = [line for line in lines if line["group"] == same and plain(line) in ("sensei", "worst-of-10")]
        own = {
            (plain(line), line["seed"]): line["robust"] for line in lines if line["group"] == group or line in shared
        }
        base = {seed: robust for (name, seed), robust in own.items() if name.startswith("worst-of")}
        row = []
        for name in ("sensei", "sensei edge 0.3", "ukemi"):
            found = [100 * (own[name, seed] - base[seed]) for seed in base if (name, seed) in own]
            measured += [found] if found else []
            deviation = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
            row.append(f"{statistics.mean(found):+.1f}{deviation} ({len(found)})" if found else "open")
        text += f"| {group.removeprefix('search-or-luck-')} | {' | '.join(row)} |\n"
    if measured:
        means = [statistics.mean(found) for found in measured]
        repeated = [found for found in measured if len(found) > 1]
        sure = sum(statistics.mean(found) > 2 * statistics.stdev(found) / len(found) ** 0.5 for found in repeated)
        ahead = f"{sum(mean > 0 for mean in means)} of the {len(means)} differences measured so far"
        text += f"\nThe search is ahead in {ahead}, by {min(means):+.1f} to {max(means):+.1f} points; in {sure} of the"
        text += f" {len(repeated)} that have two seeds or more by more than twice the standard error.\n"
    return text


def reductions(lines: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """Beside Yang et al.: by how much of worst-of-10's robust error each method lowers it, seed by seed."""
    text = "\n## Robust error beside worst-of-10 (Yang et al.)\n\nRelative reduction of robust error, same seed: mean ±"
    text += " standard deviation, and the number of seeds. The SENSEI paper reports 23.5 %, Yang et al. 21.9 %.\n\n"
    text += "| group | method | reduction |\n| --- | --- | --- |\n"
    for cell in cells(args.cells, args.groups):
        if not cell["group"].startswith("yang") or cell["name"] == "worst-of-10":
            continue
        own = [line for line in lines if line["group"] == cell["group"]]
        base = {line["seed"]: 1 - line["robust"] for line in own if line["name"] == "worst-of-10"}
        mine = {line["seed"]: 1 - line["robust"] for line in own if line["name"] == cell["name"]}
        found = [{"reduction": 1 - mine[seed] / base[seed]} for seed in base if seed in mine]
        said = f"{spread(found, 'reduction')} % ({len(found)})" if found else "open"
        text += f"| {cell['group']} | {cell['name']} | {said} |\n"
    return text


def spread(lines: list[dict[str, Any]], name: str, scale: float = 100) -> str:
    values = [scale * line[name] for line in lines]
    if not values:
        return ""
    return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "report"])
    parser.add_argument("--cells", type=Path, default=HERE / "cells.toml")
    parser.add_argument("--groups", nargs="+")
    parser.add_argument("--names", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--seconds", type=float, default=1e9, help="no cell is begun after this many")
    parser.add_argument("--validation", type=float, default=0.0)
    parser.add_argument("--change", help="JSON of settings that replace a cell's, for trying things out")
    parser.add_argument("--compile", action="store_true", help="compile and autotune what is trained; the lines say so")
    parser.add_argument("--shared", action="store_true", help="other work runs on the device: seconds are not reported")
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--commit", help="where the tree travels without its history")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "cells.jsonl")
    args = parser.parse_args()
    (run if args.verb == "run" else report)(args)


if __name__ == "__main__":
    main()

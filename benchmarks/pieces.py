"""What `benchmarks/dare.py` and `benchmarks/uncertainty.py` share: an experiment of `ukemi.experiments`, piece by piece
into lines of JSON that outlive the machine, within a given time."""

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from lines import HERE, Line, append, claimed, commit, has, read

from ukemi.cli.main import command
from ukemi.experiments import CellConfig, ExperimentConfig, Place
from ukemi.experiments.running import lined
from ukemi.recipes import recipes


class OutOfTime(Exception):
    """No further piece of work is begun."""


def parser(experiment: str, about: str, verbs: list[str]) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("verb", choices=verbs)
    found.add_argument("--cells", "--models", nargs="+", help="names of cells; default: all")
    found.add_argument("--pieces", "--methods", "--stages", nargs="+", help="pieces, or how they begin; default: all")
    found.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    found.add_argument("--sizes", help="JSON of sizes that replace those of the benchmark; lines say so")
    found.add_argument("--seconds", type=float, default=1e9, help="no piece of work is begun after this many")
    found.add_argument("--data", type=Path, help="the folder of data sets")
    found.add_argument("--device", default="auto")
    found.add_argument("--shared", action="store_true", help="other work runs on the device: the report says so")
    found.add_argument("--work", type=Path, default=HERE.parent / "runs" / experiment, help="what takes long is kept")
    found.add_argument("--commit", help="where the tree travels without its history")
    found.add_argument("--out", type=Path, default=HERE.parent / "results" / f"{experiment}.jsonl")
    return found


def configured(experiment: str, args: argparse.Namespace, sizes: dict[str, Any], cells: list[Any]) -> ExperimentConfig:
    """The experiment with the benchmark's sizes; cells are those of the recipes and `cells`."""
    given = {**sizes, **json.loads(args.sizes or "{}")}
    own = [one for one in recipes().values() if one.common.get("experiment") == experiment]
    recipe = next(one for one in own if "cells" not in one.sizes["full"])
    full = recipe.config("full", sizes=given, device=args.device, data_folder=args.data, runs=args.work)
    assert isinstance(full, ExperimentConfig)
    return full.model_copy(update={"cells": (*cells, *full.cells)})


def pieces_of(config: ExperimentConfig, cell: CellConfig) -> list[str]:
    """All that the recipes measure of a cell; of the small one, everything."""
    found: dict[str, None] = {}
    for recipe in recipes().values():
        if recipe.common.get("experiment") == config.experiment:
            named = recipe.sizes["full"].get("cells", [cell.name])
            if cell.name in named or cell.data == "fashion-mini":
                found |= dict.fromkeys(config.kind.parts[recipe.common["part"]])
    order = [piece for pieces in config.kind.parts.values() for piece in pieces]
    return sorted(found, key=order.index)


def chosen(config: ExperimentConfig, args: argparse.Namespace) -> list[CellConfig]:
    known = [cell.name for cell in config.cells]
    for name in args.cells or []:
        if name not in known:
            raise SystemExit(f"cells: {name!r} is none of {', '.join(known)}.")
    wanted = [cell for cell in config.cells if args.cells is None or cell.name in args.cells]
    return [cell for cell in wanted if not cell.not_run]


def placed(config: ExperimentConfig, cell: CellConfig, seed: int, ends: float) -> Place:
    """The cell where no piece of work is begun after `ends`."""

    def check(piece: str) -> None:
        if perf_counter() > ends:
            raise OutOfTime(piece)

    return replace(config.placed(cell, seed, command), before=check)


def run(config: ExperimentConfig, args: argparse.Namespace, sized: Callable[[Place], Any]) -> None:
    """One seed of everything first; a line of every piece that is not there with these sizes. The pieces of a cell and
    a seed share a folder, so one process has them all."""
    ends = perf_counter() + args.seconds
    try:
        for seed in args.seeds:
            for cell in chosen(config, args):
                place = placed(config, cell, seed, ends)
                with claimed(args.out, {"cell": cell.name, "seed": seed, "sizes": sized(place)}) as mine:
                    if mine:
                        _run_pieces(config, place, sized(place), args)
    except OutOfTime as piece:
        print(f"out of time before {piece}", flush=True)


def _run_pieces(config: ExperimentConfig, place: Place, sizes: Any, args: argparse.Namespace) -> None:
    cell, about = place.cell, {"commit": args.commit or commit(), "shared": args.shared}
    subject = config.kind.subject(place)
    wanted = {
        piece: {**config.kind.subject.key(cell.name, piece), "seed": place.seed, "sizes": sizes}
        for piece in pieces_of(config, cell)
        if _wanted(piece, args)
    }
    if _all_of_one_base(wanted.values(), args.out):
        return
    base = _base_of(subject)
    for piece, name in wanted.items():
        key = {**name, "base": base}
        if has(args.out, key):
            continue
        place.before(piece)
        with peak_memory() as peak:
            line = {**lined(config, place, piece, subject.line), **key, **about}
        append(args.out, line | peak)
        print(cell.name, place.seed, piece, f"{line['took']:.0f} s", flush=True)


def _base_of(subject: Any) -> str:
    """The base model's mark; it is trained where it is not there yet, elsewhere to other weights."""
    run = subject.run
    folder = run() if callable(run) else run.folder
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:16]


def _all_of_one_base(keys: Iterable[Line], path: Path) -> bool:
    there = of_one_base(read(path))
    found = [[line for line in there if line.items() >= key.items()] for key in keys]
    return all(found) and len({line.get("base") for own in found for line in own}) <= 1


def of_one_base(lines: list[Line]) -> list[Line]:
    """The lines without those whose base model was replaced: of a network, a seed and a size only lines of the base
    model that the last one has belong together, since sets are frozen on it and methods change it."""

    def group(line: Line) -> str:
        return json.dumps([line.get("cell", line.get("model")), line.get("seed"), line.get("sizes")])

    last = {group(line): line.get("base") for line in lines}
    return [line for line in lines if line.get("base") == last[group(line)]]


@contextmanager
def peak_memory() -> Iterator[dict[str, float]]:
    """Filled with the GPU memory, in GB, that torch held at most inside; empty without a GPU."""
    found: dict[str, float] = {}
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    yield found
    if torch.cuda.is_available():
        found["peak_gb"] = torch.cuda.max_memory_reserved() / 1e9


def _wanted(piece: str, args: argparse.Namespace) -> bool:
    return args.pieces is None or piece in args.pieces or piece.partition(" ")[0] in args.pieces


def machines(lines: list[Line]) -> str:
    found = sorted({f"{line['device']}, torch {line['torch']}, commit {line['commit']}" for line in lines})
    return "\nMachines: " + "; ".join(found) + ".\n"

"""STYX on its paper's five models beside traditional and adversarial training; goes on where it stopped.

    python benchmarks/styx.py run --seconds 500
    python benchmarks/styx.py report

Models, methods and the paper's figures are in `benchmarks/styx.toml`. One line per trained and measured model goes to
`results/styx.jsonl`; what is there with the same sizes is not run again, on whatever device. --epochs, --images and
--few make a smaller experiment: such lines say so, and the report keeps them in a table of their own. --images 0 trains
without attacking afterwards, to measure the time alone. With --work, trainings are kept there and go on from their last
epoch; what they took is then no measurement.
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from lines import HERE, Line, append, commit, device_name, left, read
from torch import nn

from ukemi.attacks.config import AttackConfig
from ukemi.augmenters import mutated
from ukemi.data import Data
from ukemi.measures import accuracy
from ukemi.measures.attacks import UnderAttack, styx_grid, under_attack
from ukemi.models import create
from ukemi.schema import read_config
from ukemi.training import Run, TrainConfig, train
from ukemi.training.setup import fixed_subset, load_sets, trained_model

TABLES = read_config(HERE / "styx.toml")
MODELS, METHODS, ATTACKS, MUTATORS = (TABLES[name] for name in ("models", "methods", "attacks", "mutators"))
SIZES = ("epochs_changed", "images", "few")
"""what the lines of one table share: what a network is worth does not hang on where it was trained, its seconds do"""
CW = "carlini-wagner"


def network(name: str, channels: int, size: int) -> nn.Module:
    """A network of the paper as Keras begins it: pixels as they are, Glorot's weights, biases of 0."""
    made = create(name, classes=10, channels=channels, size=(size, size))
    for layer in made.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return made


def told(model: str, method: str, seed: int, args: argparse.Namespace, out: Path) -> TrainConfig:
    """The training of one line."""
    about = dict(MODELS[model])
    how = {name: value for name, value in METHODS[method].items() if name not in ("only", "mutator")}
    for name in ("paper", "pgd"):
        about.pop(name)
    colour = about["data"] == "cifar10"
    about |= {"model": "styx:network", "epochs": args.epochs or about["epochs"]}
    about["model_arguments"] = {
        "name": about.pop("network"),
        "channels": 3 if colour else 1,
        "size": 32 if colour else 28,
    }
    return TrainConfig(
        **about,
        **how,
        **dict.fromkeys(args.quicker, True),
        schedule="constant",
        weight_decay=0,
        validation=0,
        seed=seed,
        data_folder=args.data,
        checkpoint_minutes=0,
        out=out,
    )


def mutated_ahead(config: TrainConfig, mutator: str, path: Path) -> tuple[TrainConfig, float]:
    """The same training on a mutated set, and the seconds that mutating took (files are read and written outside)."""
    sets, device = load_sets(config), config.chosen_device()
    train_part = sets.train.to(device)
    mutated(train_part.take(torch.arange(2)), mutator=mutator)  # what a device does once
    began = now(device)
    harder = mutated(train_part, mutator=mutator, seed=config.seed)
    seconds = now(device) - began
    parts = {
        "x_train": harder.images,
        "y_train": harder.labels,
        "x_test": sets.test.images,
        "y_test": sets.test.labels,
    }
    arrays: dict[str, Any] = {name: torch.as_tensor(value).cpu().numpy() for name, value in parts.items()}
    np.savez(path, **arrays)
    fields = {name: getattr(config, name) for name in TrainConfig.model_fields}
    return TrainConfig(**fields | {"data": str(path)}), seconds


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def measured(config: TrainConfig, model: str, method: str, args: argparse.Namespace) -> dict[str, Any]:
    mutator, mutation = METHODS[method].get("mutator"), 0.0
    if mutator is not None:
        config, mutation = mutated_ahead(config, mutator, config.folder().with_suffix(".npz"))
    run = train(config, resume=Run(config.folder()).has_checkpoint(), quiet=True)
    clocks = [0.0, *(line["seconds"] for line in run.read_log())]
    each = [after - before for before, after in pairwise(clocks)]
    row: dict[str, Any] = {
        "seconds": clocks[-1] + mutation,
        "mutation_seconds": mutation,
        "epoch_seconds": statistics.median(each[1:] or each),
    }
    device = config.chosen_device()
    net, test = trained_model(run, config, load_sets(config).test)
    net, test = net.to(device), test.to(device)
    began = perf_counter()
    row["accuracy"] = accuracy(net, test, device)[0]
    if args.images:
        row["robustness"] = attacked(net, fixed_subset(test, args.images, 0))
        row |= beyond(net, test, model, args)
    return row | {"evaluation_seconds": perf_counter() - began}


def attacked(net: nn.Module, images: Data) -> dict[str, float]:
    """STYX's grid: its mean robustness per attack and norm, and per attack."""
    rows = {
        group: statistics.mean(under_attack(net, images, config.made()).robustness for config in configs)
        for group, configs in styx_grid().items()
    }
    for attack in ATTACKS:
        own = [value for group, value in rows.items() if group.split("-")[0] == attack]
        rows[attack] = statistics.mean(own)
    return rows


def beyond(net: nn.Module, test: Data, model: str, args: argparse.Namespace) -> dict[str, Any]:
    """Attacks that the paper did not use: PGD at a fixed budget, C&W and JSMA on few images."""
    few = fixed_subset(test, args.few, 0)
    pgd = AttackConfig(attack="pgd", epsilon=MODELS[model]["pgd"], steps=40)
    found: dict[str, UnderAttack] = {
        "pgd": under_attack(net, fixed_subset(test, args.images, 0), pgd.made(0)),
        CW: under_attack(net, few, AttackConfig(attack=CW).made()),
        "jsma": under_attack(net, few, AttackConfig(attack="jsma").made()),
    }
    values = {name: {"robustness": one.robustness, "distance": one.median_distance} for name, one in found.items()}
    return {"beyond": values}


def wanted(args: argparse.Namespace) -> Iterator[tuple[Line, tuple[str, str]]]:
    """One seed of everything first."""
    size = dict(zip(SIZES, (args.epochs, args.images, args.few), strict=True))
    for seed in args.seeds:
        for model in args.models:
            for method in args.methods:
                if model in METHODS[method].get("only", [model]):
                    yield {"model": model, "method": method, "seed": seed, **size}, (model, method)


@contextmanager
def place(key: Line, work: Path | None) -> Iterator[Path]:
    """A folder for one training: one for the time being, or one that stays."""
    if work is not None:
        kept = work / "-".join(str(value).replace(" ", "-").replace("/", "-") for value in key.values())
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def run(args: argparse.Namespace) -> None:
    about = {"device": device_name(), "torch": torch.__version__, "commit": args.commit or commit()}
    for key, (model, method) in left(wanted(args), args.out, args.seconds):
        with place(key, args.work) as folder:
            config = told(model, method, key["seed"], args, folder / "run")
            line = {**key, "epochs": config.epochs, **measured(config, model, method, args), **about}
        append(args.out, line | {"shared": args.shared})
        shown = {name: round(line["robustness"][name], 3) for name in ATTACKS} if args.images else {}
        print({**key, "accuracy": line["accuracy"], **shown, "seconds": round(line["seconds"], 1)}, flush=True)


def report(args: argparse.Namespace) -> None:
    from styx_report import text

    written = text(read(args.out), TABLES, SIZES)
    args.out.with_suffix(".md").write_text(written)
    print(written)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "report"])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=TABLES["seeds"])
    parser.add_argument("--epochs", type=int, help="instead of the paper's")
    parser.add_argument("--images", type=int, default=10_000, help="test images for STYX's grid and PGD; 0: time alone")
    parser.add_argument("--few", type=int, default=500, help="test images for C&W and JSMA")
    quicker = ["compile", "channels_last"]
    parser.add_argument("--quicker", nargs="+", choices=quicker, default=[], help="switches of training's speed")
    parser.add_argument("--seconds", type=float, default=1e9, help="no line is begun after this many")
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--work", type=Path, help="where trainings are kept, to go on after a stop; implies --shared")
    parser.add_argument("--shared", action="store_true", help="other work runs on the device: seconds are not reported")
    parser.add_argument("--commit", help="where the tree travels without its history")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "styx.jsonl")
    args = parser.parse_args()
    args.shared = args.shared or args.work is not None
    (run if args.verb == "run" else report)(args)


if __name__ == "__main__":
    main()

"""CIFAR-10, ResNet-20 on a GPU: time and robust accuracy of standard, random and worst-of-10 training, end to end.

    python benchmarks/cifar10_gpu.py --data data/cifar10.npz --seeds 0 1 2 --out results

A run is timed from reading the data set on the disk to the written weights. --validation 0.1 measures on a validation
split instead, to choose settings; the test set is measured once per run, at the end.
"""

import argparse
import json
import platform
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import ukemi
from ukemi.augmenters import AUGMENTERS
from ukemi.data import Data
from ukemi.measures import robustness_of
from ukemi.training import TrainConfig, train
from ukemi.training.setup import load_sets, trained_model

CARE = """
How to read it: all networks were trained on T3, so the T6 columns show a space that they never saw; few images survive
it, and images leave at their first failure, so a network trained on T6 takes longer to evaluate. Training seconds run
from reading the data to the written weights, inside one process: imports are not in them, and only the first run of the
process (its first row) pays for starting the GPU's libraries.
"""


def config_of(args: argparse.Namespace, augmenter: str, seed: int, out: Path) -> TrainConfig:
    return TrainConfig(
        data=args.data,
        model="resnet20",
        augmenter=AUGMENTERS[augmenter](),
        epochs=args.epochs,
        batch_size=512,
        learning_rate=args.learning_rate,
        flips=True,
        seed=seed,
        validation=args.validation,
        precision=args.precision,
        channels_last=args.channels_last,
        compile=args.compile,
        cuda_graphs=not args.eager,
        out=out,
    )


def measured(model: torch.nn.Module, data: Data, space: ukemi.Space) -> dict[str, Any]:
    began = perf_counter()
    found = robustness_of(model, data, space)
    return {
        "accuracy": found.accuracy,
        "robust": found.robust_accuracy,
        "variants": len(found.grid),
        "forwards": found.forwards,
        "seconds": perf_counter() - began,
    }


def one(args: argparse.Namespace, augmenter: str, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(args, augmenter, seed, Path(folder) / "run")
        began = perf_counter()
        run = train(config, quiet=True)
        torch.cuda.synchronize()
        row: dict[str, Any] = {"augmenter": augmenter, "seed": seed, "train_seconds": perf_counter() - began}
        ends = [line["seconds"] for line in run.read_log()]
        row["first_epoch_seconds"] = ends[0]
        row["epoch_seconds"] = statistics.median(b - a for a, b in pairwise(ends))
        sets = load_sets(config)
        device = config.chosen_device()
        model, held = trained_model(run, config, (sets.validation or sets.test) if args.validation else sets.test)
        model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        row["t3"] = measured(model, held.to(device), ukemi.T3)
        if args.t6:
            row["t6"] = measured(model, held.to(device), ukemi.T6)
    print(json.dumps(row), flush=True)
    return row


def spread(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def report(args: argparse.Namespace, rows: list[dict[str, Any]], seeds: list[int]) -> str:
    where = "the validation split" if args.validation else "all 10,000 test images"
    versions = f"ukemi {ukemi.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    text = "# CIFAR-10, ResNet-20, one GPU\n\n"
    text += f"`python benchmarks/cifar10_gpu.py {args.said}` on {torch.cuda.get_device_name()}, {versions}.\n"
    text += f"{args.epochs} epochs, batch 512, one-cycle to {args.learning_rate}, flips, {args.precision}; {where}.\n"
    text += f"Seeds: {', '.join(map(str, seeds))}; mean ± standard deviation over seeds.\n\n"
    text += "| augmenter | accuracy | robust, T3 (81) | training, s | T3 evaluation, s |"
    text += " robust, T6 (2187) | T6 evaluation, s |\n" if args.t6 else "\n"
    text += "| --- | --- | --- | --- | --- |" + (" --- | --- |\n" if args.t6 else "\n")
    for augmenter in args.augmenters:
        own = [row for row in rows if row["augmenter"] == augmenter]
        cells = [
            spread([100 * row["t3"]["accuracy"] for row in own]),
            spread([100 * row["t3"]["robust"] for row in own]),
        ]
        cells += [spread([row["train_seconds"] for row in own]), spread([row["t3"]["seconds"] for row in own])]
        if args.t6:
            cells += [spread([100 * row["t6"]["robust"] for row in own]), spread([row["t6"]["seconds"] for row in own])]
        text += f"| {augmenter} | " + " | ".join(cells) + " |\n"
    return text + CARE


def words_of(value: Any) -> list[str]:
    """What is written behind a flag."""
    if value is True:
        return []
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--augmenters", nargs="+", default=["standard", "random", "worst-of"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--learning-rate", type=float, default=0.4)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs")
    parser.add_argument("--tune", action="store_true", help="let cuDNN try its kernels on first use")
    parser.add_argument("--validation", type=float, default=0.0)
    parser.add_argument("--t6", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    shown = {name: value for name, value in vars(args).items() if value != parser.get_default(name) and name != "out"}
    args.said = " ".join(
        " ".join([f"--{name.replace('_', '-')}", *words_of(value)]) for name, value in shown.items() if name != "data"
    )
    torch.backends.cudnn.benchmark = args.tune
    rows: list[dict[str, Any]] = []
    for seed in args.seeds:
        rows += [one(args, augmenter, seed) for augmenter in args.augmenters]
        text = report(args, rows, args.seeds[: args.seeds.index(seed) + 1])
        if args.out:  # after every seed, so that what is measured is kept
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / "cifar10-resnet20-gpu.md").write_text(text)
            (args.out / "cifar10-resnet20-gpu.json").write_text(json.dumps(rows, indent=1))
    print(text)


if __name__ == "__main__":
    main()

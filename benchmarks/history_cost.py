"""What keeping a history costs a training: ResNet-20, with the weights of every epoch kept and without, in turns.

    python benchmarks/history_cost.py --data FOLDER --out results/history-cost-gpu.md

A standard training, the fastest that there is, so that the share is the largest. The median epoch of each run, without
the first two; every epoch writes one file of the same size, so fewer epochs than 100 say the same.
"""

import argparse
import platform
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path

import torch
from lines import commit, device_name, told

import ukemi
from ukemi.training import TrainConfig, train

LIMIT = 5.0
"""percent of the training time, at most"""


def trained(history: int, args: argparse.Namespace) -> tuple[float, float, float]:
    """Seconds of the median epoch and of all epochs, and the history's megabytes."""
    with tempfile.TemporaryDirectory() as folder:
        on_gpu = torch.cuda.is_available()
        config = TrainConfig(
            data=args.set,
            data_folder=args.data,
            model="resnet20",
            epochs=args.epochs,
            batch_size=512,
            learning_rate=0.4,
            flips=True,
            precision="bfloat16" if on_gpu else "float32",
            channels_last=on_gpu,
            validation=0,
            checkpoint_minutes=0,
            history=history,
            out=Path(folder) / "run",
        )
        run = train(config, quiet=True)
        clocks = [line["seconds"] for line in run.read_log()]
        size = sum(file.stat().st_size for file in run.folder.rglob("*") if "history" in str(file) and file.is_file())
    return statistics.median(after - before for before, after in list(pairwise(clocks))[1:]), clocks[-1], size / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="cifar10")
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--commit", help="where the tree travels without its history")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = "# What a history costs\n\n"
    text += f"`python benchmarks/history_cost.py --set {args.set} --epochs {args.epochs} --turns {args.turns}` on"
    text += (
        f" {device_name()}, ukemi {ukemi.__version__}, torch {torch.__version__}, Python {platform.python_version()},"
    )
    text += (
        f" commit {args.commit or commit()}. ResNet-20, standard training, batch 512; the weights of every epoch are"
    )
    text += f" kept, or none. Wanted: below {LIMIT:g} % of the training time.\n\n"
    text += "| turn | history | s / epoch, median | s, all epochs | MB kept |\n" + "| --- " * 5 + "|\n"
    found: dict[int, list[float]] = {0: [], args.epochs: []}
    for turn in range(args.turns):
        for history in list(found)[:: 1 if turn % 2 == 0 else -1]:
            epoch, seconds, size = trained(history, args)
            found[history].append(epoch)
            row = (
                f"| {turn + 1} | {'every epoch' if history else 'none'} | {epoch:.4f} | {seconds:.2f} | {size:.1f} |\n"
            )
            text += row
            print(row, end="", flush=True)
    without, kept = (statistics.median(values) for values in found.values())
    text += f"\nAn epoch takes {100 * (kept / without - 1):+.1f} % (median of medians).\n"
    told(text, args.out)


if __name__ == "__main__":
    main()

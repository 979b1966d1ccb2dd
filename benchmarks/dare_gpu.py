"""What a repair with DARE takes: mining, slicing and tuning of VGG-16 on CIFAR-10, and the memory that it holds.

    python benchmarks/dare_gpu.py --data FOLDER --out results/dare-gpu.md

Everything that the run kept aside is mined, everything that it trained on is sliced, and all that was mined tunes, with
the whole grid of learning rates and epochs. The run is trained first, or given with --run.
"""

import argparse
import platform
import tempfile
from pathlib import Path

import torch
from lines import commit, device_name, told

import ukemi
from ukemi.repairs import Dare, Dared, dare, ground_of
from ukemi.training import Run, TrainConfig, train

LIMITS = (180.0, 16.0)
"""seconds of the three together, and gigabytes, at most"""
PAPER = 340.0
"""minutes, on 10 processor cores"""


def base(args: argparse.Namespace, folder: Path) -> Run:
    if args.run:
        return Run(args.run)
    config = TrainConfig(
        data=args.set,
        data_folder=args.data,
        model=args.model,
        epochs=args.epochs,
        learning_rate=0.05,
        flips=True,
        validation=0.5,
        history="half",
        out=folder / "base",
    )
    return train(config, quiet=True)


def said(run: Run, done: Dared, counts: tuple[int, ...], peak: float, args: argparse.Namespace) -> str:
    config, seconds = Run.config_of(run.folder), done.seconds
    whole, on_gpu = sum(seconds.values()), torch.cuda.is_available()
    text = f"# What DARE takes: {config.model} on {Path(config.data).stem}\n\n`python benchmarks/dare_gpu.py` on"
    text += (
        f" {device_name()}, ukemi {ukemi.__version__}, torch {torch.__version__}, Python {platform.python_version()},"
    )
    text += f" commit {args.commit or commit()}; one run of the repair, in a process that had not warmed up.\n\n"
    text += f"{counts[0]} historical models of {config.epochs} epochs, {counts[1]} images searched for targets"
    text += f" ({counts[3]} of them select), {len(done.mined.data)} of the others mined, {counts[2]} images sliced,"
    text += f" {done.samples} images tune;"
    text += f" {len(done.tuned.trials)} states in the grid.\n\n"
    text += "| mining, s | slicing, s | tuning, s | all, s | at most, s | peak memory, GB | at most, GB |\n"
    text += "| --- " * 7 + "|\n"
    cells = [*(f"{seconds[part]:.1f}" for part in ("mining", "slicing", "tuning")), f"{whole:.1f}", f"{LIMITS[0]:g}"]
    cells += [f"{peak:.1f}" if on_gpu else "not measured on a processor", f"{LIMITS[1]:g}"]
    text += "| " + " | ".join(cells) + " |\n\n"
    text += f"The paper's figure is {PAPER:g} minutes (10 processor cores, 100 historical models): mining grows with"
    return text + f" the historical models, {seconds['mining'] / counts[0]:.2f} s each here.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="cifar10")
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--run", type=Path, help="a finished run with a history, instead of a training")
    parser.add_argument("--commit", help="where the tree travels without its history")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = base(args, Path(folder))
        ground = ground_of(run)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        done = dare(run, Dare(), out=Path(folder) / "tuned", ground=ground)
        peak = torch.cuda.max_memory_reserved() / 1e9 if torch.cuda.is_available() else 0.0
        counts = (len(ground.history.epochs), len(ground.aside), len(ground.train), len(ground.selection))
        text = said(run, done, counts, peak, args)
    told(text, args.out)


if __name__ == "__main__":
    main()

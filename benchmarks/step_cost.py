"""What a training step costs on a GPU: standard, random, worst-of and the SENSEI family in one run, as CUDA graphs.

    python benchmarks/step_cost.py --models resnet20 resnet18 --compile

Synthetic pixels, batch 512, bfloat16, channels last; the median of repeats after warm-up, and the ratio to standard.
"""

import argparse
import platform
import statistics
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

import ukemi
from ukemi import fused
from ukemi.augmenters import AUGMENTERS
from ukemi.data import Batch, Data, labelled
from ukemi.models.repeated import own_stream
from ukemi.objectives import OBJECTIVES
from ukemi.training import TrainConfig
from ukemi.training.capture import Replayed
from ukemi.training.loop import _compiled, _new_state, _step
from ukemi.training.state import State

ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("standard", "standard", {}),
    ("random", "random", {}),
    ("worst-of-10", "worst-of", {"k": 10}),
    ("sensei, population 5", "sensei", {"population": 5}),
    ("sensei, population 10", "sensei", {}),
    ("ukemi, population 10", "ukemi", {"population": 10}),
    ("ukemi, population 10, consistency", "ukemi", {"population": 10}),
    ("sensei, population 20", "sensei", {"population": 20}),
    ("sensei-sa, all searched", "sensei-sa", {}),
    ("sensei-sa, a quarter searched", "sensei-sa", {}),
    ("sensei, margin", "sensei", {"fitness": "margin"}),
    ("sensei, KL to clean", "sensei", {"fitness": "kl"}),
    ("sensei, neuron coverage", "sensei", {"fitness": "neuron-coverage"}),
    ("sensei, multisection coverage", "sensei", {"fitness": "multisection-coverage"}),
    ("sensei, likelihood surprise", "sensei", {"fitness": "likelihood-surprise"}),
    ("sensei, distance surprise", "sensei", {"fitness": "distance-surprise"}),
]


def synthetic(count: int) -> Data:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return labelled(images, torch.arange(count) % 10)


def milliseconds(state: State, step: Replayed, batch: Batch, kind: int, repeats: int) -> float:
    """The median of single steps, timed on the device."""
    for _ in range(8):
        step(batch, (kind, 0))
    times = []
    for _ in range(repeats):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        step(batch, (kind, 0))
        ended.record()
        ended.synchronize()
        times.append(began.elapsed_time(ended))
    assert not bool(state.guard.bad), "a loss or gradient is not finite"
    return statistics.median(times)


def cost(model: str, row: tuple[str, str, dict[str, Any]], args: argparse.Namespace) -> float:
    name, augmenter, options = row
    data = synthetic(8 * args.batch)
    config = TrainConfig(
        model=model,
        augmenter=AUGMENTERS[augmenter](**options),
        objective=OBJECTIVES["consistency" if "consistency" in name else "cross-entropy"](),
        batch_size=args.batch,
        flips=True,
        precision="bfloat16",
        channels_last=True,
        compile=args.compile,
        autotune=args.compile,
        learning_rate=1e-3,
    )
    state = _new_state(config, data, torch.device("cuda"), None)
    (network, scorer), data = _compiled(config, state.model), data.to("cuda")
    state.rate.fill_(1e-3)
    state.epoch = 1  # behind the warm-up
    batch = data.batch(torch.arange(args.batch), "cuda")
    with own_stream(torch.device("cuda")), fused.compiled() if args.compile else nullcontext():
        with torch.autocast("cuda", torch.bfloat16):
            state.augmenter.begin_epoch(scorer, data, 1)
        kind = state.augmenter.plan([batch.index])[0]
        if "quarter" in name:
            kind = args.batch // 4
        state.augmenter.planned = kind
        step = Replayed(partial(_step, config, state, network, scorer), args.batch, True, print)
        return milliseconds(state, step, batch, kind, args.repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet20"])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rows", nargs="+", default=[row[0] for row in ROWS], help="only these rows")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    versions = f"ukemi {ukemi.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    text = f"# What a step costs\n\n`python benchmarks/step_cost.py --models {' '.join(args.models)}"
    text += f"{' --compile' if args.compile else ''}` on {torch.cuda.get_device_name()}, {versions}.\n"
    text += f"Batch {args.batch}, 3 x 32 x 32, bfloat16, channels last, replayed as a CUDA graph"
    text += f"{', compiled, scoring autotuned' if args.compile else ''};"
    text += f" median of {args.repeats} steps, milliseconds, and times standard.\n"
    for model in args.models:
        text += f"\n| {model} | ms | x standard |\n| --- | --- | --- |\n"
        standard = 0.0
        for row in [row for row in ROWS if row[0] in args.rows]:
            taken = cost(model, row, args)
            standard = standard or taken
            text += f"| {row[0]} | {taken:.2f} | {taken / standard:.2f} |\n"
            print(model, row[0], f"{taken:.2f}", f"{taken / standard:.2f}", flush=True)
            if args.out:
                args.out.parent.mkdir(parents=True, exist_ok=True)
                args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

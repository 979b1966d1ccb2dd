"""Which share of a SENSEI step on a CPU is genetics and warps, and not the network.

    python benchmarks/search_share_cpu.py --out results/search-share-cpu.md

The same augmenter runs once with the network and once with a network that costs nothing; the second is the search
without its scoring. Both in turns in one process, median of repeats.
"""

import argparse
import platform
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn

import ukemi
from ukemi.data import labelled
from ukemi.models import create


class Nothing(nn.Module):
    """Logits from one pixel."""

    def forward(self, images: Tensor) -> Tensor:
        return images[:, :1, 0, 0] * torch.arange(10.0)


def step(model: nn.Module, sensei: ukemi.Sensei, batch: ukemi.data.Batch, optimiser: torch.optim.Optimizer) -> None:
    images = sensei(model, batch.images, batch.labels, batch.index, 1)
    model.train()
    loss = nn.functional.cross_entropy(model(images), batch.labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = labelled(torch.rand(args.batch, 3, 32, 32), torch.arange(args.batch) % 10)
    batch = data.batch(torch.arange(args.batch), "cpu")
    model = create(args.model, classes=10, channels=3, size=(32, 32))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    text = "# Genetics and warps as a share of a step, CPU\n\n"
    text += f"`python benchmarks/search_share_cpu.py --model {args.model} --batch {args.batch}`; ukemi"
    text += f" {ukemi.__version__}, torch {torch.__version__}, Python {platform.python_version()},"
    text += f" {torch.get_num_threads()} threads; median of {args.repeats} repeats in turns.\n\n"
    text += (
        "| search | space | whole step, ms | without the network, ms | share (lowest to highest) |\n"
        + "| --- " * 5
        + "|\n"
    )
    for preset in ("sensei", "ukemi"):
        for space in (ukemi.T3, ukemi.T6):
            made = [ukemi.Sensei(space, samples=args.batch, settings=preset, flips=True) for _ in range(2)]
            whole = partial(step, model, made[0], batch, optimiser)
            bare = partial(made[1], Nothing(), batch.images, batch.labels, batch.index, 1)
            whole(), bare()
            pairs = [(seconds(whole), seconds(bare)) for _ in range(args.repeats)]
            shares = [part / all_of_it for all_of_it, part in pairs]
            times = [1000 * statistics.median(column) for column in zip(*pairs, strict=True)]
            text += f"| {preset} | {space.name} | {times[0]:.0f} | {times[1]:.0f} |"
            text += f" {statistics.median(shares):.1%} ({min(shares):.1%} to {max(shares):.1%}) |\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()

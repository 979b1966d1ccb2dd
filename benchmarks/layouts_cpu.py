"""What `--channels-last` and `--precision bfloat16` are worth on a processor: a step of SENSEI, and a forward pass.

    python benchmarks/layouts_cpu.py --out results/layouts-cpu.md

Each network runs in all three settings in turns, in one process; medians of repeats, beside float32 as it comes.
Whether bfloat16 pays depends on the processor and its instructions for it.
"""

import argparse
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
from lines import told
from torch import Tensor, nn

import ukemi
from ukemi.data import Batch, labelled
from ukemi.models import create

SETTINGS = ("float32", "channels-last", "channels-last, bfloat16")


def works(name: str, channels: int, size: int, count: int) -> dict[str, tuple[Callable[[], object], ...]]:
    """Per setting a step of SENSEI and a forward pass."""
    batch = labelled(torch.rand(count, channels, size, size), torch.arange(count) % 10).batch(
        torch.arange(count), "cpu"
    )
    return {setting: _works(name, batch, setting) for setting in SETTINGS}


def _works(name: str, batch: Batch, setting: str) -> tuple[Callable[[], object], ...]:
    channels, *size = batch.images.shape[1:]
    model: nn.Module = create(name, classes=10, channels=channels, size=(size[0], size[1]))
    if setting != "float32":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sensei = ukemi.Sensei(ukemi.T3, samples=len(batch.labels), seed=0)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def logits(images: Tensor) -> Tensor:
        return model(images).float()

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in setting):
            images = sensei(model, batch.images, batch.labels, batch.index, 1)
            loss = nn.functional.cross_entropy(logits(images), batch.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    def forward() -> None:
        model.eval()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in setting):
            logits(batch.images)
        model.train()

    return step, forward


def row(name: str, channels: int, size: int, args: argparse.Namespace) -> str:
    torch.manual_seed(0)
    found = works(name, channels, size, args.batch)
    cells = [name, f"{channels} x {size} x {size}"]
    for kind in range(2):
        taken: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
        for repeat in range(args.repeats + 1):
            for setting in SETTINGS:
                began = perf_counter()
                found[setting][kind]()
                if repeat:  # the first one warms up
                    taken[setting].append(perf_counter() - began)
        plain, *others = (1000 * statistics.median(taken[setting]) / args.batch for setting in SETTINGS)
        cells += [f"{plain:.3g}", *(f"{one:.3g} ({plain / one:.2f})" for one in others)]
    return "| " + " | ".join(cells) + " |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="+", default=["demo-cnn", "fm-3", "resnet20", "gtsrb-3", "mobilenet", "vgg16"]
    )
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = "# Memory layout and precision on a processor\n\n"
    text += (
        f"`python benchmarks/layouts_cpu.py`; batches of {args.batch}, {torch.get_num_threads()} threads, instructions"
    )
    text += f" up to {torch.backends.cpu.get_cpu_capability()}; ukemi {ukemi.__version__}, torch {torch.__version__},"
    text += (
        f" Python {platform.python_version()}. Milliseconds per image, median of {args.repeats} repeats in turns; in"
    )
    text += " brackets how many times as fast as float32 as it comes (below 1: slower).\n\n"
    heads = ["network", "image", *(f"{work}, {one}" for work in ("SENSEI's step", "forward pass") for one in SETTINGS)]
    text += "| " + " | ".join(heads) + " |\n" + "| --- " * len(heads) + "|\n"
    for name in args.models:
        grey = name in ("demo-cnn", "fm-3")
        text += row(name, 1 if grey else 3, 28 if grey else 32, args)
    told(text, args.out)


if __name__ == "__main__":
    main()

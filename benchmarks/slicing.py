"""What slicing costs beside plain forward passes, in one process: untrained networks on random images of 3 x 32 x 32.

    OMP_NUM_THREADS=1 python benchmarks/slicing.py --device cpu --images 1000 --out results/slicing-cpu.md

Seconds are of the process (on a GPU: of the clock). Slicing profiles all images and then walks back from all of them,
so it has two forward passes in it.
"""

import argparse
import platform
from pathlib import Path
from time import perf_counter, process_time

import torch
from torch import nn

import ukemi
from ukemi.data import Data, labelled
from ukemi.models import create
from ukemi.models.inference import default_chunk, logits
from ukemi.slicing import slices_of

CASES = [(name, "paper") for name in ("resnet20", "alexnet", "vgg16")] + [("resnet20", "nnslicer")]
SHARE = {"nnslicer": 100}
"""a slow reading gets one of so many images"""


def now(device: torch.device) -> float:
    if device.type == "cpu":
        return process_time()
    torch.cuda.synchronize(device)
    return perf_counter()


def row(name: str, reading: str, data: Data, device: torch.device) -> str:
    torch.manual_seed(0)
    model: nn.Module = create(name, classes=10, channels=3, size=(32, 32)).to(device)
    batch = data.batch(torch.arange(len(data)), device)
    began = now(device)
    logits(model, batch.images, min(len(data), default_chunk((3, 32, 32), device)))
    forward, began = now(device) - began, now(device)
    found = slices_of(model, data, reading=reading)  # type: ignore[arg-type]
    taken = now(device) - began
    key = sum(float(one.double().mean(0).sum()) for one in found.neurons.values())
    neurons = sum(one.shape[1] for one in found.neurons.values())
    synapses = sum(one[0].numel() for one in found.synapses.values())
    return (
        f"| {name} | {reading} | {len(data):,} | {synapses:,} | {forward:.1f} | {taken:.1f} |"
        f" {key:,.1f} of {neurons:,} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = torch.device(given.device)
    lines = ["| network | reading | images | synapses | forward, s | slicing, s | key neurons |", "| --- " * 7 + "|"]
    for name, reading in CASES:
        count = max(10, given.images // SHARE.get(reading, 1))
        generator = torch.Generator().manual_seed(0)
        images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
        lines.append(row(name, reading, labelled(images, torch.arange(count) % 10), device))
        print(lines[-1], flush=True)
    where = f"{torch.get_num_threads()} thread" if device.type == "cpu" else torch.cuda.get_device_name(device)
    about = (
        f"Untrained networks, ten classes, random images, q = 95, theta = 0.2; {given.device}, {where};"
        f" ukemi {ukemi.__version__}, torch {torch.__version__}, Python {platform.python_version()}."
    )
    command = f"python benchmarks/slicing.py --device {given.device} --images {given.images}"
    text = f"# What slicing costs\n\n{about}\n\n" + "\n".join(lines) + f"\n\n`{command}`\n"
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()

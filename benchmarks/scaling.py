"""The cost model of docs/scaling.md: its formulas, its constants measured here, and what it says of larger machines.

    OMP_NUM_THREADS=1 python benchmarks/scaling.py > results/scaling-cpu.md

Trains a small network on 1, 2 and 4 gloo ranks, merges populations, decodes JPEG files and reads a shard's table. The
constants come from one rank (the exchange from random's two) and small sizes; the other runs and the larger merge check
what the model predicts from them. Constants of a GPU come from results/step-cost-gpu.md. Ranks beyond the cores share
them, so processor seconds are compared.
"""

import argparse
import io
import os
import platform
import re
import socket
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import ukemi
from ukemi import T6
from ukemi.augmenters.store import Store
from ukemi.data.decoding import decode
from ukemi.data.shards import _of_shard
from ukemi.ranks import Ranks
from ukemi.training import TrainConfig, loop, train
from ukemi.training.state import State

RESULTS = Path(__file__).parents[1] / "results"
IMAGES, BATCH, CANDIDATES, EPOCHS = 1024, 128, 10, 4
MACS = {"resnet20, 32 x 32": 40.8e6, "ResNet-50, 224 x 224": 4.09e9}
"""multiply-adds of one forward pass: what a GPU's constants are scaled by"""
PARAMETERS = 25_557_032
"""ResNet-50's"""
KEPT = 8 * 5
"""bytes per sample beside store and table, on every rank: label, identity, order and its parts, what is unmerged"""
TABLE = 24
"""bytes per sample of a shard's table, once per rank"""


@dataclass(frozen=True)
class Costs:
    """Seconds, and bytes per second, of one kind of device."""

    train: float
    """per image: forward, backward, update"""
    score: float
    """per scored variant"""
    step: float
    """per step, for exchanging gradients and flags with other ranks"""
    row: float
    """per merged sample"""
    decode: float
    """per image and core"""
    listed: float
    """per image of a shard, when its table is read"""


@dataclass(frozen=True)
class Machines:
    """What is assumed of a cluster; nothing of it was measured."""

    gpus: int
    per_machine: int = 8
    cores: int = 96
    host_memory: float = 1e12
    gpu_memory: float = 141e9
    inside: float = 200e9
    """bytes per second between GPUs of one machine"""
    between: float = 25e9
    """and between machines"""
    disk: float = 2e9

    def wire(self) -> float:
        return self.inside if self.gpus <= self.per_machine else self.between


def reduced(size: int, ranks: int) -> float:
    """Bytes that a rank sends in a ring all-reduce of `size` bytes."""
    return 2 * (ranks - 1) / ranks * size


def work(costs: Costs, rows: float, candidates: int) -> float:
    """Seconds that `rows` images of this rank take, each with so many scored variants."""
    return rows * (costs.train + candidates * costs.score)


def predicted(name: str, costs: Costs, machines: Machines, samples: float, rows: int = 128) -> dict[str, Any]:
    """All that the model says of a training of ResNet-50 with a population of 10 under T6."""
    ranks, batch = machines.gpus, rows * machines.gpus
    seconds = work(costs, rows, CANDIDATES) + costs.step + reduced(4 * PARAMETERS, ranks) / machines.wire()
    rate, epoch = batch / seconds, samples / batch * seconds
    stored = samples * bytes_per_sample()
    here = min(ranks, machines.per_machine)
    merging = stored / machines.wire() + samples * costs.row
    table = samples * costs.listed * here / machines.cores  # every rank reads it, on its share of the cores
    writing = (stored + 3 * 4 * PARAMETERS) / machines.disk
    loads = {
        "decoding (share of the cores)": rate * costs.decode / (machines.cores * ranks / machines.per_machine),
        "the population on each GPU (share of its memory)": stored / machines.gpu_memory,
        "orders and tables (share of a machine's memory)": here * samples * (KEPT + TABLE) / machines.host_memory,
        "reading the table (share of an epoch)": table / epoch,
        "merging (share of an epoch)": merging / epoch,
        "checkpoints every 5 minutes (share of the time)": writing / 300,
        "gradients on the wire (share of a step)": 1 - work(costs, rows, CANDIDATES) / seconds,
    }
    told = {"name": name, "step": seconds, "rate": rate, "epoch": epoch, "stored": stored, "merging": merging}
    return told | {"writing": writing, "table": table, "loads": loads}


def bytes_per_sample() -> int:
    store = Store.empty(1, 10, len(T6), torch.device("cpu"), worst=True, flags=True)
    return sum(tensor.numel() * tensor.element_size() for tensor in store.state_dict().values())


class Net(nn.Module):
    """Without BatchNorm, which CPU ranks can't share."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(800, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)


def net() -> nn.Module:
    return Net()


def trained(rank: int, size: int, port: int, told: Any, augmenter: dict[str, Any], data: str) -> None:
    """One rank: processor and wall seconds of every epoch but the first, scoring passes, bytes beside the gradients."""
    torch.set_num_threads(1)
    _as_rank(rank, size, port)
    spent: list[tuple[float, float]] = []
    epoch, leave, sent = loop._epoch, Ranks.leave, [0]

    def timed(*given: Any) -> None:
        processor, wall = time.process_time(), time.monotonic()
        epoch(*given)
        spent.append((time.process_time() - processor, time.monotonic() - wall))

    def left(self: Ranks) -> None:
        sent[0] = self.sent
        leave(self)

    loop._epoch, Ranks.leave = timed, left  # type: ignore[method-assign, assignment]
    scored, held = list[int](), [0]
    counted = State.totals

    def totals(self: State) -> Any:
        scored.append(self.scored)
        kept = self.augmenter.state_dict().values()
        held[0] = sum(t[0].numel() * t.element_size() for t in kept if t.ndim and len(t) == IMAGES)
        return counted(self)

    State.totals = totals  # type: ignore[method-assign]
    values = {"data": data, "model": "scaling:net", "epochs": EPOCHS, "batch_size": BATCH, "validation": 0}
    values |= {"augmenter": augmenter, "space": "t6", "device": "cpu", "checkpoint_minutes": 0}
    out = Path(data).parent / f"run-{augmenter['name']}-{size}"
    train(TrainConfig(**values, out=out), quiet=True)
    processor, wall = (statistics.median(column) for column in zip(*spent[1:], strict=True))
    told.put((rank, processor, wall, scored[-1], sent[0], held[0]))


def merged(rank: int, size: int, port: int, told: Any, samples: int) -> None:
    torch.set_num_threads(1)
    _as_rank(rank, size, port)
    ranks = Ranks.joined(gpu=False)
    store = Store.empty(samples, 10, len(T6), torch.device("cpu"), worst=True, flags=True)
    parts = ranks.parts(torch.randperm(samples, generator=torch.Generator().manual_seed(0)))
    seconds = []
    for _ in range(4):
        ranks.agree(True)
        processor, wall = time.process_time(), time.monotonic()
        store.merge(ranks, parts)
        ranks.agree(True)
        seconds.append((time.process_time() - processor, time.monotonic() - wall))
    told.put((rank, *(min(column) for column in zip(*seconds, strict=True))))
    ranks.leave()


def _as_rank(rank: int, size: int, port: int) -> None:
    os.environ |= {"TORCHELASTIC_RUN_ID": "scaling", "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def on_ranks(work: Callable[..., None], size: int, *given: Any) -> list[tuple[Any, ...]]:
    """What every rank told, in their order."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    context = get_context("spawn")
    told = context.Queue()
    ranks = [context.Process(target=work, args=(rank, size, port, told, *given)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    found_ones = sorted(told.get(timeout=600) for _ in ranks)
    for rank in ranks:
        rank.join()
    return found_ones


def decoding() -> float:
    """Processor seconds per image of 500 x 375 in JPEG, decoded and brought to 224 x 224."""
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image.jpg"
        Image.fromarray(noise).resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
        times = []
        for _ in range(40):
            began = time.process_time()
            decode(path, (3, 224, 224))
            times.append(time.process_time() - began)
    return statistics.median(times)


def listing(samples: int = 3000) -> float:
    """Processor seconds per image for reading the table of a shard."""
    body = io.BytesIO()
    Image.new("L", (8, 8)).save(body, "png")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(Path(folder) / "0.tar", "w") as archive:
            for number in range(samples):
                for ending, text in (("cls", str(number % 2).encode()), ("png", body.getvalue())):
                    member = tarfile.TarInfo(f"{number:08d}.{ending}")
                    member.size = len(text)
                    archive.addfile(member, io.BytesIO(text))
        began = time.process_time()
        _of_shard(Path(folder) / "0.tar")
        return (time.process_time() - began) / samples


def gpu_table() -> dict[str, float]:
    """Milliseconds of a step by the name of its row, from the first table of results/step-cost-gpu.md."""
    path = RESULTS / "step-cost-gpu.md"
    text = path.read_text().split("Compiled")[0] if path.exists() else ""
    return {name: float(value) for name, value in re.findall(r"^\| ([^|]+?) \| ([\d.]+) \|", text, re.MULTILINE)}


def checked_on_gpu(found: dict[str, float]) -> list[str]:
    """Other populations from the constants of one: random's step, what a variant adds, what the genetics add."""
    per_variant = (found["worst-of-10"] - found["random"]) / CANDIDATES
    genetics = found["sensei, population 10"] - found["worst-of-10"]
    lines = []
    for population in (5, 20):
        guess, real = found["random"] + population * per_variant + genetics, found[f"sensei, population {population}"]
        lines.append(
            f"| one GPU: ms of a step, population {population}, from 10 | 1 | {guess:.2f} | {real:.2f} |"
            f" {real / guess:.2f} |"
        )
    return lines


def gpu_costs(row: float, decode_: float, listed: float) -> Costs | None:
    """The GPU's, scaled by multiply-adds from ResNet-20 to ResNet-50."""
    found = gpu_table()
    if not found:
        return None
    small, large = MACS.values()
    factor = large / small / 512 / 1000
    score = (found["worst-of-10"] - found["random"]) / CANDIDATES
    return Costs(found["standard"] * factor, score * factor, 0.0, row, decode_, listed)


def measured(folder: Path) -> tuple[Costs, list[str]]:
    """The constants of one rank here, and the lines that check the model against more ranks."""
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES + 64, 28, 28), np.uint8)
    labels, data = np.arange(IMAGES + 64) % 10, folder / "images.npz"
    np.savez(data, x_train=pixels[64:], y_train=labels[64:], x_test=pixels[:64], y_test=labels[:64])
    kinds: dict[str, dict[str, Any]] = {"random": {"name": "random"}, "search": {"name": "sensei", "warmup": 0}}
    kinds["search"] |= {"population": CANDIDATES}
    runs = {(name, size): on_ranks(trained, size, kinds[name], str(data)) for name in kinds for size in (1, 2, 4)}
    alone = {name: runs[name, 1][0][1] for name in kinds}
    score = (alone["search"] - alone["random"]) / (IMAGES * CANDIDATES)
    few, many = 160_000, 1_280_000
    both = {samples: on_ranks(merged, 2, samples)[0] for samples in (few, many)}
    merges = {samples: found[1] for samples, found in both.items()}
    steps = IMAGES / BATCH
    talking = max(0.0, max(rank[1] for rank in runs["random", 2]) - alone["random"] / 2) / steps
    costs = Costs(alone["random"] / IMAGES, score, talking, merges[few] / few, decoding(), listing())
    weights = 4 * sum(parameter.numel() for parameter in net().parameters())
    lines = ["| run | ranks | predicted | measured | ratio |", "| --- | --- | --- | --- | --- |"]
    for (name, size), ranks in runs.items():
        guess = work(costs, IMAGES / size, CANDIDATES if name == "search" else 0) + (size > 1) * steps * costs.step
        found = max(rank[1] for rank in ranks)
        what = f"{name}: processor seconds of an epoch, the busiest rank"
        lines.append(f"| {what} | {size} | {guess:.3f} | {found:.3f} | {found / guess:.2f} |")
    for size in (1, 2, 4):
        passes = max(rank[3] for rank in runs["search", size])
        guess = IMAGES * CANDIDATES * EPOCHS / size
        lines.append(f"| search: scoring passes of a rank | {size} | {guess:.0f} | {passes} | {passes / guess:.2f} |")
    for size in (2, 4):
        per_step = runs["search", size][-1][4] / (EPOCHS * steps)
        guess = BATCH / size * runs["search", size][-1][5] + 7
        what = f"search: bytes of a rank beside the gradients, per step (gradients: {reduced(weights, size):.0f})"
        lines.append(f"| {what} | {size} | {guess:.0f} | {per_step:.0f} | {per_step / guess:.2f} |")
    guess = many * costs.row
    what = f"merge of {many:,} samples, T6, from one of {few:,}: processor seconds ({both[many][2]:.2f} s by the clock)"
    lines.append(f"| {what} | 2 | {guess:.2f} | {merges[many]:.2f} | {merges[many] / guess:.2f} |")
    return costs, lines


def constants(costs: Costs, name: str) -> str:
    return (
        f"| {name} | {1e6 * costs.train:.1f} | {1e6 * costs.score:.1f} | {1e3 * costs.step:.1f} |"
        f" {1e6 * costs.row:.2f} | {1e3 * costs.decode:.2f} | {1e6 * costs.listed:.0f} |"
    )


def said(told: dict[str, Any]) -> list[str]:
    order = sorted(told["loads"].items(), key=lambda load: -load[1])
    return [
        f"**{told['name']}**: step {1e3 * told['step']:.0f} ms, {told['rate']:,.0f} images/s, epoch"
        f" {told['epoch'] / 60:.1f} min; population {told['stored'] / 1e9:.2f} GB per rank, merged in"
        f" {told['merging']:.2f} s per epoch, a checkpoint {told['writing']:.1f} s, the table of the shards"
        f" {told['table'] / 60:.1f} min at the start. Heaviest first: "
        + "; ".join(f"{name} {100 * share:.1f} %" for name, share in order)
        + ".",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        costs, lines = measured(Path(folder))
    print("# The cost model beside runs on CPU ranks\n")
    print(
        f"`python benchmarks/scaling.py` on {os.cpu_count()} cores (load {os.getloadavg()[0]:.1f} at the end), ukemi"
        f" {ukemi.__version__}, torch {torch.__version__}, Python {platform.python_version()}; {IMAGES} images of"
        f" 28 x 28, batch {BATCH}, population {CANDIDATES}, T6, gloo. Formulas: docs/scaling.md.\n"
    )
    heads = "train, µs/image | score, µs/variant | exchange, ms/step | merge, µs/sample | decode, ms/image"
    heads += " | table, µs/image"
    print(f"| constants | {heads} |\n|{' --- |' * 7}\n{constants(costs, 'this CPU, one rank')}")
    gpu = gpu_costs(costs.row, costs.decode, costs.listed)
    if gpu is not None:
        print(constants(gpu, "H200, ResNet-20 scaled to ResNet-50 at 224 x 224"))
    print("\n" + "\n".join(lines))
    if gpu is None:
        return
    print("\n".join(checked_on_gpu(gpu_table())))
    print("\n## What it predicts (nothing of this was run)\n")
    for name, gpus, samples in (
        ("ImageNet, 1.28 million samples, 8 GPUs", 8, 1.28e6),
        ("ImageNet, 64 GPUs", 64, 1.28e6),
        ("100 million samples, 64 GPUs", 64, 1e8),
    ):
        print("\n".join(said(predicted(name, gpu, Machines(gpus), samples))))


if __name__ == "__main__":
    main()

"""Robust accuracy on the 775-point grid of Engstrom et al.: ukemi beside foolbox, in one run on the CPU.

    python benchmarks/robust_accuracy.py [--images 500] [--repeats 3]

Both judge the same images on the same model under the same 775 transformations (genes are converted to foolbox's
convention) and must reach the same verdict on every image. Then `vary` beside kornia's chained operators. Only ratios
mean anything on a shared machine: the contestants take turns and the median of the repeats counts.
"""

import argparse
import math
import platform
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import foolbox
import kornia
import torch
from torch import Tensor, nn

import ukemi
from ukemi import AUGMENTERS, Space, named_grid, robust_accuracy, vary
from ukemi.data import load
from ukemi.training import TrainConfig, train
from ukemi.training.setup import load_sets, trained_model


def trained(augmenter: str, folder: Path) -> nn.Module:
    config = TrainConfig(augmenter=AUGMENTERS[augmenter](), validation=0, out=folder / augmenter, device="cpu")
    return trained_model(train(config), config, load_sets(config).test)[0].eval()


def as_foolbox(size: tuple[int, int]) -> tuple[Space, Tensor]:
    """The 775 rows as genes that do what foolbox does: it translates first, by (n - 1) / n of a pixel per pixel."""
    _, rows = named_grid("engstrom-775", size)
    height, width = size
    angle = rows[:, 0].double() * math.pi / 180
    right, down = rows[:, 1].double() * (width - 1), rows[:, 2].double() * (height - 1)
    moved = -(angle.cos() * right + angle.sin() * down) / width, -(angle.cos() * down - angle.sin() * right) / height
    wide = [replace(gene, low=-0.5, high=0.5, step=0.1) for gene in ukemi.T2.genes[1:]]
    return Space((ukemi.T2.genes[0], *wide), "foolbox"), torch.stack([rows[:, 0].double(), *moved], 1).float()


def timed(repeats: int, ours: Callable[[], object], other: Callable[[], object], unit: float = 1.0) -> str:
    """Table cells: the median of each, in turns after one warm-up, and the ratio's median and range over the turns."""
    contestants = (ours, other)
    times: list[list[float]] = [[] for _ in contestants]
    for turn in range(repeats + 1):
        for row, contestant in zip(times, contestants, strict=True):
            began = perf_counter()
            contestant()
            if turn:
                row.append(perf_counter() - began)
    ratios = [their / mine for mine, their in zip(*times, strict=True)]
    mine, their = (unit * statistics.median(row) for row in times)
    return f"{mine:.2f} | {their:.2f} | {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}) |"


def beside_foolbox(name: str, model: nn.Module, images: Tensor, labels: Tensor, repeats: int) -> str:
    space, rows = as_foolbox((images.shape[2], images.shape[3]))
    attack = foolbox.attacks.SpatialAttack(max_translation=3, max_rotation=30, num_translations=5, num_rotations=31)
    theirs = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    found = robust_accuracy(model, images, labels, space, rows)
    _, _, success = attack(theirs, images, labels)
    same = int((found.robust == ~success).sum())
    cells = timed(
        repeats,
        lambda: robust_accuracy(model, images, labels, space, rows),
        lambda: attack(theirs, images, labels),
    )
    return (
        f"| {name} | {found.accuracy:.1%} | {found.robust_accuracy:.1%} | {same} of {len(images)} | "
        f"{found.share_evaluated:.1%} | {cells}"
    )


def chained(images: Tensor, genes: Tensor) -> Tensor:
    """T6 the way a user of kornia writes it: one operator, and one resampling, after the other."""
    height, width = images.shape[2:]
    transform = kornia.geometry.transform
    out = transform.rotate(images, genes[:, 0])
    out = transform.translate(out, genes[:, 1:3] * torch.tensor([float(width), float(height)]))
    out = transform.shear(out, torch.stack([genes[:, 3], torch.zeros(len(genes))], 1))
    out = transform.scale(out, genes[:, 4:5].expand(-1, 2))
    out = kornia.enhance.adjust_brightness(out, genes[:, 5])
    return kornia.enhance.adjust_contrast(out, genes[:, 6])


def beside_kornia(count: int, channels: int, side: int, repeats: int) -> str:
    images = torch.rand(count, channels, side, side)
    genes = ukemi.T6.sample(torch.arange(count), seed=0)[:, 0]
    cells = timed(repeats, lambda: vary(images, genes, ukemi.T6), lambda: chained(images, genes), 1000)
    return f"| {count} of {channels}x{side}x{side} | {cells}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    args = parser.parse_args()
    rows = load("fashion-mini").test.batch(torch.arange(args.images), "cpu")
    lines = [
        "# Robust accuracy on 775 variants, beside foolbox; variants of a batch, beside kornia\n",
        f"`python benchmarks/robust_accuracy.py --images {args.images} --repeats {args.repeats}`; ukemi"
        f" {ukemi.__version__}, foolbox {foolbox.__version__}, kornia {kornia.__version__}, torch {torch.__version__},"
        f" Python {platform.python_version()}, {torch.get_num_threads()} threads; median of the repeats, in turns.\n",
        "| model | accuracy | robust | same verdict | evaluated | ukemi, s | foolbox, s | ratio (range over turns) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("standard", "worst-of"):
            model = trained(name, Path(folder))
            lines.append(beside_foolbox(name, model, rows.images, rows.labels, args.repeats))
            print(lines[-1], flush=True)
    lines += [
        "",
        "| `vary` on T6 | ukemi, ms | kornia chained, ms | ratio (range over turns) |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        beside_kornia(*shape, 10 * args.repeats) for shape in ((1, 3, 32), (128, 1, 28), (1280, 3, 32), (64, 3, 224))
    ]
    print("\n".join(lines))
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""The picture of README: images that break the demo's standard network, and what every method makes of such images.

    make demo && .venv/bin/python benchmarks/picture.py --demo runs/demo --out docs/picture.png

Nothing is chosen by hand: the first test image of each class that both networks recognise, that some variant breaks for
`standard`, and none of the 81 for `ukemi`; its variant is the one that raises `standard`'s loss most.
"""

import argparse
import json
from pathlib import Path

import matplotlib
import torch
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.measures import robustness_of
from ukemi.spaces import T3, named_grid
from ukemi.training import Run
from ukemi.training.setup import load_sets, trained_model
from ukemi.variations import vary

matplotlib.use("Agg")
import matplotlib.pyplot as plt

METHODS = ("standard", "random", "worst-of", "sensei", "ukemi")
BAD, GOOD, GREY = "#c0392b", "#1e8449", "#7f8c8d"


def opened(folder: Path) -> tuple[nn.Module, Data]:
    config = Run.config_of(folder)
    model, test = trained_model(Run(folder), config, load_sets(config).test)
    return model.eval(), test


def worst_variants(model: nn.Module, images: Tensor, labels: Tensor, grid: Tensor) -> Tensor:
    """The variant of each image with the highest loss."""
    found = []
    for image, label in zip(images, labels, strict=True):
        variants = vary(image.expand(len(grid), *image.shape), grid, T3)
        with torch.no_grad():
            losses = nn.functional.cross_entropy(model(variants), label.expand(len(grid)), reduction="none")
        found.append(variants[losses.argmax()])
    return torch.stack(found)


def chosen(demo: Path, count: int) -> tuple[Tensor, Tensor, list[str], list[str], list[str]]:
    (weak, test), (strong, _) = opened(demo / "standard"), opened(demo / "ukemi")
    _, grid = named_grid("t3-81", test.size)
    verdicts = [robustness_of(model, test, T3, grid=grid) for model in (weak, strong)]
    fits = verdicts[0].correct & ~verdicts[0].robust & verdicts[1].robust
    first = [int(rows[0]) for c in range(10) if len(rows := (fits & (test.labels == c)).nonzero().flatten())]
    batch = test.batch(torch.tensor(first[:count]), "cpu")
    variants = worst_variants(weak, batch.images, batch.labels, grid)
    with torch.no_grad():
        said = [[test.classes[k] for k in model(variants).argmax(1).tolist()] for model in (weak, strong)]
    return batch.images, variants, [test.classes[k] for k in batch.labels.tolist()], said[0], said[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, default=Path("runs/demo"))
    parser.add_argument("--out", type=Path, default=Path("docs/picture.png"))
    parser.add_argument("--images", type=int, default=5)
    args = parser.parse_args()
    images, variants, labels, weak, strong = chosen(args.demo, args.images)
    count = len(images)
    figure = plt.figure(figsize=(11, 3.7), facecolor="white")
    spaces = figure.add_gridspec(2, count + 2, width_ratios=[1] * count + [0.65, 2.6], hspace=0.62, wspace=0.12)
    for at in range(count):
        for row, (pixels, lines) in enumerate(
            (
                (images[at], [(labels[at], GREY)]),
                (variants[at], [(f"standard: {weak[at]}", BAD), (f"ukemi: {strong[at]}", GOOD)]),
            )
        ):
            axes = figure.add_subplot(spaces[row, at])
            axes.imshow(pixels[0], cmap="gray", vmin=0, vmax=1)
            axes.set_axis_off()
            for number, (text, colour) in enumerate(lines):
                axes.text(
                    0.5, -0.08 - 0.15 * number, text, color=colour, fontsize=8, ha="center", va="top",
                    transform=axes.transAxes,
                )  # fmt: skip
    axes = figure.add_subplot(spaces[:, -1])
    told = [json.loads((args.demo / name / "evaluation.json").read_text()) for name in METHODS]
    accuracy, robust = ([100 * one[key] for one in told] for key in ("accuracy", "robust_accuracy"))
    axes.barh(METHODS, accuracy, color="#d5d8dc", height=0.62)
    axes.barh(METHODS, robust, color=[BAD, *[GREY] * (len(METHODS) - 2), GOOD], height=0.62)
    for at, value in enumerate(robust):
        axes.text(value + 1.5, at, f"{value:.1f} %", va="center", fontsize=9, weight="bold")
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xticks([])
    axes.tick_params(length=0, labelsize=9)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title("right on all 81 variants\n(light: right on the image as it is)", fontsize=9, color="#34495e")
    figure.text(
        0.02, 0.97, "A test image, and the variant of it that hurts most", fontsize=10, va="top", color="#34495e"
    )
    figure.subplots_adjust(left=0.02, right=0.985, top=0.86, bottom=0.13)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, dpi=130)
    print(args.out)


if __name__ == "__main__":
    main()

"""How early may Carlini and Wagner's attack stop? Its constants tried on validation images, never on test images.

    python benchmarks/early_stop.py --out results/early-stop-cpu.md

A network is trained on nine tenths of a training set; images of the other tenth are attacked with each setting. The
reference takes every step of every search. A setting is good where success is the reference's, the median distance lies
within 1 % of it (the limit beside other libraries is 2 %), and passes are few.
"""

import argparse
import importlib
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time

import torch
import torch.nn.functional as F
from lines import commit, device_name
from subsets import whole
from torch import Tensor, nn

from ukemi.attacks.base import Attacked
from ukemi.data import load
from ukemi.models import create

module = importlib.import_module("ukemi.attacks.carlini_wagner")  # the function has its name too
FULL = "every step"
USUAL: dict[str, float] = {
    "_PROGRESS": module._PROGRESS,
    "_GAIN": module._GAIN,
    "_INSIDE": module._INSIDE,
    "stride": 50,
}
TRIED: tuple[dict[str, float], ...] = (
    {},
    *({"_PROGRESS": value} for value in (0.9, 0.95, 0.999)),
    *({"_GAIN": value} for value in (0.98, 0.99, 1.0)),
    *({"stride": value} for value in (20.0, 25.0, 100.0)),
    *({"_INSIDE": value} for value in (0.99, 0.999, 0.999999)),
    {"_PROGRESS": 0.95, "stride": 25},
    {"_GAIN": 0.99, "stride": 25},
)


def held_out(name: str, count: int, epochs: int, device: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A trained network, and images that it recognises of the part that it was not trained on."""
    train, validation = load("fashion-mini").train.split(0.1, 0)
    torch.manual_seed(0)
    model = create(name, classes=10, channels=1, size=(28, 28)).to(device)
    images, labels = whole(train, device)
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(128):
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(model.train()(images[rows]), labels[rows]).backward()
            optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    images, labels = whole(validation, device)
    with torch.no_grad():
        known = (model.eval()(images).argmax(1) == labels).nonzero()[:count, 0]
    return model, images[known], labels[known]


@contextmanager
def constants(changed: dict[str, float]) -> Iterator[None]:
    """The attack with other constants; a stride is how many steps lie between two looks."""
    before = {name: getattr(module, name) for name in ("_PROGRESS", "_GAIN", "_INSIDE", "_stride")}
    values = USUAL | changed
    stride = int(values.pop("stride"))
    for name, value in values.items():
        setattr(module, name, value)
    setattr(module, "_stride", lambda steps: stride)  # noqa: B010
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def name_of(changed: dict[str, float]) -> str:
    named = [FULL if key == FULL else f"{key.strip('_').lower()} {value:g}" for key, value in changed.items()]
    return ", ".join(named) or "as it is"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo-cnn")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--searches", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    model, images, labels = held_out(args.model, args.images, args.epochs, args.device)
    text = (
        f"# How early Carlini and Wagner's attack may stop\n\n`{args.model}` on fashion-mini, {len(images)} recognised"
    )
    text += f" validation images, {args.searches} searches of {args.steps} steps; {device_name()}, torch"
    text += f" {torch.__version__}, Python {platform.python_version()}, commit {commit()}. Made by"
    text += f" `python benchmarks/early_stop.py --images {args.images} --epochs {args.epochs}`. Distances are L2, over"
    text += f" the reference's. Unless changed: {', '.join(f'{name} {value:g}' for name, value in USUAL.items())}.\n\n"
    text += (
        "| setting | success | distance, median ratio | worst image | passes | CPU seconds |\n" + "| --- " * 6 + "|\n"
    )
    print(text, end="", flush=True)
    base: Attacked | None = None
    for changed in ({FULL: 1.0}, *TRIED):
        full = FULL in changed
        began = process_time()
        with constants({} if full else changed):
            found = module.carlini_wagner(
                model, images, labels, searches=args.searches, steps=args.steps, abort_early=not full
            )
        seconds, base = process_time() - began, base or found
        both = found.success & base.success
        if not bool(both.any()):
            raise SystemExit(
                f"{name_of(changed)}: the attack fooled no image that the reference fooled, nothing compares."
            )
        ratio = found.distance[both] / base.distance[both]
        line = f"| {name_of(changed)} | {float(found.success.float().mean()):.1%} | {float(ratio.median()):.4f} |"
        line += f" {float(ratio.max()):.3f} | {int(found.forwards.sum()):,} | {seconds:.1f} |\n"
        print(line, end="", flush=True)
        text += line
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()

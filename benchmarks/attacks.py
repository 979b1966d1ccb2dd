"""Our attacks beside foolbox's and ART's: one process, one trained model, the same images.

    python benchmarks/attacks.py --device cpu --images 64 --out results/attacks-cpu.md

Times are medians of runs in turns, at least `--repeats` and a second of them, without the first quarter, in
which a device warms up; of slow attacks (C&W, and all of ART's) one run, after one of both on two images, which
loads what they need. Success is measured again by the model itself; the
median distance is over the images that both moved. A speed above 1 means that ours is faster. Operations are
those that PyTorch runs for one call (views left out), of what is run more than once: on a GPU each is a launch or
more, and with a small network little else takes time.
"""

import argparse
import logging
import platform
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from subsets import whole
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import ukemi
from ukemi.attacks.carlini_wagner import carlini_wagner
from ukemi.attacks.deepfool import deepfool
from ukemi.attacks.fgsm import fgsm
from ukemi.attacks.iterative import pgd
from ukemi.attacks.saliency import jsma
from ukemi.data import load
from ukemi.models import create

SETTLED = 1.0
"""seconds of turns after which a device has its clocks up"""


@dataclass
class Row:
    name: str
    peer: str
    norm: str
    ours: Callable[[slice], Tensor]
    theirs: Callable[[slice], Tensor]
    targets: Tensor | None = None
    once: bool = False


def trained(name: str, device: str, epochs: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The model after some epochs of fashion-mini, with that set's test images and labels."""
    torch.manual_seed(0)
    data = load("fashion-mini")
    model = create(name, classes=10, channels=1, size=(28, 28)).to(device)
    images, labels = whole(data.train, device)
    batches = [rows for _ in range(epochs) for rows in torch.randperm(len(images)).split(128)]
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=len(batches))
    for rows in batches:
        loss = F.cross_entropy(model.train()(images[rows]), labels[rows])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    optimiser.zero_grad(set_to_none=True)
    return model.eval(), *whole(data.test, device)


def rows_of(model: nn.Module, images: Tensor, labels: Tensor, args: argparse.Namespace) -> list[Row]:
    import foolbox
    from art.attacks.evasion import CarliniL2Method, SaliencyMapMethod
    from art.estimators.classification import PyTorchClassifier

    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=args.device)
    kinds = foolbox.attacks
    shape = tuple(images.shape[1:])
    classifier = PyTorchClassifier(
        model,
        nn.CrossEntropyLoss(),
        shape,
        10,
        clip_values=(0, 1),
        device_type="gpu" if args.device == "cuda" else "cpu",
    )
    targets = (labels + 1 + torch.arange(len(labels), device=labels.device) % 9) % 10

    def by_foolbox(attack: Any, epsilon: float | None = None) -> Callable[[slice], Tensor]:
        return lambda at: attack(wrapped, images[at], labels[at], epsilons=epsilon)[1]

    def by_art(attack: Any, wanted: Tensor) -> Callable[[slice], Tensor]:
        return lambda at: torch.from_numpy(attack.generate(images[at].cpu().numpy(), wanted[at].cpu().numpy())).to(
            images.device
        )

    steps, searches = args.steps, args.searches
    carlini = CarliniL2Method(
        classifier, 0.0, False, 0.01, searches, steps, 1e-3, batch_size=args.art_batch, verbose=False
    )
    saliency = SaliencyMapMethod(classifier, 1.0, 0.1, batch_size=args.art_batch, verbose=False)
    return [
        Row(
            "FGSM, linf 0.05",
            "foolbox",
            "linf",
            lambda at: fgsm(model, images[at], labels[at], epsilon=0.05).images,
            by_foolbox(kinds.LinfFastGradientAttack(), 0.05),
        ),
        Row(
            "PGD-40, linf 0.02, one random start as foolbox",
            "foolbox",
            "linf",
            lambda at: pgd(model, images[at], labels[at], epsilon=0.02, steps=40, zero_start=False).images,
            by_foolbox(kinds.LinfProjectedGradientDescentAttack(steps=40), 0.02),
        ),
        Row(
            "PGD-40, linf 0.02, our default of two starts",
            "foolbox",
            "linf",
            lambda at: pgd(model, images[at], labels[at], epsilon=0.02, steps=40).images,
            by_foolbox(kinds.LinfProjectedGradientDescentAttack(steps=40), 0.02),
        ),
        Row(
            "DeepFool l2",
            "foolbox",
            "l2",
            lambda at: deepfool(model, images[at], labels[at]).images,
            by_foolbox(kinds.L2DeepFoolAttack()),
        ),
        Row(
            "DeepFool linf",
            "foolbox",
            "linf",
            lambda at: deepfool(model, images[at], labels[at], norm="linf").images,
            by_foolbox(kinds.LinfDeepFoolAttack()),
        ),
        Row(
            f"C&W {searches} x {steps}",
            "foolbox",
            "l2",
            lambda at: carlini_wagner(model, images[at], labels[at], searches=searches, steps=steps).images,
            by_foolbox(kinds.L2CarliniWagnerAttack(searches, steps)),
            once=True,
        ),
        Row(
            f"C&W {searches} x {steps}",
            "ART",
            "l2",
            lambda at: carlini_wagner(model, images[at], labels[at], searches=searches, steps=steps).images,
            by_art(carlini, labels),
            once=True,
        ),
        Row(
            "JSMA, targeted",
            "ART",
            "l0",
            lambda at: jsma(model, images[at], labels[at], targets=targets[at]).images,
            by_art(saliency, targets),
            targets=targets,
            once=True,
        ),
    ]


def timed(work: Callable[[slice], Tensor], at: slice, device: str) -> tuple[float, Tensor]:
    began = now(device)
    found = work(at)
    return now(device) - began, found


class Counted(TorchDispatchMode):
    """Counts the operations that are run inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not operation.is_view
        return operation(*args, **(kwargs or {}))


def operations_of(work: Callable[[slice], Tensor], at: slice) -> int:
    with Counted() as found:
        work(at)
    return found.count


def middle(runs: Sequence[tuple[float, Tensor]]) -> tuple[float, Tensor]:
    """The run of median time."""
    return sorted(runs, key=lambda run: run[0])[len(runs) // 2]


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def line(row: Row, model: nn.Module, images: Tensor, labels: Tensor, args: argparse.Namespace) -> str:
    at = slice(0, args.art_images if row.peer == "ART" else len(images))
    if row.once:
        row.ours(slice(0, 2)), row.theirs(slice(0, 2))
    began, pairs = perf_counter(), list[tuple[Any, Any]]()
    while not pairs or not (row.once or (len(pairs) >= args.repeats and perf_counter() - began > SETTLED)):
        pairs.append((timed(row.ours, at, args.device), timed(row.theirs, at, args.device)))
    ours, theirs = (middle(column) for column in zip(*pairs[len(pairs) // 4 :], strict=True))
    operations = ["", ""] if row.once else [operations_of(work, at) for work in (row.ours, row.theirs)]
    model.zero_grad(set_to_none=True)
    success, distance = [], []
    for _, found in (ours, theirs):
        clean, own = images[: len(found)], labels[: len(found)]
        with torch.no_grad():
            said = model(found).argmax(1)
        fooled = said != own if row.targets is None else said == row.targets[: len(found)]
        success.append(fooled & found.flatten(1).any(1))  # foolbox's C&W gives black images where it finds nothing
        distance.append(length(found - clean, row.norm))
    both = success[0] & success[1] & (distance[0] > 0) & (distance[1] > 0)
    medians = [float(column[both].median()) if bool(both.any()) else float("nan") for column in distance]
    shares = [float(column.float().mean()) for column in success]
    return (
        f"| {row.name} | {row.peer} | {len(ours[1])} | {ours[0]:.3g} | {theirs[0]:.3g} | {theirs[0] / ours[0]:.2g} |"
        f" {shares[0]:.1%} | {shares[1]:.1%} | {medians[0]:.4g} | {medians[1]:.4g} |"
        f" {operations[0]} | {operations[1]} |"
    )


def length(changes: Tensor, norm: str) -> Tensor:
    """The distance per image `[N]`; l0 counts the changed features."""
    flat = changes.flatten(1)
    return {"l0": (flat != 0).sum(1), "l2": flat.norm(dim=1), "linf": flat.abs().amax(1)}[norm]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="demo-cnn")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--art-images", type=int, help="for ART's rows; all by default")
    parser.add_argument("--art-batch", type=int, default=1, help="ART's batch size; its default is 1")
    parser.add_argument("--searches", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose name or peer contains this")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.art_images = min(args.art_images or args.images, args.images)
    warnings.simplefilter("ignore")
    logging.getLogger("art").setLevel(logging.ERROR)
    model, images, labels = trained(args.model, args.device, args.epochs)
    with torch.no_grad():
        accuracy = float((model(images).argmax(1) == labels).float().mean())
    images, labels = images[: args.images], labels[: args.images]
    hardware = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    text = (
        f"# Attacks beside foolbox and ART\n\n`{args.model}` on fashion-mini, accuracy {accuracy:.1%}, {len(images)}"
        f" images, {hardware}; ukemi {ukemi.__version__}, foolbox {version('foolbox')}, ART"
        f" {version('adversarial-robustness-toolbox')} at batch {args.art_batch}, torch {torch.__version__}, Python"
        f" {platform.python_version()}.\n\n"
        "| attack | peer | images | ours, s | peer, s | speed | success | peer's | median distance | peer's |"
        " operations | peer's |\n" + "| --- " * 12 + "|\n"
    )
    print(text, end="", flush=True)
    for row in rows_of(model, images, labels, args):
        if args.only in f"{row.name} {row.peer}":
            written = line(row, model, images, labels, args) + "\n"
            print(written, end="", flush=True)
            text += written
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()

"""What the page shows of a run beside its numbers: pictures of what breaks it, the same few images as all other runs
from near, and how sure it was of what broke it.

They lie in a file of their own beside the outcome, so that numbers stay small and runs without pictures stay readable.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.comparing.plan import Measured
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures.doubts import Doubted, Doubts, doubts
from ukemi.measures.examples import (
    Broken,
    Sweep,
    Terrain,
    broken_images,
    drawn,
    sweeps,
    swept_axes,
    terrains,
)
from ukemi.measures.robustness import Robustness
from ukemi.measures.sensitivity import Landscape, landscape_axes
from ukemi.spaces import Space, named_grid
from ukemi.training import Run
from ukemi.training.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from ukemi.uncertainty import Uncertainty
from ukemi.variations import vary

KIND = "shown"
SCHEMA = 1
"""Version of the fields: raised when one changes its meaning or goes."""
GALLERY, NEAR, ASKED = 10, 4, 100
"""broken images of a run; images that every run shows from near; variants, and images, of which it is asked how sure
it is"""
DOUBTED, METRICS = ("recognised", "broken"), ("prediction", "confidence", "pcs", "vr", "pe", "mi")
SEED = 0
"""draws them: the same ones for all runs, whatever their seed"""


@dataclass(frozen=True)
class Shown:
    """What a page shows of one run."""

    space: Space
    classes: tuple[str, ...]
    gallery: tuple[Broken, ...]
    terrains: tuple[Terrain, ...]
    sweeps: tuple[Sweep, ...]
    """of the same images as the terrains"""
    doubts: Doubts | None = None


def shown_path(run: Run, measured: Measured) -> Path:
    return run.folder / f"shown-{measured.key}.safetensors"


def write_shown(run: Run, measured: Measured, model: nn.Module, test: Data, found: Robustness) -> None:
    """Takes the pictures of a trained model and writes them."""
    broken = broken_images(model, test, found, drawn(test, found.correct & ~found.robust, GALLERY, SEED))
    near = drawn(test, torch.ones_like(found.correct), NEAR, SEED)
    shown = Shown(
        found.space,
        test.classes,
        broken,
        terrains(model, test, found.space, near),
        sweeps(model, test, found.space, near),
        doubts(model, test, found, images=ASKED, seed=SEED),
    )
    values: dict[str, Any] = {"kind": KIND, "shown_schema": SCHEMA, "classes": list(test.classes)}
    if shown.doubts:
        values |= {"passes": shown.doubts.broken.found.passes, "dropout_inserted": shown.doubts.inserted}
    write_checkpoint(shown_path(run, measured), _tensors(shown), values)


def read_shown(run: Run, measured: Measured) -> Shown | None:
    """None where a run has none, or none that can be read: a page without pictures is still a page."""
    try:
        read = read_checkpoint(shown_path(run, measured))
    except UserError:
        return None
    if read.values.get("kind") != KIND or read.values.get("shown_schema", 0) > SCHEMA:
        return None
    return _shown(read, measured)


def _tensors(shown: Shown) -> dict[str, Tensor]:
    """Variants are left out: images and genes make them again."""
    found: dict[str, Tensor] = {}
    if shown.gallery:
        found |= {f"broken.{name}": kept for name, kept in _common(shown.gallery).items()}
        found["broken.guess"] = torch.tensor([one.guess for one in shown.gallery])
        found["broken.genes"] = torch.tensor([one.genes for one in shown.gallery])
        found["broken.loss"] = torch.tensor([one.loss for one in shown.gallery])
    if shown.terrains:
        found |= {f"near.{name}": kept for name, kept in _common(shown.terrains).items()}
        found["near.losses"] = torch.stack([one.landscape.losses for one in shown.terrains])
        found["near.wrong"] = torch.stack([one.landscape.wrong for one in shown.terrains])
        found["near.guesses"] = torch.tensor([sum(one.guesses, ()) for one in shown.sweeps])
        found["near.confidences"] = torch.tensor([sum(one.confidences, ()) for one in shown.sweeps])
    if shown.doubts:
        for part in DOUBTED:
            one: Doubted = getattr(shown.doubts, part)
            own = {"index": one.index, "label": one.labels} | {name: getattr(one.found, name) for name in METRICS}
            found |= {f"asked.{part}.{name}": values for name, values in own.items()}
    return found


def _common(some: Any) -> dict[str, Tensor]:
    return {
        "index": torch.tensor([one.index for one in some]),
        "label": torch.tensor([one.label for one in some]),
        "image": (torch.stack([one.image for one in some]).float() * 255).round().byte(),
    }


def _shown(read: Checkpoint, measured: Measured) -> Shown:
    broken, near = read.part("broken"), read.part("near")
    images = (near or broken).get("image")
    size = (28, 28) if images is None else (int(images.shape[2]), int(images.shape[3]))
    space, _ = named_grid(measured.grids[0], size)
    grounds, swept = _near(near, space) if near else ((), ())
    gallery = _broken(broken, space) if broken else ()
    return Shown(space, tuple(read.values["classes"]), gallery, grounds, swept, _doubts(read))


def _doubts(read: Checkpoint) -> Doubts | None:
    kept = {part: read.part(f"asked.{part}") for part in DOUBTED}
    if not all(kept.values()):
        return None
    asked = {}
    for part, own in kept.items():
        metrics: dict[str, Any] = {name: own[name] for name in METRICS}
        asked[part] = Doubted(own["index"], own["label"], Uncertainty(**metrics, passes=read.values["passes"]))
    return Doubts(**asked, inserted=read.values["dropout_inserted"])


def _broken(kept: dict[str, Tensor], space: Space) -> tuple[Broken, ...]:
    images = kept["image"].float() / 255
    variants = vary(images, kept["genes"], space)
    plain = zip(*(kept[name].tolist() for name in ("index", "label", "guess", "genes", "loss")), strict=True)
    return tuple(
        Broken(index, image, variant, label, guess, tuple(genes), loss)
        for (index, label, guess, genes, loss), image, variant in zip(plain, images, variants, strict=True)
    )


def _near(kept: dict[str, Tensor], space: Space) -> tuple[tuple[Terrain, ...], tuple[Sweep, ...]]:
    images, labels, index = kept["image"].float() / 255, kept["label"].tolist(), kept["index"].tolist()
    axes, genes = landscape_axes(space), swept_axes(space)
    lengths = [len(axis.values) for axis in genes]
    grounds, swept = [], []
    for at, image in enumerate(images):
        ground = Landscape(axes[0] if len(axes) == 2 else None, axes[-1], kept["losses"][at], kept["wrong"][at])
        grounds.append(Terrain(index[at], image, labels[at], ground))
        answers = [
            tuple(tuple(part.tolist()) for part in kept[name][at].split(lengths)) for name in ("guesses", "confidences")
        ]
        swept.append(Sweep(index[at], image, labels[at], genes, answers[0], answers[1]))
    return tuple(grounds), tuple(swept)

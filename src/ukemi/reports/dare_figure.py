"""DARE's Figure 1: where models look at one image, clean and attacked, before and after tuning."""

from pathlib import Path

import torch

from ukemi.activations import grad_cam
from ukemi.data import as_float
from ukemi.errors import UserError
from ukemi.experiments.dare import DareCell
from ukemi.models.inference import logits
from ukemi.reports.gallery import name_of
from ukemi.reports.pictures import nine_maps

COLUMNS = {"original": "original", "tuned on C&W": "adv cw", "DARE": "dare"}
ROWS = {"clean": "clean", "cw": "C&W", "bim": "BIM"}


def heat_maps(cell: DareCell, path: Path) -> None:
    """Writes the picture, with the first image that C&W and BIM both turned; each map is for the model's own answer."""
    models = {name: cell.made(method) for name, method in COLUMNS.items()}
    there = {name: model for name, model in models.items() if model is not None}
    clean = cell.frozen_images
    parts = {"clean": clean} | {name: cell.adversarial(name, "test") for name in ("cw", "bim")}
    both = torch.isin(parts["cw"].index, parts["bim"].index)
    if not bool(both.any()):
        raise UserError("figure: no image was turned by C&W and by BIM.")
    index = parts["cw"].index[both][0]
    images = torch.cat([as_float(part.images[part.index == index][:1]) for part in parts.values()])
    label = clean.classes[int(clean.labels[clean.index == index][0])]
    maps, said = [], []
    for model in there.values():
        answers = logits(model, images, len(images)).argmax(1)
        maps.append(grad_cam(model, images, answers).cpu())
        said.append([name_of(clean.classes, int(one)) for one in answers])
    rows = [f"{ROWS[name]}: {label}" for name in parts]
    path.parent.mkdir(parents=True, exist_ok=True)
    nine_maps(images.cpu(), torch.stack(maps, 1), rows, list(there), list(zip(*said, strict=True))).save(path)

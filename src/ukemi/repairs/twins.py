"""Adversarial twins: images that join the tuning with the gold standard of their clean image (DARE's future work)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ukemi.attacks.config import AttackConfig
from ukemi.data import Data, as_float, in_a_row
from ukemi.errors import UserError
from ukemi.models.inference import home_of
from ukemi.repairs.mining import Mined
from ukemi.repairs.more import pixels
from ukemi.training.sets import read_set_for
from ukemi.training.setup import in_classes

BLOCK = 1024
"""images that are attacked at once"""


def twins_of(model: nn.Module, data: Data, epsilon: float, seed: int) -> Data:
    """Each image after PGD (Linf) on the model, whether it is fooled or not."""
    attack = AttackConfig(attack="pgd", epsilon=epsilon).made(seed)
    order = torch.arange(len(data)).split(BLOCK)
    found = [
        attack(model, batch.images, batch.labels, index=batch.index).images.to(data.labels.device)
        for batch in data.batches(order, home_of(model))
    ]
    return replace(data, images=torch.cat(found))


def saved(field: str, paths: Sequence[Path], model: nn.Module, among: Data) -> Data | None:
    """The fooling images of adversarial sets that were made for `model`, as far as their originals are in `among`."""
    return in_a_row([_saved(field, path, model, among) for path in paths]) if paths else None


def _saved(field: str, path: Path, model: nn.Module, among: Data) -> Data:
    found, made = read_set_for(field, path, model)
    if found.split != "train":
        raise UserError(
            f"{field}: {path} was made from the {found.split} part, but only images that the run kept aside from its"
            " training part may be used; `ukemi attack RUN --split train` attacks them too."
        )
    data = in_classes(made, among.classes)
    rows = torch.isin(data.index, among.index.cpu()).nonzero().flatten()
    if not len(rows):
        raise UserError(
            f"{field}: {path} has no image among the {len(among)} that it is needed for; attack all of the train part,"
            " or some by another --seed than the run's, which draws those that select first."
        )
    return data.take(rows)


def joined(mined: Mined, twins: Data) -> Mined:
    """The mined images and behind them the twins of mined images, each with the gold standard of its identity."""
    row_of = torch.full((mined.data.identities,), -1, dtype=torch.int64)
    row_of[mined.data.index.cpu()] = torch.arange(len(mined))
    rows = row_of[twins.index.cpu()]
    twins = twins.take((rows >= 0).nonzero().flatten().to(twins.labels.device))
    if not len(twins):
        raise UserError("twins: none of them is a twin of an image that was mined.")
    every = torch.cat([torch.arange(len(mined)), rows[rows >= 0]])
    wide = mined.take(every.to(mined.targets.device))
    images = torch.cat([_float(mined.data), _float(twins).to(mined.data.labels.device)])
    return replace(wide, data=replace(wide.data, images=images))


def _float(data: Data) -> Tensor:
    return as_float(pixels(data))

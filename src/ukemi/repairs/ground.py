"""What DARE stands on: a finished run with its history, and images in three parts."""

from dataclasses import dataclass

import torch
from torch import nn

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.repairs.mining import Historical
from ukemi.training import Run, TrainConfig
from ukemi.training.history import History
from ukemi.training.setup import fixed_subset, in_classes, load_sets, trained_model

SELECTION = 5000
"""images that only select and stop, where they are at most a quarter of those kept aside; else a tenth"""


@dataclass(frozen=True)
class Ground:
    """What DARE stands on: the finished model with its history, and images in three parts that share none."""

    run: Run
    config: TrainConfig
    model: nn.Module
    train: Data
    """what the run was trained on; slices are cut by these"""
    aside: Data
    """what it was not trained on: the next two together"""
    mining: Data
    selection: Data
    """images that only select and stop"""
    history: Historical


def ground_of(run: Run, device: str | None = None) -> Ground:
    """What the run kept aside (`--validation 0.5` is the paper's half) is parted by its seed into images that select
    and images that are mined. A run without such images or a history, or with another model's, is refused. `device`
    takes the place of the run's own."""
    config = Run.config_of(run.folder).on(device)
    history = History(run)
    if not config.validation:
        raise UserError(f"run: {run.folder} kept no images aside; train with --validation 0.5.")
    if not run.weights_path.exists():
        raise UserError(f"run: {run.folder} has no weights yet; finish it with {run.resuming}.")
    sets = load_sets(config)
    model, train = trained_model(run, config, sets.train)
    history.check(model)
    assert sets.validation is not None
    aside = in_classes(sets.validation, train.classes)
    count = SELECTION if len(aside) >= 4 * SELECTION else max(1, len(aside) // 10)
    selection = fixed_subset(aside, count, config.seed)
    mining = aside.take((~torch.isin(aside.index, selection.index)).nonzero().flatten())
    for label, images in enumerate(mining.labels.bincount(minlength=len(mining.classes)).tolist()):
        if not images:
            raise UserError(
                f"data: class {mining.classes[label]!r} has no sample among the {len(mining)} images to mine."
            )
    home = config.chosen_device()
    train, aside, mining, selection = (part.to(home) for part in (train, aside, mining, selection))
    return Ground(run, config, model.to(home).eval(), train, aside, mining, selection, history)

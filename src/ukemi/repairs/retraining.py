"""Adversarial retraining on natural variants (SENSEI, Exp-3): train, find what fools, add it, train some more."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ukemi.augmenters import WorstOf
from ukemi.data import Data
from ukemi.models.inference import default_chunk, home_of
from ukemi.repairs.more import free_folder, further, last_rate, like, pixels, same_steps, train_further
from ukemi.spaces import Space
from ukemi.training import Run
from ukemi.training.setup import load_sets, trained_model
from ukemi.variations import vary

DRAWS = 10
"""variants that are scored per sample and epoch of the run, as SENSEI would from its second epoch on"""
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Retrain:
    """What a retraining did."""

    run: Run
    fooling: int
    """samples for which a variant was found that fools the model"""
    samples: int
    forwards: int
    """forward passes that finding them took"""
    search: int
    """what SENSEI would have spent in as many epochs: its first one is clean"""


def retrain(
    run: Run,
    *,
    epochs: int = 5,
    out: Path | None = None,
    device: str | None = None,
    quiet: bool = False,
    report: Report | None = None,
) -> Retrain:
    """From 10 x (the run's epochs) random variants per sample the one of highest loss that fools the model is added to
    the training set, and the model is trained for `epochs` more at the last learning rate (`last_rate`). `device` takes
    the place of the run's own."""
    config, folder = Run.plain_config_of(run.folder).on(device), free_folder(run, out, "retrained")
    sets = load_sets(config)
    model, data = trained_model(run, config, sets.train)
    model = model.to(config.chosen_device())
    space = config.chosen_space()
    genes_NG, fooled_N = fooling(model, data, space, config.epochs, config.seed, report)
    stored = pixels(data)
    rows = fooled_N.nonzero().flatten()
    variants = [like(vary(data.batch(part, "cpu").images, genes_NG[part], space), stored) for part in rows.split(4096)]
    images, labels = torch.cat([stored, *variants]), torch.cat([data.labels, data.labels[rows]])
    _, test = trained_model(run, config, sets.test)
    rate = last_rate(config, run)
    told = further(config, run, folder, epochs=epochs, learning_rate=rate, **same_steps(config))
    about = {"repair": "retrain", "samples": len(rows)}
    finished = train_further(told, run, model, images, labels, test, about, quiet=quiet)
    spent = DRAWS * config.epochs * len(data)
    return Retrain(finished, len(rows), len(data), spent, DRAWS * (config.epochs - 1) * len(data))


@torch.no_grad()
def fooling(
    model: nn.Module, data: Data, space: Space, rounds: int, seed: int, report: Report | None = None
) -> tuple[Tensor, Tensor]:
    """Of `rounds` x 10 random variants per sample the one of highest loss that fools the model: genes `[N, G]` (the
    identity where there is none), and bool `[N]` whether there is one."""
    device = home_of(model)
    search = WorstOf(space, k=DRAWS, seed=seed)
    chunk = default_chunk((data.channels, *data.size), device)
    genes, fooled = [], []
    for positions in torch.arange(len(data)).split(chunk):
        batch = data.batch(positions, device)
        best_N = torch.full((len(positions),), -torch.inf, device=device)
        genes_NG = space.identity(device).expand(len(positions), -1).clone()
        rows_N = torch.arange(len(positions), device=device)
        for number in range(rounds):
            drawn_NKG = space.sample(batch.index, DRAWS, seed=seed, epoch=number)
            found = search.searched(model, batch.images, batch.labels, batch.index, number, drawn_NKG)
            wrong_NK = found.predicted != batch.labels[:, None]
            loss_NK = torch.where(wrong_NK, found.losses, -torch.inf)
            at_N = loss_NK.argmax(1)
            better_N = loss_NK[rows_N, at_N] > best_N
            best_N = torch.where(better_N, loss_NK[rows_N, at_N], best_N)
            genes_NG = torch.where(better_N[:, None], drawn_NKG[rows_N, at_N], genes_NG)
        genes.append(genes_NG.cpu())
        fooled.append(best_N.isfinite().cpu())
        if report is not None:
            report(int(positions[-1]) + 1, len(data))
    return torch.cat(genes), torch.cat(fooled)

"""Adversarial fine-tuning on saved sets: the baseline of DARE, with every layer trainable."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi import randomness
from ukemi.data import Data, as_float
from ukemi.errors import UserError
from ukemi.models.inference import home_of
from ukemi.randomness import Stream
from ukemi.repairs.mining import Mined, Report
from ukemi.repairs.more import free_folder, further, pixels, train_further
from ukemi.repairs.tuning import Score, Tuned, search_grid
from ukemi.training import Run
from ukemi.training.sets import read_set_for
from ukemi.training.setup import in_classes, load_sets, trained_model


def fine_tune(
    run: Run,
    sets: Sequence[Path],
    *,
    epochs: int = 20,
    learning_rate: float = 1e-4,
    batch_size: int = 32,
    clean: bool = False,
    out: Path | None = None,
    device: str | None = None,
    quiet: bool = False,
) -> Run:
    """Trains the run's model on the fooling images of `sets` with Adam; `clean` adds the run's own training images.

    The settings are those of DARE's baselines (20 epochs, Adam at 1e-4, batches of 32, adversarial images alone). A set
    that was made for another model or other classes is refused. Make sets of the run's training part: one of its test
    part is trained on too, but then the test images say nothing (repair.json keeps the parts as `splits`). `device`
    takes the place of the run's own.
    """
    config, folder = Run.plain_config_of(run.folder).on(device), free_folder(run, out, "tuned")
    own = load_sets(config)
    model, test = trained_model(run, config, own.test)
    read = [_read(path, model, test) for path in sets]
    parts = [images for images, _ in read]
    if clean:
        _, train_part = trained_model(run, config, own.train)
        parts.append(train_part)
    images = torch.cat([as_float(pixels(part)) for part in parts])
    if len(images) < 2:
        raise UserError("sets: there is one image in them that fools the model; at least two are needed.")
    told = further(
        config,
        run,
        folder,
        epochs=epochs,
        learning_rate=learning_rate,
        batch_size=batch_size,
        optimiser="adam",
        weight_decay=0,
    )
    labels = torch.cat([part.labels for part in parts])
    about = {"repair": "adversarial", "sets": [str(path) for path in sets], "clean": clean, "samples": len(images)}
    about["splits"] = sorted({split for _, split in read})
    return train_further(told, run, model, images, labels, test, about, quiet=quiet)


def _read(path: Path, model: torch.nn.Module, test: Data) -> tuple[Data, str]:
    """The fooling images of a set, and the part of the data that they were made from."""
    found, made = read_set_for("sets", path, model)
    given, own = [made.channels, *made.size], [test.channels, *test.size]
    if given != own:
        raise UserError(f"sets: {path}: its images are {given}, those of the run {own}.")
    return in_classes(made, test.classes), found.split


def fine_tune_grid(
    model: nn.Module,
    data: Data,
    selection: Data,
    *,
    score: Score,
    learning_rates: Sequence[float] = (1e-5, 1e-4, 1e-3),
    epochs: int = 5,
    batch_size: int = 128,
    allowed_drop: float = 0.1,
    seed: int = 0,
    report: Report | None = None,
) -> Tuned:
    """Trains copies of `model` on `data`, every layer, at each learning rate, and keeps the state that `score` likes
    best among those that keep enough accuracy on the selection images: the grid and the limit of DARE's own tuning."""

    def made(rate: float) -> WholeTuner:
        return WholeTuner(deepcopy(model), rate, seed)

    none_N = torch.zeros(len(data), device=home_of(model))
    samples = Mined(data, none_N[:, None], none_N.long(), none_N.double(), none_N.double(), len(data))
    return search_grid(
        model,
        samples,
        selection,
        made,
        score=score,
        learning_rates=learning_rates,
        epochs=epochs,
        batch_size=batch_size,
        allowed_drop=allowed_drop,
        seed=seed,
        report=report,
    )


class WholeTuner:
    """Adam on every parameter with cross-entropy, as in training: dropout drops, BatchNorm learns its statistics."""

    def __init__(self, model: nn.Module, rate: float, seed: int = 0) -> None:
        self.model, self.seed, self.steps = model, seed, 0
        self.optimiser = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=rate)

    def step(self, images: Tensor, labels: Tensor, targets_NO: Tensor) -> Tensor:
        """One update; the mean loss before it, `[]`. Nothing is made of the targets."""
        torch.manual_seed(randomness.key(self.seed, Stream.STEP, self.steps))
        self.steps += 1
        loss = F.cross_entropy(self.model.train()(images), labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.detach()

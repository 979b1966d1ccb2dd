"""Adversarial fine-tuning on saved sets: the baseline of DARE, with every layer trainable."""

from collections.abc import Sequence
from pathlib import Path

import torch

from ukemi.data import Data, as_float
from ukemi.repairs.more import free_folder, further, pixels, write_npz
from ukemi.training import Run, train
from ukemi.training.sets import as_data, check_set, read_set
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
    quiet: bool = False,
) -> Run:
    """Trains the run's model on the fooling images of `sets` with Adam; `clean` adds the run's own training images.

    The settings are those of DARE's baselines (20 epochs, Adam at 1e-4, batches of 32, adversarial images alone). A set
    that was made for another model or other classes is refused.
    """
    config, folder = Run.plain_config_of(run.folder), free_folder(run, out, "tuned")
    own = load_sets(config)
    model, test = trained_model(run, config, own.test)
    parts = [_images_of(path, model, test) for path in sets]
    if clean:
        _, train_part = trained_model(run, config, own.train)
        parts.append(train_part)
    images = torch.cat([as_float(pixels(part)) for part in parts])
    told = further(
        config,
        run,
        folder / "data.npz",
        folder,
        epochs=epochs,
        learning_rate=learning_rate,
        batch_size=batch_size,
        optimiser="adam",
        weight_decay=0,
        seed=config.seed,
    )
    write_npz(folder / "data.npz", images, torch.cat([part.labels for part in parts]), test)
    return train(told, quiet=quiet)


def _images_of(path: Path, model: torch.nn.Module, test: Data) -> Data:
    found = read_set(path)
    check_set(found, model=model)
    return in_classes(as_data(found), test.classes)

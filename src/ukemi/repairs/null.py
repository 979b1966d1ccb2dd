"""Null controls: does a repair do more than any change of its size, or any further training of its length, would do?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ukemi import randomness
from ukemi.errors import UserError, field_called
from ukemi.randomness import Stream
from ukemi.repairs.more import REPAIR, beside, free_folder, further, pixels, read_about, train_further, write_tuned
from ukemi.training import Run, TrainConfig
from ukemi.training.sets import weights_hash
from ukemi.training.setup import fixed_subset, load_sets, trained_model

Kind = Literal["random", "continued"]


def random_change(model: nn.Module, tuned: Mapping[str, Tensor], *, seed: int = 0) -> dict[str, Tensor]:
    """The model's state with each parameter moved as far as in `tuned`, in a random direction.

    Normal numbers, drawn by (seed, parameter, place), on the very weights that differ in `tuned`, scaled to the norm of
    their change; parameters and weights that did not move, and all buffers, keep their bits.
    """
    clones: dict[Tensor, Tensor] = {}  # one for a parameter that has two names
    state = {
        name: clones.setdefault(one, one.detach().clone()) for name, one in model.state_dict(keep_vars=True).items()
    }
    for number, (name, weight) in enumerate(model.named_parameters()):
        if name not in tuned or tuned[name].shape != weight.shape:
            raise UserError(f"like: it is another network ({name} is not {list(weight.shape)} there).")
        change = tuned[name].to(weight.device) - weight.detach()
        moved = change != 0
        if bool(moved.any()):
            drawn = torch.where(moved, _normal(weight, seed, number), 0)
            state[name] += drawn * (change.norm() / drawn.norm())
    return state


def _normal(like: Tensor, seed: int, number: int) -> Tensor:
    """Box and Muller's normal numbers in the shape of `like`."""
    place = torch.arange(like.numel(), device=like.device)
    u_N2 = randomness.uniform(place, genes=2, seed=seed, stream=Stream.WEIGHTS, epoch=number)[:, 0]
    radius_N = (-2 * torch.log1p(-u_N2[:, 0])).sqrt()
    return (radius_N * torch.cos(2 * torch.pi * u_N2[:, 1])).view_as(like).to(like.dtype)


def null_control(
    run: Run,
    like: Run,
    *,
    kind: Kind = "random",
    seed: int = 0,
    out: Path | None = None,
    device: str | None = None,
    quiet: bool = False,
) -> Run:
    """A new run folder beside a repaired one: `random` moves the run's weights as far as `like` did, at random;
    `continued` trains the run's model further on as many of its own training images, with the same optimiser, learning
    rate, batch size and epochs. `device` takes the place of the run's own."""
    folder = free_folder(run, out, f"null-{kind}")
    if like.folder.resolve() == run.folder.resolve():
        raise UserError(f"like: {like.folder} is the run itself; the folder of a repair of it is needed.")
    if not (like.folder / REPAIR).exists():
        raise UserError(f"like: {like.folder} is no repair of {run.folder} (there is no {REPAIR} in it).")
    config = Run.config_of(run.folder).on(device)
    return (_random if kind == "random" else _continued)(run, config, like, seed, folder, quiet)


def _read_about(like: Run) -> dict[str, Any]:
    with field_called("like", "run"):
        return read_about(like)


def _check_origin(run: Run, model: nn.Module, like: Run) -> None:
    """What the repaired run says that it was made from has to be this model."""
    about = _read_about(like)
    same = about.get("origin_model") == weights_hash(model)
    if not same and ("origin_model" in about or about.get("origin") != str(run.folder.resolve())):
        raise UserError(f"like: {like.folder} was made from another model than this run's.")


def _random(run: Run, config: TrainConfig, like: Run, seed: int, folder: Path, quiet: bool) -> Run:
    sets = load_sets(config)
    model, test = trained_model(run, config, sets.test)
    _check_origin(run, model, like)
    tuned, _ = trained_model(like, Run.config_of(like.folder), sets.test)
    state = random_change(model, tuned.state_dict(), seed=seed)
    told = beside(config, run, folder, epochs=1)
    about = _about(like, "random", seed) | {"origin": str(run.folder.resolve()), "origin_model": weights_hash(model)}
    return write_tuned(told, state, test.classes, [], about)


def _about(like: Run, kind: Kind, seed: int) -> dict[str, Any]:
    return {"repair": "null", "kind": kind, "seed": seed, "like": str(like.folder.resolve())}


def _continued(run: Run, config: TrainConfig, like: Run, seed: int, folder: Path, quiet: bool) -> Run:
    about = _read_about(like)
    sets = load_sets(config)
    model, data = trained_model(run, config, sets.train)
    _check_origin(run, model, like)
    about.setdefault("images", about.get("samples", len(data)))
    for name in ("epochs", "learning_rate", "batch_size", "images"):
        if not isinstance(about.get(name), int | float):
            raise UserError(f"like: {REPAIR} in {like.folder} doesn't say its {name}, so no training can be as long.")
    _, test = trained_model(run, config, sets.test)
    few = fixed_subset(data, min(max(2, int(about["images"])), len(data)), seed)  # training needs two
    told = further(
        config,
        run,
        folder,
        epochs=about["epochs"],
        learning_rate=about["learning_rate"],
        batch_size=max(2, about["batch_size"]),
        optimiser=about.get("optimiser", "adam"),  # DARE's own
        weight_decay=about.get("weight_decay", 0),
        momentum=about.get("momentum", config.momentum),
        seed=seed,
    )
    about = _about(like, "continued", seed)
    return train_further(told, run, model, pixels(few), few.labels, test, about, quiet=quiet)

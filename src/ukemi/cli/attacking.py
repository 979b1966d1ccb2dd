"""Attacks as commands run them: from flags to results."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Protocol

from torch import nn

from ukemi.attacks.config import Attack, AttackConfig, AttackSettings
from ukemi.cli.bars import bar
from ukemi.data import Data
from ukemi.errors import UserError, field_called
from ukemi.measures.attacks import Report, styx_grid, under_attack
from ukemi.measures.transfer import transfer_accuracy
from ukemi.ranks import Ranks
from ukemi.reports import AttackResult, Transfer
from ukemi.training.sets import AdversarialSet, as_data, check_set, originals, read_set, weights_hash
from ukemi.training.setup import fixed_subset, in_classes

STYX = "styx"
"""the named grid"""
Grid = Sequence[tuple[str, AttackConfig]]
"""Attacks, each with the group that it is reported in; empty for its own name."""


class Limited(Protocol):
    """What a command says about how much is measured."""

    @property
    def images(self) -> int | None: ...
    @property
    def seed(self) -> int: ...


def attacks_of(flags: AttackSettings, epsilons: Sequence[float] = ()) -> Grid:
    """The attacks that the flags ask for: none, one, one per epsilon, or STYX's grid."""
    given = [name for name in AttackSettings.model_fields if name != "attack" and getattr(flags, name) is not None]
    given += ["epsilons"] * bool(epsilons)
    if flags.attack is None:
        if given:
            raise UserError(f"{given[0].replace('_', '-')}: it belongs to an attack, so --attack is needed beside it.")
        return []
    if flags.attack == STYX:
        if given:
            raise UserError(f"{given[0].replace('_', '-')}: the grid styx brings its own settings.")
        return [(group, config) for group, configs in styx_grid().items() for config in configs]
    if not epsilons:
        return [("", AttackConfig.taken_from(flags))]
    if flags.epsilon is not None:
        raise UserError("epsilons: give --epsilon or --epsilons, not both.")
    with field_called("epsilons", "epsilon"):
        return [("", AttackConfig.taken_from(flags, epsilon=epsilon)) for epsilon in sorted(set(epsilons))]


def attacked_by(
    model: nn.Module, data: Data, attacks: Grid, seed: int, ranks: Ranks | None = None
) -> list[AttackResult]:
    """Every attack in turn, white-box, with one progress bar for all."""
    results = []
    for group, config in attacks:
        try:
            config.check((data.channels, *data.size))
        except UserError as error:
            if not group:
                raise
            raise UserError(f"attack: {STYX}'s grid is for larger images ({str(error).rstrip('.')}).") from None
    with bar("attacks", len(attacks) * len(data)) as told:
        for at, (group, config) in enumerate(attacks):

            def ahead(done: int, total: int, before: int = at * len(data)) -> None:
                told(before + done, len(attacks) * len(data))

            results.append(attacked(model, data, config, config.made(seed), group, ahead, ranks))
    return results


def attacked(
    model: nn.Module,
    data: Data,
    config: AttackConfig,
    attack: Attack,
    group: str = "",
    report: Report | None = None,
    ranks: Ranks | None = None,
) -> AttackResult:
    """One attack, timed; `attack` is what `config` makes, or something around it."""
    norm = config.check((data.channels, *data.size))
    began = monotonic()
    found = under_attack(model, data, attack, report=report, ranks=ranks)
    found = replace(found, norm=norm or found.norm)  # where nothing is recognised no attack has said it
    return AttackResult(config, found, group or f"{config.name()}-{found.norm}", monotonic() - began)


def set_of(path: Path, split: str) -> AdversarialSet:
    """A saved set, as far as it can be checked before data and model are there."""
    found = read_set(path)
    as_data(found)
    found.config()
    if found.split != split:
        raise UserError(f"split: the adversarial set was made from the {found.split} part; give --split {found.split}.")
    return found


def transferred(
    model: nn.Module,
    data: Data,
    sets: Mapping[Path, AdversarialSet],
    config: Limited,
    ranks: Ranks | None = None,
) -> list[Transfer]:
    """Accuracy on each set's fooling images, and its own attack on this model from the same unchanged images."""
    images = {}
    for file, found in sets.items():
        check_set(found, data)
        images[file] = in_classes(as_data(found), data.classes)
        if config.images is not None:
            images[file] = fixed_subset(images[file], min(config.images, len(images[file])), config.seed)
    if not sets:
        return []
    held = transfer_accuracy(model, list(images.values()), ranks).per_set
    return [
        Transfer(
            file=str(file),
            origin=found.model,
            own=weights_hash(model) == found.model,
            accuracy=share,
            images=len(images[file]),
            white_box=_white_box(model, originals(images[file], data), found, ranks),
        )
        for (file, found), share in zip(sets.items(), held, strict=True)
    ]


def _white_box(model: nn.Module, unchanged: Data, found: AdversarialSet, ranks: Ranks | None) -> AttackResult:
    """The attack of a set, on another model."""
    with bar("transfer", len(unchanged)) as report:
        made = found.config().made(found.seed)
        return attacked(model, unchanged, found.config(), made, report=report, ranks=ranks)

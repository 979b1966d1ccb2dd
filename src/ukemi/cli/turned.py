"""What attacks turn from right to wrong, kept for the next command that asks for the same."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from ukemi.attacks import ATTACKS
from ukemi.attacks.config import AttackConfig
from ukemi.cli.bars import bar
from ukemi.data import Data
from ukemi.errors import field_called
from ukemi.measures.uncertainty import turned_by
from ukemi.models.inference import home_of
from ukemi.ranks import Ranks
from ukemi.training.checkpoints import read_checkpoint, write_checkpoint
from ukemi.training.sets import weights_hash

PARTS = ("images", "labels", "index")


def turned(
    model: nn.Module,
    data: Data,
    attack: AttackConfig,
    seed: int,
    about: str,
    *,
    kept: Path | None = None,
    ranks: Ranks | None = None,
) -> Data:
    """What an attack turns from right to wrong, with a progress bar; taken from the folder `kept` where it is there,
    and written to it where it is not. Of anyone's own attack the name alone is known, so it is always run."""

    def made() -> Data:
        with bar(about, len(data)) as report, field_called("attacks", "attack"):
            return turned_by(model, data, attack.made(seed), report, ranks)

    if kept is None or attack.attack not in ATTACKS:
        return made()
    with field_called("attacked", "checkpoint"):
        return _kept(kept / f"{attack.name()}-{_key(model, data, attack, seed)}.safetensors", data, ranks, made)


def _kept(path: Path, data: Data, ranks: Ranks | None, made: Callable[[], Data]) -> Data:
    ranks = ranks or Ranks()
    if ranks.agree(not path.exists())[0]:  # ranks attack together or not at all
        found = made()
        if ranks.first:
            write_checkpoint(path, {name: getattr(found, name) for name in PARTS}, {})
        return found
    there = read_checkpoint(path).tensors
    images, labels, index = (there[name] for name in PARTS)
    return Data(images, labels, data.classes, index, data.identities)


def _key(model: nn.Module, data: Data, attack: AttackConfig, seed: int) -> str:
    """Changes with all that what is found depends on: the network, the images, the attack's settings, the device."""
    told = [weights_hash(model), repr(model), home_of(model).type, attack.settings(), seed]
    digest = hashlib.sha256(json.dumps(told).encode())
    for batch in data.batches(torch.arange(len(data)).split(1024), torch.device("cpu")):
        for name in PARTS:
            digest.update(getattr(batch, name).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]

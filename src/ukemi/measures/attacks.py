"""How a model holds under an attack: white-box, on the model itself."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Norm
from ukemi.attacks.config import Attack, AttackConfig
from ukemi.data import Data, shared
from ukemi.models.inference import default_chunk, home_of, logits, right
from ukemi.ranks import Ranks

BLOCK = 1024
"""images that are attacked at once"""
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class UnderAttack:
    """One attack on one model; tensors on the CPU, one row per image of the data."""

    right: Tensor
    """bool `[N]`: recognised unchanged; only these are attacked"""
    fooled: Tensor
    """bool `[N]`: recognised, and then fooled"""
    distance: Tensor
    """`[N]` in `norm`; NaN where nothing was attacked or found"""
    norm: Norm
    forwards: int
    backwards: int
    not_finite: int = 0
    """images whose logits are NaN or infinite while they are unchanged"""

    @property
    def accuracy(self) -> float:
        return float(self.right.double().mean())

    @property
    def attacked_accuracy(self) -> float:
        """The share of all images that are recognised and stay so."""
        return float((self.right & ~self.fooled).double().mean())

    @property
    def robustness(self) -> float:
        """STYX's formula: 1 - attacked / correctly classified; NaN where nothing is recognised."""
        count = int(self.right.sum())
        return 1 - int(self.fooled.sum()) / count if count else float("nan")

    @property
    def median_distance(self) -> float:
        """Over the fooled images; NaN where there are none."""
        found = self.distance[self.fooled]
        return float(found.double().median()) if len(found) else float("nan")


def under_attack(
    model: nn.Module,
    data: Data,
    attack: Attack,
    *,
    report: Report | None = None,
    ranks: Ranks | None = None,
) -> UnderAttack:
    """Attacks every image of `data` that the model recognises; `report(done, total)` hears how far it is. Each rank
    attacks its share, and all know the whole."""
    return shared(data, ranks, lambda part: _under_attack(model, part, attack, report), _joined)


def _joined(parts: list[UnderAttack]) -> UnderAttack:
    columns = (torch.cat([getattr(part, name) for part in parts]) for name in ("right", "fooled", "distance"))
    known, fooled, distance = columns
    norm = next((part.norm for part in parts if part.right.any()), parts[0].norm)  # only an attack says its norm
    forwards, backwards = sum(part.forwards for part in parts), sum(part.backwards for part in parts)
    not_finite = sum(part.not_finite for part in parts)
    return UnderAttack(known, fooled, distance, norm, forwards, backwards, not_finite)


def _under_attack(model: nn.Module, data: Data, attack: Attack, report: Report | None) -> UnderAttack:
    device = home_of(model)
    chunk = default_chunk((data.channels, *data.size), device)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    forwards = backwards = not_finite = 0
    norm: Norm = "linf"
    for positions in torch.arange(len(data)).split(BLOCK):
        batch = data.batch(positions, device)
        clean = logits(model, batch.images, chunk)
        known, not_finite = right(clean, batch.labels), not_finite + int((~clean.isfinite().all(1)).sum())
        rows = known.nonzero().flatten()
        fooled, distance = torch.zeros_like(known), torch.full(known.shape, torch.nan, device=device)
        if len(rows):
            found: Attacked = attack(model, batch.images[rows], batch.labels[rows], index=batch.index[rows])
            fooled[rows] = found.success
            distance[rows] = torch.where(found.success, found.distance, torch.nan).to(distance.dtype)
            forwards, backwards = forwards + int(found.forwards.sum()), backwards + int(found.backwards.sum())
            norm = found.norm
        parts.append((known.cpu(), fooled.cpu(), distance.cpu()))
        if report is not None:
            report(int(positions[-1]) + 1, len(data))
    known, fooled, distance = (torch.cat(column) for column in zip(*parts, strict=True))
    return UnderAttack(known, fooled, distance, norm, forwards, backwards, not_finite)


def styx_grid() -> dict[str, list[AttackConfig]]:
    """The parameters of STYX's released code by attack and norm: FGSM and BIM ten per norm, DeepFool ten."""
    fgsm = {
        "l1": [10.0 * at for at in range(1, 11)],
        "l2": [float(at) for at in range(1, 11)],
        "linf": [0.05 * at for at in range(1, 11)],
    }
    bim = {"l1": (20.0, 2.0), "l2": (2.0, 0.2), "linf": (0.1, 0.002)}
    grid = {
        f"fgsm-{norm}": [AttackConfig(attack="fgsm", norm=norm, epsilon=epsilon) for epsilon in sizes]
        for norm, sizes in fgsm.items()
    }
    for norm, (epsilon, step) in bim.items():
        grid[f"bim-{norm}"] = [
            AttackConfig(attack="bim", norm=norm, epsilon=epsilon, step_size=step * at, steps=steps)
            for at in range(1, 6)
            for steps in (10, 50)
        ]
    grid["deepfool"] = [AttackConfig(attack="deepfool", steps=2 * at, overshoot=0.1) for at in range(1, 11)]
    return grid


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """A table that spreadsheets read: a header, commas, numbers with points; a marker says that it is UTF-8."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return "\ufeff" + text.getvalue()

"""A loss that is not finite never reaches the weights."""

from collections import deque
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.ranks import Ranks
from ukemi.spaces import Space
from ukemi.training.capture import Stepped


class TrainingStopped(Exception):
    """Training met a loss or gradient that is not finite (the message names samples and genes), ran out of memory or
    lost a rank. The CLI exits with 3."""


class RankLost(TrainingStopped):
    """This rank can't go on, or another is gone; each says what it knows."""


class Guard:
    """Keeps a flag on the device that masks every update from the first bad one on.

    The flag is read by the host every few steps only, so the device never waits for it; until then the last few
    batches are remembered to name the samples. All ranks have the same flag, so all stop at the same step.
    """

    def __init__(
        self, optimiser: torch.optim.Optimizer, device: torch.device, every: int = 16, ranks: Ranks | None = None
    ) -> None:
        self.every, self.ranks = every, ranks or Ranks()
        self.bad = torch.zeros((), device=device)
        # fused optimisers skip their whole update, momentum included, where this flag is 1
        optimiser.found_inf = self.bad  # type: ignore[attr-defined]
        optimiser.grad_scale = None  # type: ignore[attr-defined]
        self._recent: deque[tuple[int, int, Tensor, Tensor, Tensor | None, Tensor]] = deque(maxlen=every)
        self._since = 0

    def mask(self, losses: Tensor, gradients: list[Tensor], clip: float = 0) -> None:
        """Call between backward and the optimiser's step: sets the flag where something is not finite, and shortens
        gradients that together are longer than `clip`, unless it is 0."""
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        finite = losses.sum().isfinite() & norm.isfinite()
        self.bad.copy_(torch.maximum(self.bad, (~finite).float()))
        self.ranks.raise_flag(self.bad)
        if clip:
            torch._foreach_mul_(gradients, (clip / norm).clamp(max=1))

    def remember(self, epoch: int, step: int, index: Tensor, stepped: Stepped) -> None:
        """Call after the step; keeps copies, because a captured step writes over what it gave."""
        genes = None if stepped.genes is None else stepped.genes.clone()
        self._recent.append((epoch, step, index.clone(), stepped.losses.clone(), genes, self.bad.clone()))
        self._since += 1

    def check(self, space: Space, now: bool = False) -> None:
        """Reads the flag every few steps, or now; raises `TrainingStopped` where it is set."""
        if not now and self._since < self.every:
            return
        self._since = 0
        if bool(self.bad):
            named = [text for text in self.ranks.texts(self._sentence(space)) if text]
            raise TrainingStopped(named[0] if named else self._without_samples())

    def _without_samples(self) -> str:
        epoch, step = next(entry[:2] for entry in self._recent if bool(entry[5]))
        return (
            f"the gradient at epoch {epoch}, step {step} is not finite although every loss is;"
            " this update and all behind it are left out. A lower learning rate may help."
        )

    def _sentence(self, space: Space) -> str:
        """Names this rank's samples; empty where all of their losses are finite."""
        epoch, step, index, losses, genes, _ = next(entry for entry in self._recent if bool(entry[5]))
        guilty = (~losses.isfinite()).nonzero().flatten().tolist()
        if not guilty:
            return ""
        named = []
        for at in guilty[:3]:
            text = f"sample {int(index[at])}"
            if genes is not None:
                values = zip(space.genes, genes[at].tolist(), strict=True)
                text += " (" + ", ".join(f"{gene.name} {value:g}" for gene, value in values) + ")"
            named.append(text)
        more = f" and {len(guilty) - 3} more" if len(guilty) > 3 else ""
        return (
            f"the loss at epoch {epoch}, step {step} is not finite for {', '.join(named)}{more};"
            " this update and all behind it are left out. A lower learning rate may help."
        )


def check_weights(model: nn.Module, line: dict[str, Any]) -> None:
    """Refuses what an epoch's last update broke, which no loss was computed after; `line` is the epoch's of the log."""
    floats = {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
    finite = torch.stack([value.isfinite().all() for value in floats.values()]).tolist() if floats else []
    broken = [name for name, fine in zip(floats, finite, strict=True) if not fine]
    if broken:
        what = f"{broken[0]}{f' and {len(broken) - 1} more' * (len(broken) > 1)} is not finite"
    elif not isfinite(line.get("validation_loss", 0)):
        what = "the loss on the validation images is not finite"
    else:
        return
    raise TrainingStopped(
        f"after epoch {line['epoch']} {what}; this epoch is left out. A lower learning rate may help."
    )

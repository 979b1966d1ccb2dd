"""A loss that is not finite never reaches the weights."""

from collections import deque

import torch
from torch import Tensor

from ukemi.spaces import Space
from ukemi.training.capture import Stepped


class TrainingStopped(Exception):
    """Training met a loss or gradient that is not finite; the message names samples and genes. The CLI exits with 3."""


class Guard:
    """Keeps a flag on the device that masks every update from the first bad one on.

    The flag is read by the host every few steps only, so the device never waits for it; until then the last few
    batches are remembered to name the samples.
    """

    def __init__(self, optimiser: torch.optim.Optimizer, device: torch.device, every: int = 16) -> None:
        self.every = every
        self.bad = torch.zeros((), device=device)
        # fused optimisers skip their whole update, momentum included, where this flag is 1
        optimiser.found_inf = self.bad  # type: ignore[attr-defined]
        optimiser.grad_scale = None  # type: ignore[attr-defined]
        self._recent: deque[tuple[int, int, Tensor, Tensor, Tensor | None, Tensor]] = deque(maxlen=every)
        self._since = 0

    def mask(self, losses: Tensor, gradients: list[Tensor]) -> None:
        """Call between backward and the optimiser's step: sets the flag where something is not finite."""
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        finite = losses.sum().isfinite() & norm.isfinite()
        self.bad.copy_(torch.maximum(self.bad, (~finite).float()))

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
            raise TrainingStopped(self._sentence(space))

    def _sentence(self, space: Space) -> str:
        epoch, step, index, losses, genes, _ = next(entry for entry in self._recent if bool(entry[5]))
        guilty = (~losses.isfinite()).nonzero().flatten().tolist()
        if not guilty:
            return (
                f"the gradient at epoch {epoch}, step {step} is not finite although every loss is;"
                " the weights are those of the step before. A lower learning rate may help."
            )
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
            " the weights are those of the step before. A lower learning rate may help."
        )

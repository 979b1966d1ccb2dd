"""Mixup (Zhang et al. 2018) and manifold mixup (Verma et al. 2019): mixtures of two samples and of their labels."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ukemi import randomness
from ukemi.activations.recording import eager
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.models.inference import home_of, scoring
from ukemi.objectives.base import Objective, ObjectiveConfig, Outcome
from ukemi.randomness import Stream
from ukemi.schema import Fixed, Number

POINTS = 3
"""where manifold mixup may mix: the pixels, and behind a third and two thirds of the network"""


class Mixup(Objective):
    """Each image is mixed with another of its batch, `share` to 1 - share, and both labels count in that proportion.

    The share is drawn per batch from Beta(alpha, alpha). Draws come from torch's own generators, as dropout's do: the
    training loop seeds them by (seed, epoch, step).
    """

    class Config(ObjectiveConfig):
        """Trains on mixtures of two images and of their labels (Zhang et al. 2018)."""

        name: Fixed[Literal["mixup"]] = "mixup"
        alpha: Annotated[Number, Field(gt=0)] = 1.0
        """The share is drawn from Beta(alpha, alpha): 1 is even, larger is nearer to a half."""

        def build(self, smoothing: float) -> "Mixup":
            return Mixup(smoothing, alpha=self.alpha)

    mixes: ClassVar[bool] = True

    def __init__(self, smoothing: float = 0.0, *, alpha: float = 1.0) -> None:
        Mixup.Config(alpha=alpha)
        self.smoothing, self.alpha = smoothing, alpha

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int, clean: Tensor | None = None
    ) -> Outcome:
        share, other_N = drawn(self.alpha, images)
        logits_NK = self.forward(model, images, share, other_N)
        own_N, others_N = (
            F.cross_entropy(logits_NK, aims, reduction="none", label_smoothing=self.smoothing)
            for aims in (labels, labels[other_N])
        )
        return Outcome(share * own_N + (1 - share) * others_N, logits_NK)

    def forward(self, model: nn.Module, images: Tensor, share: Tensor, other_N: Tensor) -> Tensor:
        return model(mixed(images, share, other_N)).float()


class ManifoldMixup(Mixup):
    """As `Mixup`, but what is mixed is the pixels or the output of an inner layer, drawn per batch."""

    class Config(ObjectiveConfig):
        """Trains on mixtures of pixels or of inner features, and of their labels (Verma et al. 2019)."""

        name: Fixed[Literal["manifold-mixup"]] = "manifold-mixup"
        alpha: Annotated[Number, Field(gt=0)] = 2.0
        """The share is drawn from Beta(alpha, alpha): 1 is even, larger is nearer to a half."""
        layers: tuple[str, ...] = ()
        """Names of the modules behind which features may be mixed, as in model.named_modules(); default: behind a third
        and two thirds of the network. The pixels are always among the choices."""

        def build(self, smoothing: float) -> "ManifoldMixup":
            return ManifoldMixup(smoothing, alpha=self.alpha, layers=self.layers)

    def __init__(self, smoothing: float = 0.0, *, alpha: float = 2.0, layers: tuple[str, ...] = ()) -> None:
        super().__init__(smoothing, alpha=alpha)
        self.layers = layers
        self.points: list[nn.Module] = []

    def attach(self, model: nn.Module) -> None:
        """Finds the layers."""
        known = dict(model.named_modules())
        for name in self.layers:
            if name not in known or not name:
                raise UserError(f"objective.layers: the model has no module {name!r}.")
        self.points = [known[name] for name in self.layers] or inner_points(model)

    def rehearse(self, model: nn.Module, data: Data) -> None:
        """Also a pass behind every layer."""
        super().rehearse(model, data)
        images = data.batch(torch.arange(min(2, len(data))), home_of(model)).images
        share, other_N = torch.ones((), device=images.device), torch.arange(len(images), device=images.device)
        for layer in self.points:
            with scoring(model, images.device), eager(model), _mixing_behind(layer, share, other_N):
                model(images)

    def plan(self, seed: int, epoch: int, steps: int) -> list[int]:
        """The layer of every step; 0 is the pixels."""
        u_S = randomness.uniform(torch.arange(steps), seed=seed, stream=Stream.MIXTURE, epoch=epoch).flatten()
        return (u_S.double() * (len(self.points) + 1)).long().tolist()

    def forward(self, model: nn.Module, images: Tensor, share: Tensor, other_N: Tensor) -> Tensor:
        if not self.kind:
            return super().forward(model, images, share, other_N)
        # hooks that come after a model was compiled are not looked for in it
        with eager(model), _mixing_behind(self.points[self.kind - 1], share, other_N):
            return model(images).float()


def drawn(alpha: float, images: Tensor) -> tuple[Tensor, Tensor]:
    """A share from Beta(alpha, alpha) and a partner for every sample, `[N]`; nothing waits for the device."""
    gammas_2 = torch._standard_gamma(torch.full((2,), alpha, device=images.device))
    return gammas_2[0] / gammas_2.sum(), torch.rand(len(images), device=images.device).argsort()


def mixed(rows: Tensor, share: Tensor, other_N: Tensor) -> Tensor:
    """`share` (one number, or one per row) of each row and the rest of its partner's, in the rows' own type."""
    share = share.to(rows.dtype).view(-1, *[1] * (rows.ndim - 1))
    return share * rows + (1 - share) * rows[other_N]


def inner_points(model: nn.Module) -> list[nn.Module]:
    """The modules behind a third and two thirds of the network's parts: those of the first module with several."""
    parts = list(model.children())
    while len(parts) <= POINTS and parts:
        parts = list(max(parts, key=lambda part: sum(1 for _ in part.modules())).children())
    if len(parts) <= POINTS:
        raise UserError("objective.layers: this model shows no inner parts to mix behind; name them.")
    return [parts[len(parts) * at // POINTS - 1] for at in range(1, POINTS)]


@contextmanager
def _mixing_behind(layer: nn.Module, share: Tensor, other_N: Tensor) -> Iterator[None]:
    """The layer's output is mixed where it comes first in a pass: mixed again it would no longer fit the labels."""
    seen = False

    def mix(_layer: nn.Module, _given: object, output: object) -> Tensor | None:
        nonlocal seen
        if seen:
            return None
        if not isinstance(output, Tensor):
            raise UserError(f"objective.layers: {_said(layer)} gives a {type(output).__name__}, which can't be mixed.")
        seen = True
        return mixed(output, share, other_N)

    hook = layer.register_forward_hook(mix)
    try:
        yield
    finally:
        hook.remove()
    if not seen:
        raise UserError(f"objective.layers: {_said(layer)} takes no part in a forward pass; name others.")


def _said(layer: nn.Module) -> str:
    """A layer as messages name it: its first line, Linear(in_features=8, out_features=7, bias=True)."""
    return repr(layer).partition("(\n")[0]

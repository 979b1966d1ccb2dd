"""What every attack works with and gives back: a victim that counts its passes, and a result per sample."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from ukemi.data import check_pixels, check_shape
from ukemi.errors import UserError
from ukemi.models.check_head import PROBABILITIES, are_probabilities, gives_probabilities
from ukemi.models.inference import evaluating, recording, right, rows_per_pass, untouched, wrong

Norm = Literal["l1", "l2", "linf"]
Objective = Callable[[Tensor, Tensor], Tensor]
"""From logits `[n, K]` and labels (or targets) `[n]` to what is to be raised, `[n]`."""
Rise = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""The same with its gradient at the logits, `[n, K]`, so that no pass back through it is needed."""


_LOOKED_AT = 64
"""rows of the first logits that are asked whether they are probabilities"""


@dataclass(frozen=True)
class Attacked:
    """What an attack found for each of N samples."""

    images: Tensor
    """`[N, C, H, W]` in [0, 1]; the unchanged image where a minimal-distance attack found nothing"""
    success: Tensor
    """bool `[N]`: misclassified, or classified as the target"""
    distance: Tensor
    """`[N]` in `norm`, of the images above"""
    norm: Norm
    forwards: Tensor
    """int64 `[N]`: forward passes that each sample took"""
    backwards: Tensor
    """int64 `[N]`"""


class Victim:
    """A model under attack, with the samples and their labels: evaluation mode is the caller's (`attacking`).

    Attacks hand it the rows that are still open, so that solved samples leave the batch; it counts passes per sample.
    What enters is checked here, in one sentence each: pixels in [0, 1], one label per image, targets that are not the
    labels, an index of whole numbers. What the model gives is checked at its first pass: logits `[N, K]`, labels among
    K classes.
    """

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        targets: Tensor | None = None,
        index: Tensor | None = None,
    ) -> None:
        _check_tensors(images, labels, targets, index)
        self.model, self.originals = model, images.detach()
        self.labels, self.targets = labels.long(), None if targets is None else targets.long()
        self.aims = self.labels if self.targets is None else self.targets
        self._chunk = rows_per_pass(tuple(images.shape[1:]), images.device)
        self._checked = recording(images.device)  # meanwhile no value can be read
        self._ends = [] if self._checked else _checked_values(self.originals, self.labels, self.targets)
        self._first: Tensor | None = None
        self.batches = True  # whether a backward pass may be batched over weights

    @cached_property
    def forwards(self) -> Tensor:
        """Passes that were counted, int64 `[N]`."""
        return torch.zeros_like(self.labels)

    @cached_property
    def backwards(self) -> Tensor:
        return torch.zeros_like(self.labels)

    def passed(self, images: Tensor) -> Tensor:
        """Logits `[n, K]`, in one pass; nobody counts it."""
        logits = self._passed(images)
        self.settle()
        return logits

    def _passed(self, images: Tensor) -> Tensor:
        if not len(images):  # a pass of none is more than many models can do, as x.view(len(x), -1)
            blank = images.new_zeros(1, *images.shape[1:])
            return self.model(torch.cat([images, blank]))[:0]
        if self._checked:
            return self.model(images)
        logits = untouched(self.model, images)
        self._check(logits, len(images))
        # a copy: a compiled model may use the memory of its answers again
        self._checked, self._first = True, logits.detach()[:_LOOKED_AT].clone()
        return logits

    def logits(self, images: Tensor, rows: Tensor) -> Tensor:
        """Logits `[n, K]` of `images [n, C, H, W]`, which belong to the samples `rows [n]`; no gradient."""
        self.forwards[rows] += 1
        return self.answers(images)

    def answers(self, images: Tensor, *, settle: bool = True) -> Tensor:
        """The same; who calls it counts the passes, and calls `settle` where that is not done here."""
        with torch.no_grad():
            found = joined([self._passed(part) for part in self._parts(images)])
        if settle:
            self.settle()
        return found

    def gradient(self, images: Tensor, rows: Tensor, objective: Objective) -> tuple[Tensor, Tensor, Tensor]:
        """Of `objective(logits, labels or targets)`: its values `[n]`, its gradient at the images, and the logits."""
        self.forwards[rows] += 1
        self.backwards[rows] += 1
        return self.slope(images, self.aims[rows], objective)

    def slope(self, images: Tensor, aims: Tensor, objective: Objective) -> tuple[Tensor, Tensor, Tensor]:
        """The same for images whose labels or targets are `aims [n]`; who calls it counts the passes."""

        def pull(logits: Tensor, leaf: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                values = objective(logits, own)
            return values.detach(), pulled_back(values, leaf, torch.ones_like(values))

        return self._pulled(images, aims, pull)

    def ascent(self, images: Tensor, aims: Tensor, rise: Rise) -> tuple[Tensor, Tensor, Tensor]:
        """`slope` for an objective that knows its own gradient: fewer launches, which small networks on a GPU pay."""

        def pull(logits: Tensor, leaf: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
            values, weights = rise(logits.detach(), own)
            return values, pulled_back(logits, leaf, weights)

        return self._pulled(images, aims, pull)

    def _pulled(
        self, images: Tensor, aims: Tensor, pull: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What `pull(logits, leaf, aims)` makes of each pass, and its logits."""
        found = []
        for part, own in zip(self._parts(images), self._parts(aims), strict=True):
            leaf = leaf_of(part)
            with torch.enable_grad():
                logits = self.passed(leaf)
            found.append((*pull(logits, leaf, own), logits.detach()))
        values, slopes, logits = (joined(column) for column in zip(*found, strict=True))
        return values, slopes, logits

    def _parts(self, rows: Tensor) -> Sequence[Tensor]:
        """As many rows as go through the model at once; mostly all of them, and then nothing is to be done."""
        return [rows] if len(rows) <= self._chunk else rows.split(self._chunk)

    def climb(self, images: Tensor, weigh: Objective) -> Tensor:
        """The gradient at all images of their logits, weighed by `weigh(logits, labels or targets)` `[n, K]`.

        It waits for nothing: whether the first logits are logits is asked by `settle`, with more work under way.
        """
        found = []
        for part, own in zip(self._parts(images), self._parts(self.aims), strict=True):
            leaf = leaf_of(part)
            with torch.enable_grad():
                logits = self._passed(leaf)
            found.append(pulled_back(logits, leaf, weigh(logits.detach(), own)))
        return joined(found)

    def fooled(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Which of these answers are what the attack wants, bool `[n]`; logits that are not finite are an error."""
        return self.reached(logits, self.aims[rows])

    def reached(self, logits: Tensor, aims: Tensor) -> Tensor:
        """The same for samples whose labels or targets are `aims [n]`."""
        return (wrong if self.targets is None else right)(logits, aims)

    def _check(self, logits: object, count: int) -> None:
        if not isinstance(logits, Tensor):
            raise UserError(f"model: logits [N, classes] are needed, but it gives a {type(logits).__name__}.")
        if logits.ndim != 2 or len(logits) != count or logits.shape[1] < 2 or not logits.is_floating_point():
            given = f"{logits.dtype} {list(logits.shape)} for {count} images"
            raise UserError(f"model: logits [N, classes] are needed, but it gives {given}.")
        for name, low, high in self._ends:
            if not 0 <= low <= high < logits.shape[1]:
                raise UserError(f"{name}: they should lie in 0 to {logits.shape[1] - 1}.")

    def settle(self) -> None:
        """Reads some of what the first pass gave: the one check that waits for the device."""
        first, self._first = self._first, None
        if first is None:
            return
        if are_probabilities(first.cpu()) and gives_probabilities(self.model, self.originals):
            raise UserError(PROBABILITIES)


def _checked_values(images: Tensor, labels: Tensor, targets: Tensor | None) -> list[tuple[str, float, float]]:
    """Pixels in [0, 1], and targets that are not the labels; gives the lowest and the highest label, and target.

    All ends are read at once: a device waits each time.
    """
    if not len(images):
        return []
    given = {"labels": labels} | ({} if targets is None else {"targets": targets})
    # as pixels are, so that they fit into one row: numbers too large to be exact are beyond any model's classes
    values = [images, *(own.to(images.dtype) for own in given.values())]
    # and as the limits are compared: in float64 a pixel that is 1 but for rounding would be beyond them
    ends = torch.stack([end for own in values for end in own.aminmax()]).float().tolist()
    check_pixels(images, ends=ends[:2])
    if targets is not None and bool((targets == labels).any()):
        raise UserError("targets: a target should differ from its label.")
    return [(name, *ends[at : at + 2]) for at, name in zip((2, 4), given, strict=False)]


def leaf_of(images: Tensor) -> Tensor:
    """The images as a gradient is taken at them: a copy of what inference mode made, which can have none."""
    return (images.clone() if images.is_inference() else images.detach()).requires_grad_()


def pulled_back(outputs: Tensor, leaf: Tensor, weights: Tensor, **options: bool) -> Tensor:
    """The gradient at `leaf` of the weighed outputs; a model that cuts it is named."""
    if outputs.requires_grad:
        (found,) = torch.autograd.grad(outputs, leaf, weights, allow_unused=True, **options)
        if found is not None:
            return found
    raise UserError(
        "model: no gradient leads from its outputs to the pixels (no_grad, detach or NumPy inside?), and this attack"
        " follows one; square needs none."
    )


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One after the other; a single part as it is."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def log_odds(logits: Tensor, aims: Tensor) -> Tensor:
    """The log odds against the classes `aims [n]`: log((1 - p) / p), `[n]`.

    Cross-entropy is `softplus` of it: the same order, the same direction of the gradient. But this gradient keeps its
    length where p rounds to 1 and that of cross-entropy vanishes, so a confident model hides nothing.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    own = aims[:, None]
    return logits.scatter(1, own, -torch.inf).logsumexp(1) - logits.gather(1, own)[:, 0]


def log_odds_for(logits: Tensor, aims: Tensor) -> Tensor:
    """The log odds for the classes `aims [n]`: what a targeted attack raises."""
    return -log_odds(logits, aims)


def rising_odds(logits: Tensor, aims: Tensor) -> tuple[Tensor, Tensor]:
    """`log_odds` and its gradient at the logits, in few launches."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    own = aims[:, None]
    others = wide.scatter(1, own, -torch.inf)
    shares = others.log_softmax(1)
    # a logit less the log of its share is the logarithm of the sum: the highest loses the least by it
    values = others.amax(1) - shares.amax(1) - wide.gather(1, own)[:, 0]
    return values, shares.exp().scatter(1, own, -1).to(logits.dtype)


def rising_odds_for(logits: Tensor, aims: Tensor) -> tuple[Tensor, Tensor]:
    values, weights = rising_odds(logits, aims)
    return -values, -weights


def up_the_odds(logits: Tensor, aims: Tensor) -> Tensor:
    """The gradient of `log_odds` at the logits, `[n, K]`, without a pass back through it."""
    own = aims.unsqueeze(1)
    return logits.scatter(1, own, -torch.inf).softmax(1).scatter(1, own, -1)


def up_the_odds_for(logits: Tensor, aims: Tensor) -> Tensor:
    return -up_the_odds(logits, aims)


@contextmanager
def attacking(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, outside of a caller's inference mode; afterwards every module has the mode it had before."""
    followed = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
    with evaluating(model), followed:
        yield


def admitted(images: Tensor, labels: Tensor, targets: Tensor | None = None, index: Tensor | None = None) -> None:
    """What a `Victim` checks of what enters an attack, for an attack that has none."""
    _check_tensors(images, labels, targets, index)
    if not recording(images.device):
        _checked_values(images.detach(), labels, targets)


def numbered(images: Tensor, index: Tensor | None) -> Tensor:
    """The samples' index `[N]`, by which what is random is keyed; default: 0 to N - 1."""
    return torch.arange(len(images), device=images.device) if index is None else index.to(images.device)


def _check_tensors(images: Tensor, labels: Tensor, targets: Tensor | None, index: Tensor | None) -> None:
    """Types, shapes and devices."""
    numbers = {"labels": labels, "targets": targets, "index": index}
    for name, one in {"images": images, **numbers}.items():
        if one is not None and not isinstance(one, Tensor):
            raise UserError(f"{name}: a torch tensor is needed, but a {type(one).__name__} was given.")
    if images.dtype not in (torch.float32, torch.float64):
        raise UserError(f"images: float32 or float64 pixels in [0, 1] are needed, but {images.dtype} was given.")
    check_shape(images)
    count = len(images)
    for name, given in numbers.items():
        if given is not None and (given.is_floating_point() or given.is_complex() or given.shape != (count,)):
            found = f"{given.dtype} {list(given.shape)}"
            raise UserError(f"{name}: one whole number per image, [{count}], is needed, not {found}.")
    for name, given in (("labels", labels), ("targets", targets)):
        if given is not None and given.device != images.device:
            raise UserError(f"{name}: they are on {given.device}, but the images are on {images.device}.")

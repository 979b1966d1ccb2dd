"""Where stochastic passes come from: Monte Carlo dropout with keyed masks, or the members of an ensemble.

A source is called with images and identities and gives `Sampled`: `source(images [R, C, H, W], index [G], turn=0,
shared=1)`, where R = G x shared and the `shared` rows of one index are asked under the same masks.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from typing import Protocol

import torch
from torch import Tensor, nn

from ukemi.activations.recording import eager
from ukemi.data import Data, shared
from ukemi.errors import UserError
from ukemi.models import check_head
from ukemi.models.inference import (
    check_module,
    default_chunk,
    evaluating,
    home_of,
    logits,
    padded,
    rows_per_pass,
    scoring,
)
from ukemi.ranks import Ranks
from ukemi.uncertainty.dropout import Masks, dropouts_of, drops, masked
from ukemi.uncertainty.metrics import Against, Confidence, Sampled, Uncertainty, joined, measured
from ukemi.uncertainty.splitting import NEAR, Whole, cut

PASSES = 50
"""T where none is given"""
BLOCK = {"cpu": 32, "cuda": 4096}
"""images whose head is computed at once; their stochastic rows are many times that"""
ANSWERS = {"cpu": 2**25, "cuda": 2**28}
"""probabilities, T x images x classes, that are held at once where data are measured"""
LINKED = {"cpu": 32, "cuda": 512}
"""images whose gradient is taken at once: all that they pass through is held meanwhile"""
Report = Callable[[int, int], None]


class Source(Protocol):
    """Something that can be asked T times."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def passes(self) -> int: ...
    def __call__(self, images: Tensor, index: Tensor, *, turn: int = 0, shared: int = 1) -> Sampled: ...
    def linked(self, images: Tensor, index: Tensor, *, turn: int = 0) -> Sampled:
        """The same for one image per index, in double precision and with the gradient that leads to the images."""

    def linked_rows(self, images: Tensor) -> int:
        """How many images like these `linked` should get at once."""


class DropoutPasses:
    """T passes with dropout on (Gal and Ghahramani 2016); the rest of the model stays in evaluation mode.

    A mask is a function of (seed, turn, index, pass, layer, unit): no batch, order or global state changes a number.
    The part of the network before its first dropout runs once, the rest T times; with `split=False`, or where a network
    can't be cut, all of it runs T times, with the same numbers.
    """

    def __init__(self, model: nn.Module, passes: int = PASSES, *, seed: int = 0, split: bool = True) -> None:
        self.model, self.passes, self.seed = model, at_least_two(passes), seed
        if not dropouts_of(model):
            raise UserError(
                f"dropout: {type(model).__name__} has no dropout layer; ukemi.uncertainty.insert_dropout adds one."
            )
        self._split = split
        self._parts: Whole | None = None
        self._width = 0

    def __call__(self, images: Tensor, index: Tensor, *, turn: int = 0, shared: int = 1) -> Sampled:
        device = images.device
        if not len(index) or len(images) != len(index) * shared:
            raise UserError(
                f"images: {shared} for each of at least one index are needed, but {len(images)} images and {len(index)}"
                " indices were given."
            )
        with scoring(self.model, device), eager(self.model):
            parts = self._cut(images)
            fitting = rows_per_pass((self._width,), device)
            groups = max(1, min(BLOCK.get(device.type, BLOCK["cpu"]), fitting) // shared)
            many = _divisor(self.passes, fitting // (groups * shared))
            found = [
                self._block(parts, images[start * shared : (start + groups) * shared], index_G, groups, many, turn)
                for start, index_G in zip(range(0, len(index), groups), index.split(groups), strict=True)
            ]
            certain, drawn = torch.cat([one.certain for one in found]), torch.cat([one.drawn for one in found], 1)
        return Sampled(certain.clone(), drawn.clone())  # outside inference mode: ordinary tensors

    def linked(self, images: Tensor, index: Tensor, *, turn: int = 0) -> Sampled:
        with evaluating(self.model), eager(self.model), torch.enable_grad():
            parts = self._cut(images.detach())
            values = parts.head(images)
            certain = parts.tail([value.clone() for value in values])
            with masked(self.model, Masks(index, 1, 0, self.passes, self.seed, turn)):
                drawn = parts.tail([value.repeat_interleave(self.passes, 0) for value in values])
        drawn = drawn.double().softmax(1).view(len(images), self.passes, -1)
        return Sampled(certain.double().softmax(1), drawn.transpose(0, 1))

    def linked_rows(self, images: Tensor) -> int:
        self._cut(images)
        fitting = rows_per_pass((self._width,), images.device) // self.passes
        return max(1, min(fitting, LINKED.get(images.device.type, LINKED["cpu"])))

    def _cut(self, images: Tensor) -> Whole:
        if self._parts is None:
            # ordinary tensors: a constant that tracing makes in inference mode could take part in no gradient
            with evaluating(self.model), torch.inference_mode(False), torch.no_grad():
                check_head(self.model, images, 1)
                self._check_certain(images)
                self._parts = cut(self.model, images) if self._split else Whole(self.model)
                self._width = sum(prod(value.shape[1:]) for value in self._parts.head(images[:1]))
        return self._parts

    def _check_certain(self, images: Tensor) -> None:
        """One image twice: what the network draws by itself is keyed by nothing."""
        first_K, second_K = self.model(images[:1].repeat(2, 1, 1, 1))
        if not torch.allclose(first_K, second_K, atol=NEAR * float(first_K.abs().nan_to_num().max()), equal_nan=True):
            raise UserError(
                f"model: {type(self.model).__name__} gives two answers to one image in evaluation mode (by a dropout"
                " that is never off, as F.dropout without its training argument?), so none is certain."
            )

    def _block(self, parts: Whole, images: Tensor, index_G: Tensor, groups: int, many: int, turn: int) -> Sampled:
        """One block of fixed shape: the head once, the tail once without masks and then `many` passes at a time.

        Each time it gets a copy: a network may write into its tensors, and a dropout that is off hands on its own.
        """
        rows, shared = len(images), len(images) // len(index_G)
        values = parts.head(padded(images, groups * shared))
        index_G = padded(index_G, groups)
        certain = _probabilities(parts.tail([value.clone() for value in values]))
        drawn = []
        for first in range(0, self.passes, many):
            masks = Masks(index_G, shared, first, many, self.seed, turn)
            with masked(self.model, masks):
                answers = _probabilities(parts.tail([value.repeat_interleave(many, 0) for value in values]))
            if not masks.applied and drops(self.model):
                raise UserError(
                    f"dropout: no dropout layer of {type(self.model).__name__} takes part in its answers, so all passes"
                    " are the same; put one before its classifier, or take an ensemble."
                )
            drawn.append(answers.view(groups * shared, many, -1).transpose(0, 1))
        return Sampled(certain[:rows], torch.cat(drawn)[:, :rows])


class Ensemble:
    """T models in place of T masks (deep ensembles): several runs, or the weights that one run had along its way.

    The first is the one that is judged: its answer is the certain one.
    """

    def __init__(self, models: Sequence[nn.Module] | nn.ModuleList) -> None:
        if isinstance(models, nn.Module) and not isinstance(models, nn.ModuleList):
            models = [models]
        self.models = tuple(models)
        for model in self.models:
            check_module(model)
        self.passes = at_least_two(len(self.models), "ensemble", "models")

    @property
    def model(self) -> nn.Module:
        return self.models[0]

    def __call__(self, images: Tensor, index: Tensor, *, turn: int = 0, shared: int = 1) -> Sampled:
        chunk = default_chunk(tuple(images.shape[1:]), images.device)
        answers = [logits(model, images, chunk) for model in self.models]
        if len(widths := {answer.shape[1] for answer in answers}) > 1:
            raise UserError(f"ensemble: its models give different numbers of logits: {sorted(widths)}.")
        drawn = torch.stack(answers).softmax(2)
        return Sampled(drawn[0], drawn)

    def linked(self, images: Tensor, index: Tensor, *, turn: int = 0) -> Sampled:
        with ExitStack() as modes, torch.enable_grad():
            for model in self.models:
                modes.enter_context(evaluating(model))
            drawn = torch.stack([model(images.clone()) for model in self.models]).double().softmax(2)
        return Sampled(drawn[0], drawn)

    def linked_rows(self, images: Tensor) -> int:
        return LINKED.get(images.device.type, LINKED["cpu"])


def uncertainty_of(
    source: Source,
    data: Data,
    *,
    confidence: Confidence = "margin",
    against: Against = "prediction",
    turn: int = 0,
    report: Report | None = None,
    ranks: Ranks | None = None,
) -> Uncertainty:
    """The metrics of every image of `data`, on the CPU, in bounded memory; `report(done, total)` hears of progress.
    Each rank asks about its share, and all know the whole."""
    check_source(source)
    if not len(data):
        raise UserError("data: there is no image to ask about.")
    device = home_of(source.model)
    block, answers = (most.get(device.type, most["cpu"]) for most in (BLOCK, ANSWERS))
    block *= max(1, min(16, answers // (block * source.passes * max(1, len(data.classes)))))

    def measure(part: Data) -> Uncertainty:
        parts, done = [], 0
        for batch in part.batches(torch.arange(len(part)).split(block), device):
            sampled = source(batch.images, batch.index, turn=turn)
            _check_finite(sampled)
            parts.append(measured(sampled, confidence, against).cpu())
            done += len(batch.labels)
            if report is not None:
                report(done, len(part))
        return joined(parts)

    return shared(data, ranks, measure, joined)


def check_source(source: object) -> None:
    if isinstance(source, nn.Module):
        raise UserError("source: a model was given; DropoutPasses(model) or Ensemble([model, …]) asks it often.")


def _check_finite(sampled: Sampled) -> None:
    whole_N = sampled.certain.isfinite().all(1) & sampled.drawn.isfinite().all(2).all(0)
    if not bool(whole_N.all()):
        raise UserError(
            f"model: its answers to {int((~whole_N).sum())} of {len(whole_N)} images are not finite, so how sure it is"
            " of them can't be said."
        )


def _probabilities(logits_NK: Tensor) -> Tensor:
    return (logits_NK if logits_NK.dtype == torch.float64 else logits_NK.float()).softmax(1)


def at_least_two(count: int, field: str = "passes", things: str = "passes") -> int:
    if count < 2:
        raise UserError(f"{field}: at least 2 {things} are needed to see them differ, but {count} was given.")
    return count


def _divisor(count: int, most: int) -> int:
    """The largest divisor of `count` that is at most `most`, so that every pass has the same shape."""
    return max(many for many in range(1, count + 1) if count % many == 0 and many <= max(1, most))

"""The transformed model and its tuning (DARE, sections 3.1.2 and 3.3): a regression up to a layer, and updates of each
class's own synapses alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from math import isnan
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures import accuracy
from ukemi.models.inference import default_chunk, evaluating, home_of
from ukemi.repairs.mining import Mined, Report
from ukemi.slicing import KeyLayer, Slices, activation_of, key_layers
from ukemi.slicing.slicing import class_runs
from ukemi.training.setup import batches_of_epoch

Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]
"""`(model, images_NCHW, labels_N, targets_NO) -> losses_N`"""
Score = Callable[[nn.Module], float]
"""how good a tuned model is; the highest is kept"""
Runs = Sequence[tuple[int | None, slice]]
"""a class (None: all of them) and its rows in a batch that is sorted by class"""


def trainable_layers(model: nn.Module) -> list[KeyLayer]:
    """Layers with weights that may be trained, in the order of execution; some may share one."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    layers = key_layers(model, tied=True)
    return [layer for layer in layers if layer.weight in parameters and parameters[layer.weight].requires_grad]


def target_layer(model: nn.Module, p: int = 1) -> KeyLayer:
    """The layer that the transformed model ends with, l_{r-p}: 1 is the penultimate trainable one, 0 the logits."""
    layers, name = trainable_layers(model), type(model).__name__
    if not layers:
        raise UserError(f"model: {name} has no trainable layer.")
    if not 0 <= p < len(layers):
        has = f"{len(layers)} trainable layers" if len(layers) > 1 else "one trainable layer and no penultimate one"
        raise UserError(f"p: {name} has {has}, so p should be from 0 to {len(layers) - 1}, but {p} was given.")
    return layers[-1 - p]


def formula_3(activations_NO: Tensor, targets_NO: Tensor, key_NO: Tensor | None) -> Tensor:
    """The mean squared difference over each sample's key neurons, `[N]`; over all of them where `key_NO` is None.

    >>> formula_3(torch.tensor([[1.0, 5.0]]), torch.tensor([[3.0, 0.0]]), torch.tensor([[True, False]]))
    tensor([4.])
    """
    squares_NO = (activations_NO - targets_NO).square()
    if key_NO is None:
        return squares_NO.mean(1)
    return torch.where(key_NO, squares_NO, 0).sum(1) / key_NO.sum(1).clamp(min=1)


def regression(layer: KeyLayer, slices: Slices | None) -> Loss:
    """Formula 3 at `layer`, with the key neurons of each sample's class."""

    def losses(model: nn.Module, images: Tensor, labels: Tensor, targets_NO: Tensor) -> Tensor:
        key_NO = None if slices is None else slices.neurons[layer.name].to(labels.device)[labels]
        return formula_3(activation_of(model, images, layer), targets_NO, key_NO)

    return losses


def cross_entropy(model: nn.Module, images: Tensor, labels: Tensor, targets_NO: Tensor) -> Tensor:
    """The classifier's own loss, which knows no targets (DARE's variant `-sl`)."""
    return F.cross_entropy(model(images), labels, reduction="none")


def class_gradients(
    model: nn.Module, layers: Sequence[KeyLayer], losses: Callable[[Tensor], Tensor], images: Tensor, runs: Runs
) -> Iterator[tuple[KeyLayer, int | None, Tensor]]:
    """For each layer and class the gradient of the batch's mean loss by the layer's weight, from that class's rows.

    In evaluation mode no row looks at another, so the way back through the network is walked once for the whole batch;
    only what reaches the weights is taken class by class. `losses` makes `[N]` of the images.
    """
    taken: list[tuple[KeyLayer, Tensor, list[Tensor]]] = []

    def note(
        layer: KeyLayer, module: nn.Module, given: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor
    ) -> Tensor:
        if not torch.is_grad_enabled():  # the network itself keeps gradients off here
            return output
        if not output.requires_grad:  # it cut the way to the images: the way back ends here
            starts.append(output.detach().requires_grad_())
            output = starts[-1].clone()
        arriving: list[Tensor] = []
        output.register_hook(arriving.append)
        # a copy, since the network may write into its tensor later
        taken.append((layer, (*given, *named.values())[0].detach().clone(), arriving))
        return output

    images = images.detach().requires_grad_()
    starts = [images]
    with ExitStack() as hooks:
        for layer in layers:
            module = model.get_submodule(layer.name)
            # before any hook of the user's own, which may change what the layer gives
            hook = module.register_forward_hook(partial(note, layer), prepend=True, with_kwargs=True)
            hooks.callback(hook.remove)
        loss = losses(images).mean()
        if loss.requires_grad:
            torch.autograd.grad(loss, starts, allow_unused=True)
    for layer, given, arriving in taken:
        for gradient in arriving:  # none where the layer does not lead to the loss
            for klass, rows in runs:
                yield layer, klass, _weight_gradient(model.get_submodule(layer.name), given[rows], gradient[rows])


def _weight_gradient(module: nn.Module, given: Tensor, gradient: Tensor) -> Tensor:
    """Of plain layers by their formula, which needs no second forward pass; of others by autograd."""
    if type(module) is nn.Linear:
        return gradient.flatten(0, -2).T @ given.flatten(0, -2)
    if type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str):
        settings = (module.stride, module.padding, module.dilation, module.groups)
        return conv2d_weight(given, module.weight.shape, gradient, *settings)
    weight = module.get_parameter("weight")
    weight.requires_grad_()
    with torch.enable_grad():
        found: Tensor = torch.autograd.grad(module.forward(given), weight, gradient)[0]
    weight.requires_grad_(False)
    return found


class Steps(Protocol):
    """What a grid walks with: a model, and one update of it at a time."""

    model: nn.Module

    def step(self, images: Tensor, labels: Tensor, targets_NO: Tensor) -> Tensor: ...


class Tuner:
    """Adam on the synapses that the classes own: each class's gradient reaches its own slice alone.

    Biases, BatchNorm and its statistics stay as they are, dropout rests, and nothing decays: a weight that no class
    owns has a gradient and a state of exactly 0 and keeps its bits. Without `slices` every weight of `layers` is tuned.
    """

    def __init__(
        self, model: nn.Module, layers: Sequence[KeyLayer], loss: Loss, slices: Slices | None, rate: float
    ) -> None:
        self.model, self.layers, self.loss = model.eval().requires_grad_(False), layers, loss
        # on the device once, not in every step; contributions are not needed and four times as large
        self.slices = None if slices is None else replace(slices, contributions={}).to(home_of(model))
        self.weights = {layer.weight: model.get_parameter(layer.weight) for layer in layers}
        self.optimiser = torch.optim.Adam(list(dict.fromkeys(self.weights.values())), lr=rate)

    def step(self, images: Tensor, labels: Tensor, targets_NO: Tensor) -> Tensor:
        """One update; the mean loss before it, `[]`."""
        runs: Runs = [(None, slice(0, len(labels)))]
        if self.slices is not None:
            order = labels.argsort(stable=True)
            images, labels, targets_NO = images[order], labels[order], targets_NO[order]
            runs = class_runs(labels)
        kept: list[Tensor] = []

        def losses(given: Tensor) -> Tensor:
            found = self.loss(self.model, given, labels, targets_NO)
            kept.append(found.detach().mean())
            return found

        self.optimiser.zero_grad()
        for layer, klass, gradient in class_gradients(self.model, self.layers, losses, images, runs):
            self._add(layer.weight, klass, gradient)
        self.optimiser.step()
        return kept[0]

    def _add(self, name: str, klass: int | None, gradient: Tensor) -> None:
        weight = self.weights[name]
        if self.slices is not None and klass is not None:
            # chosen, not multiplied: a gradient that is not finite must not leak through a 0
            gradient = torch.where(self.slices.mask(name, klass, weight), gradient, 0)
        weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


@dataclass(frozen=True)
class Trial:
    """A state of the grid: one learning rate after some epochs."""

    learning_rate: float
    epoch: int
    """passes over the tuning samples, from 1"""
    loss: float
    """mean over the last pass"""
    accuracy: float
    """on the selection images"""
    score: float
    """the highest is kept"""
    allowed: bool
    """whether accuracy fell by no more than is allowed, and all numbers are finite"""


@dataclass(frozen=True)
class Tuned:
    """What tuning found."""

    accuracy: float
    """on the selection images, before"""
    trials: tuple[Trial, ...]
    best: Trial | None
    """None where every state lost too much accuracy"""
    state: dict[str, Tensor] = field(repr=False, default_factory=dict)
    """the best state's parameters and buffers; empty where there is none"""


def tune(
    model: nn.Module,
    samples: Mined,
    selection: Data,
    loss: Loss,
    layers: Sequence[KeyLayer],
    *,
    score: Score,
    slices: Slices | None = None,
    learning_rates: Sequence[float] = (1e-6, 1e-5, 1e-4),
    epochs: int = 5,
    batch_size: int = 256,
    allowed_drop: float = 0.1,
    seed: int = 0,
    report: Report | None = None,
) -> Tuned:
    """Tunes copies of `model` with each learning rate, and keeps the state that `score` likes best (`search_grid`)."""

    def made(rate: float) -> Tuner:
        return Tuner(deepcopy(model), layers, loss, slices, rate)

    return search_grid(
        model,
        samples,
        selection,
        made,
        score=score,
        learning_rates=learning_rates,
        epochs=epochs,
        batch_size=batch_size,
        allowed_drop=allowed_drop,
        seed=seed,
        report=report,
    )


def search_grid(
    model: nn.Module,
    samples: Mined,
    selection: Data,
    made: Callable[[float], Steps],
    *,
    score: Score,
    learning_rates: Sequence[float],
    epochs: int,
    batch_size: int,
    allowed_drop: float,
    seed: int,
    report: Report | None = None,
) -> Tuned:
    """Walks `epochs` epochs with what is `made` for each learning rate; the state after each epoch is a candidate.

    After every epoch accuracy is measured on the selection images; a rate is left as soon as it has fallen by more than
    `allowed_drop` (0.1 is 10 percentage points) or a weight is not finite, and such a state is never kept. Of the
    others the one with the highest `score` is; ties go to what was tried first.
    """
    device = home_of(model)
    before = accuracy(model, selection, device)[0]
    trials: list[Trial] = []
    best, state = None, dict[str, Tensor]()
    for number, rate in enumerate(learning_rates):
        tuner = made(rate)
        for epoch in range(epochs):
            mean = _pass(tuner, samples, batch_size, seed, epoch)
            now, liked = accuracy(tuner.model, selection, device)[0], score(tuner.model)
            allowed = now >= before - allowed_drop - 1e-9 and not isnan(liked) and _finite(tuner.model)
            trials.append(Trial(rate, epoch + 1, mean, now, liked, allowed))
            if report is not None:
                report(number * epochs + (epoch + 1 if allowed else epochs), len(learning_rates) * epochs)
            if not allowed:
                break
            if best is None or trials[-1].score > best.score:
                best, state = trials[-1], {name: one.clone() for name, one in tuner.model.state_dict().items()}
    return Tuned(before, tuple(trials), best, state)


def _finite(model: nn.Module) -> bool:
    return all(bool(one.isfinite().all()) for one in model.state_dict().values())


def _pass(tuner: Steps, samples: Mined, batch_size: int, seed: int, epoch: int) -> float:
    """One epoch; its mean loss."""
    device, seen = home_of(tuner.model), 0
    total = torch.zeros((), device=device)  # read once: each look waits for the device
    order = batches_of_epoch(len(samples), batch_size, seed, epoch)
    for positions, batch in zip(order, samples.data.batches(order, device), strict=True):
        targets_NO = samples.targets[positions.to(samples.targets.device)].to(device)
        total += tuner.step(batch.images, batch.labels, targets_NO) * len(positions)
        seen += len(positions)
    return float(total) / seen


def mean_loss(model: nn.Module, samples: Mined, loss: Loss) -> float:
    """Over all samples, without a gradient, in evaluation mode."""
    device, total = home_of(model), 0.0
    order = torch.arange(len(samples)).split(default_chunk((samples.data.channels, *samples.data.size), device))
    with evaluating(model), torch.no_grad():
        for positions, batch in zip(order, samples.data.batches(order, device), strict=True):
            targets_NO = samples.targets[positions.to(samples.targets.device)].to(device)
            total += float(loss(model, batch.images, batch.labels, targets_NO).sum())
    return total / len(samples)

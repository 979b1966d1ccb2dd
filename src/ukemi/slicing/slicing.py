"""Slices a network: profiles its mean activations, then follows contributions back from each class's logit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi.activations import unit_mean
from ukemi.data import Data, as_float
from ukemi.errors import UserError, check_known
from ukemi.models import check_head
from ukemi.models.inference import default_chunk, home_of, scoring
from ukemi.slicing import channels, positions
from ukemi.slicing.channels import Activity, Add, Runs
from ukemi.slicing.cutting import kept_count, largest
from ukemi.slicing.profiling import Profiler
from ukemi.slicing.slices import Slices
from ukemi.slicing.steps import Plan, Step, Summed, Weighted, plan_of
from ukemi.slicing.tracing import key_layers
from ukemi.training.sets import weights_hash

Reading = Literal["paper", "released", "set-mean", "nnslicer"]
Report = Callable[[int, int], None]
Walk = Callable[[Activity, Tensor, Runs, Add], None]
Sums = dict[str, tuple[Tensor, Tensor]]
"""a class's contributions by parameter: sums of signs and of real values, both `[out, in / groups]`"""
MOST_PLACES = 64
"""images per pass in the reading that keeps every place of every map"""


def slices_of(
    model: nn.Module,
    data: Data,
    *,
    baseline: Data | None = None,
    reading: Reading = "paper",
    q: float = 95.0,
    theta: float = 0.2,
    classes: Sequence[int] | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> Slices:
    """The synapses and neurons of `model` that matter to each class, told by the samples of `data` with its label.

    `baseline` are the data whose mean activations are the reference; default: `data`. Readings (docs/slicing.md):
    `paper` adds up the signs of Formula 2 over the samples and keeps the `q` % largest of each layer; `released` keeps
    the `q` % largest of each output neuron; `set-mean` takes Formula 1 to the letter, one mean per class; `nnslicer`
    follows single places of maps, keeps what brings a sum within `theta` of itself, and makes no use of `q`.
    `classes` are labels; default: all. `report` is told of samples done and to do. Tensors come back on the model's
    device; the model is left as it was.
    """
    labels = _checked(data, baseline, reading, q, theta, classes, batch_size)
    device, places = home_of(model), reading == "nnslicer"
    plan, few = _planned(model, data, reading)
    baseline = data if baseline is None else baseline
    rows = torch.isin(data.labels, torch.tensor(labels, device=data.labels.device)).nonzero().flatten()
    # by class, so that one class is done before the next but one begins
    data = data.take(rows[data.labels[rows].argsort(stable=True)])
    with scoring(model, device), torch.inference_mode(False), torch.no_grad():
        wanted, keep = (positions.needed(plan), _places) if places else (channels.needed(plan), _means)
        chunk = batch_size or min(_chunk(few, places), max(len(baseline), len(data)))
        seen = _counter(report, len(baseline) + len(data))
        profiler = Profiler(model, plan, frozenset(wanted), keep, chunk, device, seen)
        walk = partial(positions.walk_back, plan, theta) if places else partial(channels.walk_back, plan)
        by = _by_set if reading == "set-mean" else _by_sample
        found = by(profiler, walk, data, profiler.means(baseline))
        synapses, contributions = _cut(plan, found, labels, reading, q)
        neurons = _neurons(plan, synapses)
    names = tuple(data.classes[label] for label in labels)
    return Slices(names, synapses, neurons, contributions, reading, q, theta, weights_hash(model))


def check_sliceable(model: nn.Module, data: Data, reading: Reading = "paper") -> None:
    """Refuses, with a look at two images, what `slices_of` would refuse."""
    _checked(data, None, reading, 95.0, 0.2, None, None)
    _planned(model, data, reading)


def _planned(model: nn.Module, data: Data, reading: str) -> tuple[Plan, Tensor]:
    """The steps, and the images that were looked at."""
    device = home_of(model)
    few = as_float(data.images[torch.arange(min(2, len(data)), device=data.labels.device)]).to(device)
    check_head(model, few, len(data.classes))
    with scoring(model, device), torch.inference_mode(False), torch.no_grad():
        key_layers(model)
        plan = plan_of(model, few)
        if reading == "nnslicer":
            positions.check(plan)
    return plan, few


def _by_sample(profiler: Profiler, walk: Walk, data: Data, means: Mapping[str, Tensor]) -> Iterator[tuple[int, Sums]]:
    """Each class with its sums, one after the other; `data` are sorted by class."""
    sums: dict[int, Sums] = {}
    add = partial(_add, sums)
    for labels_N, values in profiler.batches(data):
        runs = class_runs(labels_N)
        start_NK = F.one_hot(labels_N, profiler.plan.logits).to(next(iter(values.values())).dtype)
        walk(Activity(values, means), start_NK, runs, add)
        for label in [label for label in sums if label != runs[-1][0]]:
            yield label, sums.pop(label)
    yield from sums.items()


def _by_set(profiler: Profiler, walk: Walk, data: Data, means: Mapping[str, Tensor]) -> Iterator[tuple[int, Sums]]:
    """As if each class had one sample: the mean of its own."""
    of_classes = profiler.class_means(data)
    for label in data.labels.unique().tolist():
        values = {name: mean[label : label + 1] for name, mean in of_classes.items()}
        start_1K = next(iter(values.values())).new_zeros(1, profiler.plan.logits)
        start_1K[0, label] = 1
        sums: dict[int, Sums] = {}
        walk(Activity(values, means), start_1K, [(label, slice(0, 1))], partial(_add, sums))
        yield label, sums[label]


def _add(sums: dict[int, Sums], step: Weighted, label: int, signs_OI: Tensor, reals_OI: Tensor) -> None:
    of_class = sums.setdefault(label, {})
    before = of_class.get(step.weight)
    of_class[step.weight] = (signs_OI, reals_OI) if before is None else (before[0] + signs_OI, before[1] + reals_OI)


def _cut(
    plan: Plan, found: Iterator[tuple[int, Sums]], labels: Sequence[int], reading: Reading, q: float
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Synapses and contributions by parameter, `[classes, out, in / groups]`, in the order of execution."""
    sizes = {step.weight: step.used().abs().sum(2) for step in plan.weighted()}
    synapses = {name: size_OI.new_zeros(len(labels), *size_OI.shape).bool() for name, size_OI in sizes.items()}
    contributions = {name: size_OI.new_zeros(len(labels), *size_OI.shape) for name, size_OI in sizes.items()}
    for label, sums in found:
        for name, (signs_OI, reals_OI) in sums.items():
            contributions[name][labels.index(label)] = signs_OI
            synapses[name][labels.index(label)] = _kept((signs_OI, reals_OI, sizes[name]), reading, q)
    return synapses, contributions


def _kept(keys: tuple[Tensor, Tensor, Tensor], reading: Reading, q: float) -> Tensor:
    """What a class keeps of a layer, bool `[out, in / groups]`: by signs, then real contributions, then weights."""
    if reading == "nnslicer":
        return keys[0] != 0
    rows = [key_OI if reading == "released" else key_OI.reshape(1, -1) for key_OI in keys]
    return largest(rows, kept_count(rows[0].shape[1], q)).view_as(keys[0])


def _neurons(plan: Plan, synapses: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The neurons at either end of a kept synapse, bool `[classes, out]` by layer, in the order of execution."""
    found = {step.name: synapses[step.weight].any(2) for step in plan.weighted()}

    def through(step: Step, leaving_KU: Tensor) -> Sequence[Tensor]:
        if isinstance(step, Summed):
            return [leaving_KU] * len(step.sources)
        if not isinstance(step, Weighted):
            return channels.handed_on(step, leaving_KU)
        found[step.name] = found[step.name] | (leaving_KU > 0)
        kept_KGOI = synapses[step.weight].unflatten(1, (step.groups, -1))
        return [kept_KGOI.any(2).flatten(1).float()]

    some = next(iter(found.values()))
    plan.back(torch.zeros(len(some), plan.logits, device=some.device), through)
    return found


def class_runs(labels_N: Tensor) -> Runs:
    """The stretches of equal labels in a sorted batch."""
    labels, counts = labels_N.unique_consecutive(return_counts=True)
    ends = counts.cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return [(label, slice(*both)) for label, *both in zip(labels.tolist(), starts, ends, strict=True)]


def _chunk(images: Tensor, places: bool) -> int:
    chunk = default_chunk(tuple(images.shape[1:]), images.device)
    return min(chunk, MOST_PLACES) if places else chunk


def _places(output: Tensor) -> Tensor:
    """Every number of a node's output; a copy, since the network may write into it later."""
    return output.clone() if output.dtype == torch.float64 else output.to(torch.float32, copy=True)


def _means(output: Tensor) -> Tensor:
    """The channel means of a node's output; a copy too, since those of dense units are the output itself."""
    return unit_mean(output).clone()


def _counter(report: Report | None, total: int) -> Callable[[int], None]:
    done = 0

    def seen(samples: int) -> None:
        nonlocal done
        done += samples
        if report is not None:
            report(done, total)

    return seen


def _checked(
    data: Data,
    baseline: Data | None,
    reading: str,
    q: float,
    theta: float,
    classes: Sequence[int] | None,
    batch_size: int | None,
) -> list[int]:
    """The labels to slice for; the first setting that makes no sense is named."""
    check_known("reading", reading, get_args(Reading))
    if not 0 < q <= 100:
        raise UserError(f"q: a percentage above 0 and up to 100 is expected, but {q:g} was given.")
    if not 0 <= theta < 1:
        raise UserError(f"theta: a share from 0 to below 1 is expected, but {theta:g} was given.")
    if batch_size is not None and batch_size < 1:
        raise UserError(f"batch-size: 1 or more is expected, but {batch_size} was given.")
    if baseline is not None and (baseline.channels, baseline.size) != (data.channels, data.size):
        raise UserError("baseline: its images should have the shape of those to slice by.")
    if baseline is not None and not len(baseline):
        raise UserError("baseline: there is no image to take means over.")
    labels = list(range(len(data.classes)) if classes is None else classes)
    if not labels or len(set(labels)) < len(labels) or not all(0 <= label < len(data.classes) for label in labels):
        raise UserError(
            f"classes: different labels from 0 to {len(data.classes) - 1} are expected, but {labels} given."
        )
    present = set(data.labels.tolist())
    for label in labels:
        if label not in present:
            raise UserError(f"classes: there is no sample of class {data.classes[label]!r} to slice by.")
    return labels

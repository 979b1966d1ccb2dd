"""DARE (Zhang et al., ASE 2022): slice the network, mine its history, tune each class's own synapses, write it back."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from torch import nn

from ukemi import randomness
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.measures import accuracy
from ukemi.models.inference import home_of
from ukemi.randomness import Stream
from ukemi.repairs.ground import Ground, ground_of
from ukemi.repairs.mining import Mined, Report, mine, mine_at_random
from ukemi.repairs.more import beside, free_folder, write_tuned
from ukemi.repairs.tuning import (
    Loss,
    Score,
    Trial,
    Tuned,
    cross_entropy,
    mean_loss,
    regression,
    target_layer,
    trainable_layers,
    tune,
)
from ukemi.repairs.twins import joined, saved, twins_of
from ukemi.schema import Number, Schema
from ukemi.slicing import KeyLayer, Reading, Slices, check_slices, slices_of
from ukemi.slicing.slicing import check_sliceable
from ukemi.training import Run
from ukemi.training.sets import weights_hash

Variant = Literal["dare", "dare-s", "dare-sl", "rand", "dare-adv"]
Told = Callable[[str, int, int], None]
"""`(what, done, total)`"""


class Dare(Schema):
    """How DARE is done; the defaults are the paper's where it names them."""

    variant: Variant = "dare"
    """dare; dare-s tunes all synapses; dare-sl so with cross-entropy; rand takes targets from random historical models;
    dare-adv adds an adversarial twin of each image."""
    q: Annotated[Number, Field(gt=0, le=100)] = 95.0
    """Percent of the synapses of a layer that a class keeps."""
    reading: Reading = "paper"
    """How slices are cut: paper, released, set-mean, nnslicer."""
    p: int = Field(1, ge=0)
    """Trainable layers that the regression leaves out: 1 ends at the penultimate one, 0 at the logits."""
    learning_rates: tuple[Annotated[Number, Field(gt=0)], ...] = Field((1e-6, 1e-5, 1e-4), min_length=1)
    """Adam's, each tried."""
    epochs: int = Field(5, ge=1)
    """Passes over the mined images; the state after each is a candidate."""
    batch_size: int = Field(256, ge=1)
    """Images per step."""
    allowed_drop: Annotated[Number, Field(ge=0, le=1)] = 0.1
    """How much accuracy on the selection images may fall: 0.1 is 10 percentage points."""
    samples: int | None = Field(None, ge=1)
    """Tune on this many images at most, twins counted; default: all that were mined."""
    twins: tuple[Path, ...] = ()
    """dare-adv: adversarial sets of `ukemi attack` for this model; default: PGD on the mined images."""
    epsilon: Annotated[Number, Field(gt=0)] = 8 / 255
    """dare-adv: PGD's budget (Linf)."""
    select_on: tuple[Path, ...] = ()
    """Keep the state with the highest accuracy on these adversarial sets; default: with the lowest loss on the mined
    selection images."""

    @model_validator(mode="after")
    def _fits(self) -> "Dare":
        if self.twins and self.variant != "dare-adv":
            raise UserError(f"twins belong to the variant dare-adv, but the variant is {self.variant}.")
        if self._told("epsilon") and self.variant != "dare-adv":
            raise UserError(f"epsilon belongs to the variant dare-adv, but the variant is {self.variant}.")
        if self._told("epsilon") and self.twins:
            raise UserError("epsilon: twins that are given make no use of it.")
        for name, used in (("q", self.sliced), ("reading", self.sliced), ("p", self.variant != "dare-sl")):
            if self._told(name) and not used:
                raise UserError(f"{name}: the variant {self.variant} makes no use of it.")
        if self._told("q") and self.reading == "nnslicer":
            raise UserError("q: the reading nnslicer makes no use of it.")
        return self

    def _told(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    @property
    def sliced(self) -> bool:
        return self.variant not in ("dare-s", "dare-sl")


class LimitMissed(UserError):
    """Every tuned state lost more accuracy than is allowed: a table shows "-"."""


@dataclass(frozen=True)
class Dared:
    """What a repair with DARE did."""

    run: Run
    """the new run folder"""
    mined: Mined
    tuned: Tuned
    samples: int
    """images that tuned, twins counted"""
    key_neurons: float
    """share of the target layer's neurons that are key, over the classes"""
    key_synapses: float
    """share of the tuned layers' synapses that a class keeps"""
    seconds: dict[str, float] = field(default_factory=dict)
    """mining, slicing, tuning"""


def dare(
    run: Run,
    told: Dare | None = None,
    *,
    out: Path | None = None,
    ground: Ground | None = None,
    mined: Mined | None = None,
    slices: Slices | None = None,
    score: Score | None = None,
    device: str | None = None,
    report: Told | None = None,
) -> Dared:
    """Repairs a run's model, into a new run folder; where no state keeps enough accuracy, `LimitMissed` is raised and
    nothing is written.

    `ground`, `mined` (over `ground.aside`), `slices` and `score` are made where they are not given: hand them in to try
    several settings on one model. `device` takes the place of the run's own, also in the new run.
    """
    told = told or Dare()
    folder = free_folder(run, out, told.variant)
    ground = ground or ground_of(run, device)
    model, layer = ground.model, _target(told, ground.model)
    _check_given(told, ground, mined, slices, layer)
    if told.sliced and slices is None:
        check_sliceable(model, ground.train, told.reading)
    select_on = saved("select-on", told.select_on, model, ground.selection)
    twins = saved("twins", told.twins, model, ground.mining)
    seconds: dict[str, float] = {}
    with _timed(seconds, "mining"):
        found = _mined(told, ground, layer, _part(report, "mine")) if mined is None else mined
        mined = found.among(ground.mining)
        chosen = None if score or select_on is not None else found.among(ground.selection)
        samples = _samples(told, ground, mined, twins)
    with _timed(seconds, "slicing"):
        slices = _slices(told, ground, slices, _part(report, "slice"))
    loss = cross_entropy if told.variant == "dare-sl" else regression(layer, slices)
    layers = _tuned_layers(told, model)
    with _timed(seconds, "tuning"):
        tuned = tune(
            model,
            samples,
            ground.selection,
            loss,
            layers,
            score=score or _score(select_on, chosen, loss),
            slices=slices,
            learning_rates=told.learning_rates,
            epochs=told.epochs,
            batch_size=told.batch_size,
            allowed_drop=told.allowed_drop,
            seed=ground.config.seed,
            report=_part(report, "tune"),
        )
    if tuned.best is None:
        raise _missed(told, ground, tuned)
    done = Dared(Run(folder), mined, tuned, len(samples), *_shares(slices, layer, layers), seconds)
    _write(told, ground, done, layer)
    return done


def _target(told: Dare, model: nn.Module) -> KeyLayer:
    """Where the regression ends; cross-entropy makes no use of it, so that a network of one layer will do."""
    most = len(trainable_layers(model)) - 1
    return target_layer(model, min(told.p, most) if told.variant == "dare-sl" else told.p)


def _missed(told: Dare, ground: Ground, tuned: Tuned) -> LimitMissed:
    whole = all(isfinite(one.loss) and isfinite(one.score) for one in tuned.trials)
    return LimitMissed(
        f"repair: every tuned state lost more than {100 * told.allowed_drop:g} points of accuracy on the"
        f" {len(ground.selection)} selection images{'' if whole else ' or is not finite'}, so nothing was written;"
        " lower --learning-rates."
    )


def _check_given(told: Dare, ground: Ground, mined: Mined | None, slices: Slices | None, layer: KeyLayer) -> None:
    if slices is not None and told.sliced:
        check_slices(slices, ground.model)
        _check_cut(told, ground, slices)
    if mined is not None and mined.targets.shape[1] != layer.outputs:
        width = mined.targets.shape[1]
        raise UserError(f"mined: its targets have {width} neurons, but layer {layer.name} has {layer.outputs}.")


def _check_cut(told: Dare, ground: Ground, slices: Slices) -> None:
    """What is handed in has to be what repair.json will say."""
    if slices.classes != ground.train.classes:
        raise UserError(f"slices: they are of {len(slices.classes)} classes, but all {len(ground.train.classes)} tune.")
    cuts = [(one.reading, None if one.reading == "nnslicer" else one.q) for one in (slices, told)]
    if cuts[0] != cuts[1]:
        said = [reading + ("" if q is None else f" at q = {q:g}") for reading, q in cuts]
        raise UserError(f"slices: they were cut by {said[0]}, but {said[1]} is asked for.")


def _mined(told: Dare, ground: Ground, layer: KeyLayer, report: Report | None) -> Mined:
    if told.variant == "rand":
        seed = ground.config.seed
        return mine_at_random(ground.model, ground.history, ground.aside, layer, seed=seed, report=report)
    return mine(ground.model, ground.history, ground.aside, layer, report=report)


def _slices(told: Dare, ground: Ground, given: Slices | None, report: Report | None) -> Slices | None:
    """None where the variant tunes all synapses."""
    if told.sliced and given is None:
        return slices_of(ground.model, ground.train, reading=told.reading, q=told.q, report=report)
    return given if told.sliced else None


def _samples(told: Dare, ground: Ground, mined: Mined, twins: Data | None) -> Mined:
    """What tuning goes over: at most `samples` of the mined images, or of them and their twins together."""
    most, seed = told.samples, ground.config.seed
    if told.variant != "dare-adv":
        return _some(mined, most, seed)
    if twins is None:
        mined = _some(mined, most and -(-most // 2), seed)  # no more twins are made than are used
        twins = twins_of(ground.model, mined.data, told.epsilon, seed)
    return _some(joined(mined, twins), most, seed)


def _some(mined: Mined, most: int | None, seed: int) -> Mined:
    """At most so many, a choice by seed and identity: an image and its twin are chosen together."""
    rank = randomness.bits(mined.data.index, seed=seed, stream=Stream.SUBSET).argsort(stable=True)
    return mined.take(rank[:most].sort().values.to(mined.targets.device))


def _tuned_layers(told: Dare, model: nn.Module) -> list[KeyLayer]:
    """All up to the target layer; cross-entropy reaches the last one too."""
    layers = trainable_layers(model)
    return layers if told.variant == "dare-sl" else layers[: len(layers) - told.p]


def _score(select_on: Data | None, chosen: Mined | None, loss: Loss) -> Score:
    """Accuracy on adversarial images where there are any, else the loss on the mined selection images, turned round."""
    if select_on is not None:
        return lambda model: accuracy(model, select_on, home_of(model))[0]
    assert chosen is not None
    return lambda model: -mean_loss(model, chosen, loss)


def _shares(slices: Slices | None, layer: KeyLayer, layers: Sequence[KeyLayer]) -> tuple[float, float]:
    """Of the target layer's neurons and of the tuned layers' synapses, those that a class keeps, over the classes."""
    if slices is None:
        return 1.0, 1.0
    kept = [slices.synapses[one.weight] for one in layers]
    synapses = sum(int(one.sum()) for one in kept) / sum(one.numel() for one in kept)
    return float(slices.neurons[layer.name].double().mean()), synapses


def _write(told: Dare, ground: Ground, done: Dared, layer: KeyLayer) -> None:
    """The new run folder: the run's own data and split, the best state, the lines of its learning rate."""
    best, config = done.tuned.best, ground.config
    assert best is not None
    tuned = beside(
        config,
        ground.run,
        done.run.folder,
        epochs=best.epoch,
        learning_rate=best.learning_rate,
        batch_size=max(2, told.batch_size),
        optimiser="adam",
        weight_decay=0,
    )
    lines = [one for one in done.tuned.trials if one.learning_rate == best.learning_rate and one.epoch <= best.epoch]
    log = [
        {
            "epoch": one.epoch - 1,
            "loss": one.loss,
            "images": done.samples,
            "learning_rate": one.learning_rate,
            "validation_accuracy": one.accuracy,
        }
        for one in lines
    ]
    write_tuned(tuned, done.tuned.state, ground.train.classes, log, _about(told, ground, done, layer))


def _about(told: Dare, ground: Ground, done: Dared, layer: KeyLayer) -> dict[str, Any]:
    best = done.tuned.best
    assert best is not None
    return {
        "repair": "dare",
        "origin": str(ground.run.folder.resolve()),
        "origin_model": weights_hash(ground.model),
        "settings": told.model_dump(mode="json"),
        "target_layer": layer.name,
        "searched": done.mined.searched,
        "mined": len(done.mined),
        "samples": done.samples,
        "selection_images": len(ground.selection),
        "key_neurons": done.key_neurons,
        "key_synapses": done.key_synapses,
        "accuracy_before": done.tuned.accuracy,
        "accuracy_after": best.accuracy,
        "learning_rate": best.learning_rate,
        "epochs": best.epoch,
        "batch_size": told.batch_size,
        "trials": [_plain(one) for one in done.tuned.trials],
        "seconds": done.seconds,
    }


def _plain(trial: Trial) -> dict[str, Any]:
    """As JSON knows it: a number that is not finite is null."""
    return {name: value if isfinite(value) else None for name, value in asdict(trial).items()}


def _part(report: Told | None, what: str) -> Report | None:
    return None if report is None else partial(report, what)


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    began = monotonic()
    yield
    seconds[what] = round(monotonic() - began, 3)

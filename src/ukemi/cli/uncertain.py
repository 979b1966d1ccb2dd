"""What commands about uncertainty share: model, data, stochastic passes, thresholds."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from os.path import join
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from rich.console import Console
from torch import nn

from ukemi import data as data_room
from ukemi.attacks.config import AttackConfig
from ukemi.cli.brought import BroughtConfig, brought, check_brought, tell
from ukemi.cli.turned import turned
from ukemi.data import Data, as_float
from ukemi.errors import UserError, field_called
from ukemi.measures.uncertainty import attack_of, validation_thresholds
from ukemi.models.check_head import PROBABILITIES
from ukemi.models.inference import default_chunk, home_of, logits
from ukemi.models.own import load_into
from ukemi.ranks import Ranks, is_first
from ukemi.reports.uncertainty import KnownProfile, read_profile
from ukemi.reports.words import count, plural
from ukemi.schema import Number
from ukemi.training.checkpoints import check_folder, read_checkpoint
from ukemi.training.config import device_of
from ukemi.training.parallel import check_measured, measuring
from ukemi.training.run import Run
from ukemi.training.sets import AdversarialSet, as_data, check_set, weights_hash
from ukemi.training.setup import fixed_subset, in_classes, load_model, load_sets, trained_model
from ukemi.uncertainty import DropoutPasses, Ensemble, Source, Thresholds, with_dropout
from ukemi.uncertainty.dropout import drops, rateless
from ukemi.uncertainty.metrics import Against, Confidence
from ukemi.uncertainty.patterns import limits_of

OF_DROPOUT = ("passes", "dropout", "own_dropout_only")
"""settings that an ensemble, which is asked once per member, has no use for"""
GIVEN = "given"


class UncertainConfig(BroughtConfig):
    """How uncertainty is measured, and where low ends and high begins."""

    passes: int = Field(50, ge=2)
    """Stochastic passes per image (T)."""
    dropout: Number = Field(0.2, gt=0, lt=1)
    """The dropout rate before the classifier of a network that has no dropout of its own."""
    own_dropout_only: bool = False
    """Never insert dropout: a network without any is an error."""
    ensemble: tuple[Path, ...] = ()
    """Instead of dropout: further run folders, or weights of the same network, that answer beside the model."""
    confidence: Confidence = "margin"
    """PCS: the first class's probability less the second's (margin), or the first's alone (max)."""
    against: Against = "prediction"
    """VR counts passes that differ from the certain prediction, or from their own most frequent one (mode)."""
    pcs_thresholds: tuple[Number, ...] = ()
    """Where PCS is high: one number, or two with a gap (low below the first, high from the second on)."""
    vr_thresholds: tuple[Number, ...] = ()
    """The same for VR."""
    profile: Path | None = None
    """Take both thresholds from this uncertainty.json of `ukemi uncertainty`."""
    attacks: tuple[str, ...] = ("fgsm", "bim", "deepfool", "carlini-wagner")
    """Attacks on validation images that thresholds are found by; by name, or package.module:function."""
    epsilon: Number = Field(8 / 255, gt=0, le=1)
    """Budget of attacks that have one, in pixels of 0..1: 8/255, or 0.3 for digits."""
    attacked: Path | None = None
    """Keep in this folder what the attacks turn, and take from it what a command before kept for the same model, images
    and settings: C&W takes its time."""
    validation_images: int = Field(200, ge=2)
    """At most this many validation images (of the run, else of the training part) decide on thresholds."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Masks, draws and the choice of images; without a run, also splits data that have no test part."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""


@dataclass(frozen=True)
class Asked:
    """A model, the images that it is asked about, and by what chance it answers."""

    model: nn.Module
    data: Data
    validation: Data
    source: Source
    named: dict[str, Any]
    """how model and data are called"""
    dropped: bool
    """whether the network had dropout of its own"""
    ranks: Ranks = field(default_factory=Ranks)
    """who measures together"""


def check_uncertain(config: UncertainConfig, command: str) -> None:
    """What can be known to be wrong before anything is loaded."""
    check_brought(config, command)
    given = [limits for limits in (config.pcs_thresholds, config.vr_thresholds) if limits]
    for name, limits in (("pcs", config.pcs_thresholds), ("vr", config.vr_thresholds)):
        if limits:
            limits_of(name, limits)
    if len(given) == 1:
        raise UserError("pcs-thresholds: give those of PCS and of VR, or neither.")
    if given and config.profile is not None:
        raise UserError("profile: it brings thresholds, so --pcs-thresholds can't stand beside it.")
    if config.profile is not None:
        _check_kinds(config, read_profile(config.profile))
    for path in config.ensemble:
        if not path.exists():
            raise UserError(f"ensemble: {path} is neither a run folder nor a file of weights.")
    for name in OF_DROPOUT if config.ensemble and command != "defend" else ():  # which has a defence by dropout
        if getattr(config, name) != UncertainConfig.model_fields[name].default:
            raise UserError(
                f"{name.replace('_', '-')}: an ensemble is asked once per member, without dropout, so it has no use for"
                " it; leave it out."
            )
    if config.attacked is not None and is_first():
        check_folder(config.attacked, "attacked")
    if not (attacks_of(config) or given or config.profile):
        raise UserError("attacks: without any, --pcs-thresholds and --vr-thresholds are needed.")


def set_name(path: Path) -> str:
    """A set's path as a source is called: with a folder, ./ at least, which no source of ours has."""
    return join(path.parent, path.name)


def kept_of(saved: Mapping[str, AdversarialSet], found: Asked) -> dict[str, Data]:
    """What succeeded in saved sets, which have to be this model's."""
    kept = {}
    for name, one in saved.items():
        with field_called(f"sets: {name}", "adversarial-set"):
            check_set(one, model=found.model)
        kept[name] = in_classes(as_data(one), found.data.classes)
        if (kept[name].channels, kept[name].size) != (found.data.channels, found.data.size):
            raise UserError(f"sets: the images of {name} have another shape than those of the data.")
    return kept


def attacks_of(config: UncertainConfig) -> dict[str, AttackConfig]:
    """The attacks by their names, each with the budget where it takes one."""
    return {name: attack_of(name, config.epsilon) for name in config.attacks}


@contextmanager
def asked_on_ranks(config: UncertainConfig, images: int, *, apart: bool = False) -> Iterator[Asked]:
    """The same on all ranks, where torchrun started several."""
    with measuring(config.device) as (ranks, device):
        with ranks.together():
            found = asked(config, images, device, apart=apart)
        check_measured(config, found.model, found.data, ranks)
        yield replace(found, ranks=ranks)


def asked(config: UncertainConfig, images: int, device: torch.device | None = None, *, apart: bool = False) -> Asked:
    """Loads model and data, and makes the source of stochastic passes. With `apart` no image is among both the data and
    the validation images, which training images may be."""
    device = device or device_of(config.device)
    given = brought(config, device, seed=config.seed)
    model, data, named = given.model, given.data, given.settings
    if named.get("outputs"):  # how sure it is would be that of their softmax
        raise UserError(PROBABILITIES)
    origin = config.run if config.run is None or config.data else _unrepaired(config.run)
    validation = _validation(config, origin, data)
    source: Source
    dropped, rate = drops(model), None
    if dropped and config.dropout != UncertainConfig.model_fields["dropout"].default:
        raise UserError("dropout: the network has dropout of its own, which keeps its rates; leave --dropout out.")
    if config.ensemble:
        with field_called("ensemble", "run", "weights", "checkpoint"):
            source = Ensemble([model, *_members(config.ensemble, model, data, device)])
    elif config.own_dropout_only and not dropped:
        raise UserError(
            f"own-dropout-only: {type(model).__name__} has no dropout layer{rateless(model)}; leave"
            " --own-dropout-only out and one is inserted, or give an --ensemble."
        )
    else:
        rate = None if dropped else config.dropout
        model = with_dropout(model, config.dropout, data.batch(torch.arange(min(2, len(data))), device).images)
        source = DropoutPasses(model, config.passes, seed=config.seed)
    if config.profile is not None:
        _check_profile(config.profile, model, source, rate)
    if apart and config.split != "test":
        data = _without(data, validation, numbered_alike=origin == config.run)
    data = fixed_subset(data, min(images, len(data)), config.seed)
    _check_finite(model, data)
    return Asked(model, data, validation, source, named, dropped)


def _check_finite(model: nn.Module, data: Data) -> None:
    """Before the long work: a network that gives no numbers can't be unsure of anything."""
    device = home_of(model)
    chunk = default_chunk((data.channels, *data.size), device)
    batches = data.batches(torch.arange(len(data)).split(16 * chunk), device)
    wrong = sum(int((~logits(model, batch.images, chunk).isfinite().all(1)).sum()) for batch in batches)
    if wrong:
        raise UserError(f"model: its logits for {wrong} of {len(data)} images are not finite.")


def _check_kinds(config: UncertainConfig, known: KnownProfile) -> None:
    """A limit of one kind of PCS or VR says nothing about another kind."""
    for name in ("confidence", "against"):
        then, now = known.settings.get(name), getattr(config, name)
        if then not in (None, now):
            raise UserError(f"{name}: {config.profile} has its thresholds for {then}, but {now} is asked for here.")


def _check_profile(path: Path, model: nn.Module, source: Source, rate: float | None) -> None:
    """Refuses thresholds that were found for another model, and notes what else they were found with."""
    known, here = read_profile(path), weights_hash(model)
    if known.model not in (None, here):
        raise UserError(
            f"profile: {path} was found for another model (weights {str(known.model)[:12]}…, here {here[:12]}…)."
        )
    notes = [f"{path} doesn't say for which model its thresholds were found."] * (known.model is None)
    if known.passes not in (None, source.passes):
        notes.append(f"{path} has its thresholds from {known.passes} passes, but {source.passes} are made here.")
    asked, ensemble = {True: "an ensemble", False: "dropout"}, isinstance(source, Ensemble)
    if known.settings and bool(known.settings.get("ensemble")) != ensemble:
        notes.append(f"{path} has its thresholds from {asked[not ensemble]}, but {asked[ensemble]} is asked here.")
    elif rate is not None and known.settings.get("dropout") not in (None, rate):
        notes.append(
            f"{path} has its thresholds at dropout {known.settings['dropout']:g}, but {rate:g} is put in here."
        )
    for note in notes * is_first():
        Console(stderr=True).print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)


def _validation(config: UncertainConfig, run: Path | None, data: Data) -> Data:
    """Images that are neither tested on nor, where the run kept some aside, trained on."""
    if run is not None:
        trained = Run.plain_config_of(run, space=False)
        changed = {name: getattr(config, name) for name in ("data", "data_folder", "size", "channels")}
        sets = load_sets(trained.model_copy(update={key: value for key, value in changed.items() if value is not None}))
        found = sets.train if sets.validation is None else sets.validation
    else:
        assert config.data is not None
        told = {"size": config.size, "channels": config.channels, "seed": config.seed}
        found = data_room.load(config.data, folder=config.data_folder, **told).train  # type: ignore[arg-type]
    chosen = fixed_subset(found, min(config.validation_images, len(found)), config.seed)
    return in_classes(chosen, data.classes)


def _unrepaired(folder: Path) -> Path:
    """The run that a repair began with: the repair's own images are in part made ones, which are not benign."""
    trained = Run.plain_config_of(folder, space=False)
    if trained.weights is None or Path(trained.data).parent != folder.resolve():
        return folder
    origin = trained.weights.parent
    if (origin / "config.toml").exists():
        return _unrepaired(origin)
    tell(f"validation-images: some may be made ones, since {origin}, which {folder} repaired, is no run any more.")
    return folder


def _without(data: Data, validation: Data, *, numbered_alike: bool) -> Data:
    """The images of the training part that decide on no threshold; a repair numbers its own anew, so pixels tell."""
    if numbered_alike:
        among = torch.isin(data.index.cpu(), validation.index.cpu())
    else:
        deciding = set(_pixels(validation))
        among = torch.tensor([image in deciding for image in _pixels(data)])
    rest = (~among).nonzero().flatten()
    if not len(rest):
        raise UserError(
            f"validation-images: all {len(data)} images of this part find the thresholds, which leaves none to measure;"
            " lower it."
        )
    if len(rest) == len(data):
        return data
    tell(
        f"data: {len(data) - len(rest):,} of {len(data):,} images find the thresholds, which leaves {len(rest):,} to"
        " measure (--validation-images takes fewer)."
    )
    return data.take(rest.to(data.labels.device))


def _pixels(data: Data) -> Iterator[bytes]:
    for at in torch.arange(len(data)).split(1024):
        yield from (image.numpy().tobytes() for image in as_float(data.images[at]).cpu())


def finds_thresholds(config: UncertainConfig) -> bool:
    """Whether thresholds come from validation images here, and not from the user or an earlier profile."""
    return config.profile is None and not config.pcs_thresholds


def _members(paths: Sequence[Path], model: nn.Module, data: Data, device: torch.device) -> list[nn.Module]:
    """Further models, each with weights of its own: two alike always agree, and make the ensemble too sure."""
    known, found = {weights_hash(model): "the model"}, []
    for path in paths:
        member = _member(path, model, data).to(device)
        weights = weights_hash(member)
        if weights in known:
            raise UserError(
                f"ensemble: {path} has the same weights as {known[weights]}, so the two would always agree; leave it"
                " out."
            )
        known[weights] = str(path)
        found.append(member)
    return found


def _member(path: Path, model: nn.Module, data: Data) -> nn.Module:
    """A further model: of a run, or the same network with other weights."""
    if path.is_dir():
        with field_called(f"ensemble: {path}", "model"):
            member, known = trained_model(Run(path), Run.plain_config_of(path, space=False), data)
        _check_classes(path, known.classes, data)
        return member
    member = deepcopy(model)
    try:
        ours = read_checkpoint(path)  # weights at the end, or a checkpoint along the way
        load_model(member, ours, path)
    except UserError:
        load_into(member, path)
    else:
        _check_classes(path, ours.values.get("classes", data.classes), data)  # a file of the history names none
    return member


def _check_classes(path: Path, classes: Sequence[str], data: Data) -> None:
    if tuple(classes) != data.classes:
        raise UserError(
            f"ensemble: {path} knows the classes {_few(classes)}, but the model {_few(data.classes)}; their answers"
            " would not mean the same."
        )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def thresholds_of(
    config: UncertainConfig, found: Asked, attacked: Sequence[Data] | None = None
) -> tuple[Thresholds, str]:
    """The thresholds, and where they come from; `attacked` are the attacked validation images, where they are known."""
    if config.profile is not None:
        known = read_profile(config.profile)
        other = known.passes not in (None, found.source.passes)
        return known.thresholds, str(config.profile) + (f", from {known.passes} passes" if other else "")
    if config.pcs_thresholds:
        return Thresholds(limits_of("pcs", config.pcs_thresholds), limits_of("vr", config.vr_thresholds)), GIVEN
    attacked = attacked_validation(config, found) if attacked is None else attacked
    kinds = {"confidence": config.confidence, "against": config.against, "ranks": found.ranks}
    limits = validation_thresholds(found.source, found.validation, attacked, **kinds)  # type: ignore[arg-type]
    counted = plural(len(found.validation), "validation image")
    return limits, f"Youden’s J on {counted} and {count(sum(map(len, attacked)))} that attacks turned"


def attacked_validation(config: UncertainConfig, found: Asked) -> list[Data]:
    """What each attack turns of the validation images."""
    return list(attacked(config, found, found.validation, " on validation images").values())


def attacked(config: UncertainConfig, found: Asked, data: Data, about: str = "") -> dict[str, Data]:
    """What each attack turns of the images `data`."""
    told: dict[str, Any] = {"kept": config.attacked, "ranks": found.ranks}
    return {
        name: turned(found.model, data, attack, config.seed, f"{name}{about}", **told)
        for name, attack in attacks_of(config).items()
    }


def shown(config: UncertainConfig, found: Asked, *, drops: bool = False) -> dict[str, Any]:
    """A command's own settings for its report, without those that say nothing; `drops`: it uses those of dropout in
    spite of an ensemble."""
    unused = {*BroughtConfig.model_fields, "out", "attacked", "device", *(["dropout"] if found.dropped else [])}
    unused |= {*OF_DROPOUT} if config.ensemble and not drops else set()
    own = config.model_dump(mode="json", exclude=unused, exclude_none=True)
    return {name: value for name, value in own.items() if value != []}


def recognised(found: Asked) -> Data:
    """The images that the model gets right."""
    device = home_of(found.model)
    prediction = torch.cat(
        [
            found.source(batch.images, batch.index).certain.argmax(1)
            for batch in found.data.batches(torch.arange(len(found.data)).split(1024), device)
        ]
    )
    rows = (prediction.to(found.data.labels.device) == found.data.labels).nonzero().flatten()
    rows = found.ranks.gathered(rows)[0]  # devices may disagree at a boundary: the first rank's count
    if not len(rows):
        raise UserError("data: the model recognises none of the images.")
    return found.data.take(rows)

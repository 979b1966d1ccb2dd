"""What a comparison is told: methods, cases, seeds and measures, in one schema for Python, TOML and flags."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ukemi.attacks.config import AttackConfig
from ukemi.augmenters import AUGMENTERS
from ukemi.errors import UserError, check_known, field_called, meant
from ukemi.measures.attacks import styx_grid
from ukemi.schema import Fixed, Number, Schema, value_of
from ukemi.spaces import GRIDS, named_grid
from ukemi.training import TrainConfig

STYX = "styx"
"""the named grid of attacks"""
OWN = ("seed", "out")
"""settings of a training that the comparison sets itself"""
Settings = dict[str, Any]


def plain(name: str) -> str:
    """How a file's keys are read."""
    return name.replace("-", "_")


def pairs(given: Any) -> Any:
    """`epochs=5 flips=true` as a table; a table as it is, with `-` in keys read as `_`."""
    if isinstance(given, dict):
        return {plain(str(key)): value for key, value in given.items()}
    if not isinstance(given, list | tuple) or not all(isinstance(text, str) for text in given):
        raise ValueError("should be a table of settings")
    return dict(_pair(text, "train") for text in given)


def method(given: Any) -> Any:
    """`worst-of,k=20,epochs=5` as a table: settings of a training stay, the others are the augmenter's."""
    if not isinstance(given, str):
        return given if isinstance(given, Method) else pairs(given)
    name, *rest = given.split(",")
    told = dict(_pair(text, f"methods.{given}") for text in rest)
    own = {key: told.pop(key) for key in list(told) if key in TrainConfig.model_fields or key == "then"}
    return {"name": told.pop("name", given), "augmenter": {"name": name, **told}, **own}


def attack(given: Any) -> Any:
    """`fgsm,epsilon=8/255` as a table."""
    if not isinstance(given, str):
        return pairs(given)
    name, *rest = given.split(",")
    return {"attack": name, **dict(_pair(text, f"attacks.{given}") for text in rest)}


def _pair(text: str, place: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise UserError(f"{place}: {text!r} should have the form SETTING=VALUE.")
    return plain(key), value_of(value)


def _one_line(given: str) -> str:
    if not given.strip() or len(given.splitlines()) > 1:
        raise ValueError("should be one line of text, since tables show it")
    return given


Name = Annotated[str, AfterValidator(_one_line)]


class Method(Schema, extra="allow"):
    """A way to train: a name, and whatever of a training's settings makes it what it is. Without an augmenter it trains
    with the one that it is named after, where there is one."""

    place: ClassVar[str] = "methods"
    name: Name
    """how tables call it"""
    then: Literal["retrain"] | None = None
    """`retrain`: trained once more on the variants that fool it (SENSEI, Exp-3)"""

    def settings(self) -> Settings:
        usual = {"augmenter": self.name} if self.name in AUGMENTERS else {}
        return usual | _checked(self.model_extra or {}, f"methods.{self.name}")


class Case(Schema, extra="allow"):
    """What all methods are compared on: a data set, a network, and settings that they share there."""

    place: ClassVar[str] = "cases"
    name: Name | None = None
    """how tables call it; default: data, model and space"""
    grids: tuple[str, ...] = ()
    """measured here instead of the comparison's"""
    images: int | None = Field(None, ge=1)
    printed: Annotated[dict[str, Annotated[Number, Field(ge=0, le=100)]], BeforeValidator(pairs)] = {}
    """by method: the robust accuracy that a paper prints, in percent, to be shown beside ours"""

    def settings(self) -> Settings:
        return _checked(self.model_extra or {}, f"cases.{self.title()}")

    def title(self) -> str:
        told = {plain(key): value for key, value in (self.model_extra or {}).items()}
        return self.name or " ".join(str(told[key]) for key in ("data", "model", "space") if key in told) or "case"


def _checked(given: Settings, place: str) -> Settings:
    for key in given:
        field = plain(key)
        if field in OWN:
            raise UserError(f"{place}.{key}: the comparison sets it itself.")
        if field not in TrainConfig.model_fields:
            near = meant(field, list(TrainConfig.model_fields))
            more = f"; did you mean {near.replace('_', '-')}?" if near else " (ukemi train --help lists them)."
            raise UserError(f"{place}.{key} is no setting of `ukemi train`{more}")
    return pairs(given)


def _texts(
    read: Callable[[list[str]], Any], meta: str, nargs: int | Literal["*"] = 1
) -> tyro.constructors.PrimitiveConstructorSpec[Any]:
    """How flags give what files give as a table."""
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=nargs,
        metavar=meta,
        instance_from_str=read,
        is_instance=lambda given: isinstance(given, dict | Method),
        str_from_instance=lambda given: (
            [given.name] if isinstance(given, Method) else [f"{key}={value}" for key, value in given.items()]
        ),
    )


AnyMethod = Annotated[Method, BeforeValidator(method), _texts(lambda given: Method(**method(given[0])), "METHOD")]
AnyAttack = Annotated[Settings, BeforeValidator(attack), _texts(lambda given: attack(given[0]), "ATTACK")]
TrainSettings = Annotated[Settings, BeforeValidator(pairs), _texts(pairs, "SETTING=VALUE …", "*")]


class Engine(Schema):
    """Who runs the runs."""

    engine: Literal["local", "ray"] = "local"
    """local: this machine; ray: a Ray cluster, every run a task that is retried from its checkpoint."""
    address: str | None = None
    """With --engine ray: the cluster's HOST:PORT, or auto; default: $RAY_ADDRESS, else a Ray on this machine alone."""
    cpus_per_run: Annotated[Number, Field(gt=0)] = 1.0
    """With --engine ray: CPUs that a run takes."""
    gpus_per_run: Annotated[Number, Field(ge=0)] | None = None
    """With --engine ray: GPUs that a run takes, 0.5 for two runs on one; default: 1 where the cluster has any."""
    retries: int = Field(3, ge=0)
    """With --engine ray: how often a run whose worker died or failed is taken up again."""
    jobs: int = Field(1, ge=1)
    """With the local engine: runs at a time, each in a process of its own."""

    @model_validator(mode="after")
    def _engines_own(self) -> "Engine":
        default = Engine.model_fields
        others = ("jobs",) if self.engine == "ray" else ("address", "cpus_per_run", "gpus_per_run", "retries")
        for name in others:
            if getattr(self, name) != default[name].default:
                said = name.replace("_", "-")
                other = "local" if self.engine == "ray" else "ray"
                raise UserError(f"{said}: it belongs to --engine {other}, but the engine is {self.engine}.")
        return self


ENGINE = frozenset(Engine.model_fields)
"""settings that change where runs are made, and nothing of what they are"""


class CompareConfig(Engine):
    """Trains every method on every case with every seed and says which one is best, by how much, and how sure that is.

    What is done already is not done again; what was interrupted goes on. Start it twice, on one machine or on several
    that share the folder, and the work is divided.
    """

    title: str = "Comparison"
    """Stands above the page."""
    methods: tuple[AnyMethod, ...] = tuple(Method(**method(name)) for name in ("random", "worst-of", "sensei"))
    """Augmenters by name, settings behind commas: worst-of,k=20 or ukemi,edge=0.5,objective=cross-entropy; name=W-20 is
    how tables call it. Or tables with a name and any settings of `ukemi train` ([[methods]], TOML only)."""
    baseline: str | None = None
    """The method that the others are compared with; default: the first."""
    data: tuple[str, ...] = ("fashion-mini",)
    """Data sets, as for `ukemi train`."""
    models: tuple[str, ...] = ("demo-cnn",)
    """Networks, as for `ukemi train`; each is trained on each data set."""
    cases: Fixed[tuple[Case, ...]] = ()
    """Instead of data x models: tables of data, model and whatever else all methods share there (TOML only)."""
    seeds: int = Field(3, ge=1)
    """Train so many times, from --seed on; 5 where a claim rests on it."""
    seed: int = Field(0, ge=0, lt=2**31)
    """The first seed."""
    train: TrainSettings = {}
    """Settings of `ukemi train` for all: epochs=5 flips=true; in TOML the table [train]."""
    grids: tuple[str, ...] = ("t3-81",)
    """Robust accuracy is measured on each of these; the first one decides (see `ukemi evaluate --grid`). A space of
    your own, package.module:SPACE, has three levels."""
    images: int | None = Field(None, ge=1)
    """Measure on this many test images only, always the same."""
    decides: Literal["robust", "accuracy", "attacked", "robustness"] = "robust"
    """The measure by which methods are ranked: robust accuracy on the first grid, plain accuracy, accuracy under the
    attacks, or STYX's robustness, 1 - fooled / recognised."""
    attacks: tuple[AnyAttack, ...] = ()
    """Also attack the models, white-box: attacks by name, settings behind commas, as fgsm,epsilon=8/255 or
    deepfool,steps=10 (see `ukemi attack`); styx is STYX's whole grid. In TOML also tables."""
    attack_images: int = Field(200, ge=1)
    """Attack this many test images, always the same."""
    equal_cost: bool = False
    """Give every method the same number of forward and backward passes, by its epochs: as many as the dearest has."""
    cost_first: bool = False
    """Begin the answer with what each method costs, not with which holds best."""
    device: str = "auto"
    """cpu, cuda, …; auto takes a GPU where there is one."""
    data_folder: Path | None = None
    """Where data sets lie; default: $UKEMI_DATA, ./data, ~/.cache/ukemi."""
    out: Path = Path("comparison")
    """Where table, page and comparison.json are written."""
    runs: Path | None = None
    """Where the runs lie, in folders named by their settings; comparisons may share it. Default: OUT/runs."""

    @model_validator(mode="after")
    def _fits(self) -> "CompareConfig":
        names = [one.name for one in self.methods]
        if not names:
            raise UserError("methods: at least one is needed.")
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"methods: {name!r} is there twice; each needs a name of its own.")
        if self.baseline is not None and self.baseline not in names:
            raise UserError(f"baseline: {self.baseline!r} is none of the methods: {', '.join(names)}.")
        if not self.cases and not (self.data and self.models):
            raise UserError("data: at least one data set and one model are needed.")
        for field in ("data", "models"):
            if self.cases and getattr(self, field) != CompareConfig.model_fields[field].default:
                raise UserError(f"{field}: the cases name their own; give [[cases]], or data and models.")
        for case in self.cases:
            for name in case.printed.keys() - {plain(one) for one in names}:
                raise UserError(f"cases.{case.title()}.printed: {name!r} is none of the methods: {', '.join(names)}.")
        for grid in (*self.grids, *(grid for case in self.cases for grid in case.grids)):
            _check_grid(grid)
        if not self.grids:
            raise UserError("grids: at least one is needed.")
        _checked(self.train, "train")
        for one in self.methods:
            _known_augmenter(one)
        if self.decides in ("attacked", "robustness") and not self.attack_groups():
            raise UserError(f"decides: {self.decides} needs an attack; give --attacks.")
        self.attack_groups()
        return self

    def chosen_cases(self) -> tuple[Case, ...]:
        return self.cases or tuple(Case(data=data, model=model) for data in self.data for model in self.models)

    def printed(self, case: Case) -> dict[str, float]:
        """What a paper prints, by the methods' names."""
        known = {plain(one.name): one.name for one in self.methods}
        return {known[name]: figure for name, figure in case.printed.items()}

    def chosen_baseline(self) -> str:
        return self.baseline or self.methods[0].name

    def attack_groups(self) -> dict[str, list[AttackConfig]]:
        """Attacks by the name that their measure has."""
        groups: dict[str, list[AttackConfig]] = {}
        for one in self.attacks:
            if one == {"attack": STYX}:
                groups |= styx_grid()
            else:
                made = AttackConfig(**one)
                groups[made.title()] = [made]
        return groups


def _check_grid(name: str) -> None:
    if ":" not in name and name not in GRIDS:
        raise UserError(f"grids: {name!r} is none of {', '.join(GRIDS)} nor package.module:SPACE.")
    with field_called("grids", "space"):
        named_grid(name, (32, 32))  # a space of one's own may not be there, or have too many variants


def _known_augmenter(one: Method) -> None:
    told = one.settings().get("augmenter", {})
    if not isinstance(told, str | dict):
        raise UserError(f"methods.{one.name}.augmenter: a name or a table is needed, but {told!r} was given.")
    name = told if isinstance(told, str) else told.get("name")
    if name is not None:
        check_known("methods", name, AUGMENTERS)

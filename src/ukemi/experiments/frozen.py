"""DARE's ground (paper 4): a base run on half of the training images, and frozen adversarial sets, in blocks."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from time import perf_counter
from typing import Any, ClassVar, Literal, TypeVar

import torch
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from ukemi.attacks.config import AttackConfig
from ukemi.attacks.fgsm import fgsm
from ukemi.attacks.iterative import bim, pgd
from ukemi.attacks.minimal import minimal
from ukemi.data import Data, in_a_row
from ukemi.experiments.place import Place, trained
from ukemi.measures import recognised
from ukemi.measures.attacks import under_attack
from ukemi.repairs import ground_of
from ukemi.schema import Schema
from ukemi.training import Run
from ukemi.training.checkpoints import write_whole
from ukemi.training.sets import Recorder, as_data, read_set, write_set
from ukemi.training.setup import fixed_subset, load_sets, trained_model

MINIMAL = ("bim", "cw", "fgsm", "jsma", "pgd")
FIXED = ("bim-8", "fgsm-8", "pgd-8")
BLOCK = 1000
"""images of a set that are attacked and kept at once"""
SHIFTS = [
    {"name": name, "low": -0.125, "high": 0.125, "identity": 0.0, "step": 0.03125}
    for name in ("translate_x", "translate_y")
]
"""DARE's code shifts CIFAR-10's images by up to an eighth"""
T = TypeVar("T")


class Grids(Schema):
    """The learning rates that are tried."""

    place: ClassVar[str] = "sizes.grids"
    dare: tuple[float, ...] = (1e-6, 1e-5, 1e-4)
    adversarial: tuple[float, ...] = (1e-5, 1e-4, 1e-3)


class DareSizes(Schema):
    """How much is done in every cell: as in the paper, but for the steps of C&W and what is attacked white-box."""

    place: ClassVar[str] = "sizes"
    epochs: int = Field(200, ge=3)
    """of the base run; of 3 the history is one epoch beside the last"""
    tuning: int = Field(20000, ge=1)
    """images that tune, for every method; the paper: the training set's size less 10,000, where there are so many"""
    choosing: int = Field(5000, ge=1)
    """adversarial images that choose in a grid"""
    test: int = Field(5000, ge=1)
    """frozen images per attack"""
    white_box: int = Field(1000, ge=1)
    """test images that are attacked on each model itself"""
    tune_epochs: int = Field(10, ge=1)
    """a state after each is in the grid, for every learning rate"""
    batch_size: int = Field(128, ge=1)
    carlini_steps: int = Field(1000, ge=1)
    """released: 10,000, with an early abort that ends most searches long before"""
    carlini_searches: int = Field(9, ge=1)
    frozen_from: Literal["test", "train"] = "test"
    """of which images frozen sets are made; train: those that the base run was trained on, as the released code does"""
    grids: Grids = Grids()

    @model_serializer(mode="wrap")
    def _plain(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Test images go without saying: folders and lines keep the names that they had before there was a choice."""
        told: dict[str, Any] = usual(self)
        return {name: value for name, value in told.items() if (name, value) != ("frozen_from", "test")}

    def as_json(self) -> dict[str, Any]:
        told = self.model_dump(mode="json")
        return {name if name == "grids" else name.replace("_", "-"): value for name, value in told.items()}


class Frozen:
    """A base run and its adversarial sets; each is made once and kept, with the seconds that it took."""

    def __init__(self, place: Place) -> None:
        self.place, self.seed, self.folder = place, place.seed, place.folder
        self.sizes: DareSizes = place.sizes
        shifts: dict[str, Any] = {"augmenter": {"name": "random"}, "genes": SHIFTS} if place.cell.shifts else {}
        epochs = {"epochs": self.sizes.epochs, "validate_every": self.sizes.epochs}
        self.config = place.settings(**epochs, validation=0.5, history="half", **shifts)

    @cached_property
    def run(self) -> Run:
        found = Run(self.config.folder())
        return found if found.weights_path.exists() else self.timed("base", lambda: trained(self.config))

    @cached_property
    def ground(self) -> Any:
        return ground_of(self.run)

    @cached_property
    def test(self) -> Data:
        return trained_model(self.run, self.config, load_sets(self.config).test)[1].to(self.config.chosen_device())

    @property
    def frozen_images(self) -> Data:
        """What frozen sets are made of."""
        return self.test if self.sizes.frozen_from == "test" else self.ground.train

    def timed(self, name: str, work: Callable[[], T]) -> T:
        """Does a piece of work and keeps how long it took."""
        self.place.before(f"{self.place.name} {self.seed} {name}")
        began = perf_counter()
        found = work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        known = self.seconds() | {name: round(perf_counter() - began, 3)}
        write_whole(self.folder / "seconds.json", json.dumps(known, indent=1).encode())
        return found

    def seconds(self) -> dict[str, float]:
        path = self.folder / "seconds.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def attack(self, name: str) -> tuple[AttackConfig, Callable[..., Any]]:
        """The released settings, made minimal per image, or a budget of 8/255 in linf."""
        many = 0.3 * prod((self.test.channels, *self.test.size))
        carlini = {"steps": self.sizes.carlini_steps, "searches": self.sizes.carlini_searches}
        told = {
            "bim": AttackConfig(attack="bim", norm="l1", epsilon=many, steps=10),
            "cw": AttackConfig(attack="carlini-wagner", **carlini),
            "fgsm": AttackConfig(attack="fgsm", epsilon=1.0),
            "jsma": AttackConfig(attack="jsma", theta=0.1, gamma=0.2),
            "pgd": AttackConfig(attack="pgd", epsilon=0.3, steps=40),
            "bim-8": AttackConfig(attack="bim", epsilon=8 / 255, steps=10),
            "fgsm-8": AttackConfig(attack="fgsm", epsilon=8 / 255),
            "pgd-8": AttackConfig(attack="pgd", epsilon=8 / 255, steps=40),
        }[name]
        nearest: dict[str, Callable[..., Any]] = {
            "bim": partial(minimal, bim, norm="l1", high=many, steps=10),
            "fgsm": partial(minimal, fgsm, high=1.0),
            "pgd": partial(minimal, pgd, high=0.3, steps=40, random_start=False),
        }
        return told, nearest.get(name) or told.made(self.seed)

    def images_for(self, part: str) -> Data:
        """Images that the base model recognises, a fixed choice."""
        source = {"test": self.frozen_images, "tuning": self.ground.mining, "choosing": self.ground.selection}[part]
        known = source.take(recognised(self.ground.model, source).nonzero().flatten().to(source.labels.device))
        return fixed_subset(known, getattr(self.sizes, part), self.seed)

    def adversarial(self, name: str, part: str) -> Data:
        """The fooling images of one attack; empty where it fools nobody."""
        told, attack = self.attack(name)
        few: Data | None = None
        blocks, split = [], self.sizes.frozen_from if part == "test" else "train"
        for at in range(-(-getattr(self.sizes, part) // BLOCK)):
            path = self.folder / "sets" / f"{part}-{name}-{at}.safetensors"
            if not path.exists():
                few = self.images_for(part) if few is None else few
                rows = torch.arange(len(few))[at * BLOCK : (at + 1) * BLOCK]
                if not len(rows):
                    break
                some, recorder = few.take(rows.to(few.labels.device)), Recorder(attack)
                self.timed(f"{part} {name} {at}", partial(under_attack, self.ground.model, some, recorder))
                made = recorder.set(
                    self.ground.model, some, told, data=self.place.cell.data, split=split, seed=self.seed
                )
                write_set(path, replace(made, notes={"minimal": name in MINIMAL}))
            found = read_set(path)
            if bool(found.success.any()):
                blocks.append(as_data(found))
        none = self.test.take(torch.arange(0, device=self.test.labels.device))
        return in_a_row(blocks or [none]).to(self.config.chosen_device())

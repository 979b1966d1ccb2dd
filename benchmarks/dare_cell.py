"""One cell and seed of `benchmarks/dare.py`: each piece of work is made once and kept in a folder."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import nn

from ukemi.activations import grad_cam
from ukemi.attacks.config import AttackConfig
from ukemi.attacks.fgsm import fgsm
from ukemi.attacks.iterative import bim, pgd
from ukemi.attacks.minimal import minimal
from ukemi.data import Data, as_float
from ukemi.measures import accuracy
from ukemi.measures.attacks import under_attack
from ukemi.models.inference import default_chunk, home_of, logits, right
from ukemi.repairs import Dare, LimitMissed, Mined, dare, fine_tune_grid, ground_of, mine, mine_at_random, null_control
from ukemi.repairs.compared import distances
from ukemi.repairs.more import beside, pixels, write_tuned
from ukemi.repairs.tuning import target_layer
from ukemi.reports.pictures import nine_maps
from ukemi.slicing import Slices, read_slices, slices_of, write_slices
from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint, write_checkpoint, write_whole
from ukemi.training.sets import Recorder, as_data, read_set, write_set
from ukemi.training.setup import fixed_subset, load_sets, trained_model

MINIMAL = ("bim", "cw", "fgsm", "jsma", "pgd")
FIXED = ("bim-8", "fgsm-8", "pgd-8")
BLOCK = 1000
"""images of a set that are attacked and kept at once"""
T = TypeVar("T")


class OutOfTime(Exception):
    """No further piece of work is begun."""


class Watch:
    def __init__(self, seconds: float) -> None:
        self.ends = perf_counter() + seconds

    def check(self, piece: str) -> None:
        if perf_counter() > self.ends:
            raise OutOfTime(piece)


class Cell:
    """A base run, its frozen sets, its tuned models."""

    def __init__(
        self,
        about: dict[str, Any],
        sizes: dict[str, Any],
        seed: int,
        folder: Path,
        genes: list[dict[str, Any]],
        data: Path | None,
        device: str,
        watch: Watch,
    ) -> None:
        self.about, self.sizes, self.seed, self.folder, self.watch = about, sizes, seed, folder, watch
        shifts = {"augmenter": {"name": "random"}, "genes": genes} if genes else {}
        told = {name.replace("-", "_"): value for name, value in about["train"].items()}
        self.config = TrainConfig(
            data=about["data"],
            data_folder=data,
            model=about["model"],
            epochs=sizes["epochs"],
            seed=seed,
            validation=0.5,
            validate_every=sizes["epochs"],
            history="half",
            device=device,
            out=folder / "base",
            **told,
            **shifts,
        )

    def line(self, method: str) -> dict[str, Any]:
        """Everything that is known of a method: how it was chosen, what it costs, how it holds."""
        found = self.made(method)
        if found is None:
            return {"missed": True, "seconds": self.seconds_of(method)}
        self.watch.check(f"measuring {method}")
        return {"missed": False, **self.measured(found, method), "seconds": self.seconds_of(method)}

    # the base run and what is made of it

    @cached_property
    def run(self) -> Run:
        found = Run(self.folder / "base")
        if not found.weights_path.exists():
            begun = (found.folder / "config.toml").exists()
            self.timed("base", lambda: train(self.config, resume=begun, quiet=True))
        return found

    @cached_property
    def ground(self) -> Any:
        return ground_of(self.run)

    @cached_property
    def test(self) -> Data:
        return trained_model(self.run, self.config, load_sets(self.config).test)[1].to(self.config.chosen_device())

    def timed(self, name: str, work: Callable[[], T]) -> T:
        """Does a piece of work and keeps how long it took."""
        self.watch.check(f"{self.about['name']} {self.seed} {name}")
        began = perf_counter()
        found = work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.note(name, perf_counter() - began)
        return found

    def note(self, name: str, seconds: float) -> None:
        known = self.seconds() | {name: round(seconds, 3)}
        write_whole(self.folder / "seconds.json", json.dumps(known, indent=1).encode())

    def seconds(self) -> dict[str, float]:
        path = self.folder / "seconds.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def mined(self, kind: Callable[..., Mined]) -> Mined:
        """Targets over all that was kept aside."""
        path, aside = self.folder / f"{kind.__name__}.safetensors", self.ground.aside
        layer = target_layer(self.ground.model)
        if not path.exists():
            more = {"seed": self.seed} if kind is mine_at_random else {}
            found = self.timed(
                kind.__name__, lambda: kind(self.ground.model, self.ground.history, aside, layer, **more)
            )
            parts = {name: getattr(found, name) for name in ("targets", "epochs", "before", "after")}
            write_checkpoint(path, parts | {"index": found.data.index}, {})
        kept = {name: one.to(aside.labels.device) for name, one in read_checkpoint(path).tensors.items()}
        rows = torch.isin(aside.index, kept.pop("index")).nonzero().flatten()
        return Mined(data=aside.take(rows), searched=len(aside), **kept)

    def slices(self, q: float) -> Slices:
        path = self.folder / f"slices-{q:g}.safetensors"
        if not path.exists():
            found = self.timed(f"slices {q:g}", lambda: slices_of(self.ground.model, self.ground.train, q=q))
            write_slices(path, found, contributions=False)
        return read_slices(path).to(self.config.chosen_device())

    # adversarial sets, in blocks

    def attack(self, name: str) -> tuple[AttackConfig, Callable[..., Any]]:
        """The released settings, made minimal per image, or a budget of 8/255 in linf."""
        many = 0.3 * prod((self.test.channels, *self.test.size))
        carlini = {"steps": self.sizes["carlini-steps"], "searches": self.sizes["carlini-searches"]}
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
        source = {"test": self.test, "tuning": self.ground.mining, "choosing": self.ground.selection}[part]
        model = self.ground.model
        chunk, device = default_chunk((source.channels, *source.size), home_of(model)), home_of(model)
        order = torch.arange(len(source)).split(16 * chunk)
        known = [right(logits(model, one.images, chunk), one.labels) for one in source.batches(order, device)]
        recognised = source.take(torch.cat(known).nonzero().flatten().to(source.labels.device))
        return fixed_subset(recognised, self.sizes[part], self.seed)

    def adversarial(self, name: str, part: str) -> Data:
        """The fooling images of one attack."""
        told, attack = self.attack(name)
        few: Data | None = None
        blocks, split = [], "test" if part == "test" else "train"
        for at in range(-(-self.sizes[part] // BLOCK)):
            path = self.folder / "sets" / f"{part}-{name}-{at}.safetensors"
            if not path.exists():
                few = self.images_for(part) if few is None else few
                rows = torch.arange(len(few))[at * BLOCK : (at + 1) * BLOCK]
                if not len(rows):
                    break
                some, recorder = few.take(rows.to(few.labels.device)), Recorder(attack)
                self.timed(f"{part} {name} {at}", partial(under_attack, self.ground.model, some, recorder))
                made = recorder.set(self.ground.model, some, told, data=self.about["data"], split=split, seed=self.seed)
                write_set(path, replace(made, notes={"minimal": name in MINIMAL}))
            found = read_set(path)
            if bool(found.success.any()):
                blocks.append(as_data(found))
        return joined(blocks).to(self.config.chosen_device())

    # methods

    def made(self, method: str) -> nn.Module | None:
        """The tuned model; None where the accuracy limit is missed."""
        run = self.ground.run
        if method == "original":
            return self.ground.model
        folder = self.folder / method.replace(" ", "-")
        if (folder / "missed").exists():
            return None
        if not Run(folder).weights_path.exists():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                self.tune(method, run, folder)
            except LimitMissed:
                folder.mkdir(parents=True)
                (folder / "missed").touch()
                return None
        found = Run(folder)
        return trained_model(found, Run.config_of(folder), self.test)[0].to(self.config.chosen_device()).eval()

    def tune(self, method: str, run: Run, folder: Path) -> None:
        if method.startswith("null"):
            if self.made("dare") is None:
                raise LimitMissed("there is no tuned model to be like")
            kind: Any = method.removeprefix("null ")
            like = Run(self.folder / "dare")
            self.timed(method, lambda: null_control(run, like, kind=kind, seed=self.seed, out=folder, quiet=True))
        elif method.startswith("adv "):
            self.adversarially(method, folder)
        else:
            self.dare(method, folder)

    def dare(self, method: str, folder: Path) -> None:
        """Chosen in the grid by accuracy on all five minimal sets of the selection images."""
        q = float(method.removeprefix("q ")) if method.startswith("q ") else 95.0
        told = Dare(
            variant="dare" if method.startswith("q ") else method,
            q=q,
            learning_rates=self.sizes["grids"]["dare"],
            epochs=self.sizes["tune-epochs"],
            batch_size=self.sizes["batch-size"],
            samples=self.sizes["tuning"],
        )
        choosing = joined([self.adversarial(name, "choosing") for name in MINIMAL])
        mined = self.mined(mine_at_random if method == "rand" else mine)
        slices = self.slices(q) if told.sliced else None
        work = partial(dare, self.run, told, out=folder, ground=self.ground, mined=mined, slices=slices)
        self.timed(method, partial(work, score=lambda model: accuracy(model, choosing, home_of(model))[0]))

    def adversarially(self, method: str, folder: Path) -> None:
        """Every layer trained on the attack's fooling images, with as many clean ones of the base run beside them or
        without; chosen in a grid of the same size by accuracy on the attack's own set of the selection images."""
        name = method.split()[1]
        data, choosing = self.adversarial(name, "tuning"), self.adversarial(name, "choosing")
        if method.endswith("+ clean"):
            data = joined([data, fixed_subset(self.ground.train, len(data), self.seed)])
        rates = self.sizes["grids"]["adversarial"]
        told = {"learning_rates": rates, "epochs": self.sizes["tune-epochs"], "batch_size": self.sizes["batch-size"]}
        score: Callable[[nn.Module], float] = lambda model: accuracy(model, choosing, home_of(model))[0]  # noqa: E731
        work = partial(fine_tune_grid, self.ground.model, data, self.ground.selection, score=score, seed=self.seed)
        tuned = self.timed(method, partial(work, **told))
        best = tuned.best
        if best is None:
            raise LimitMissed("every state lost too much accuracy")
        config = beside(
            self.config, self.run, folder, epochs=best.epoch, learning_rate=best.learning_rate, optimiser="adam"
        )
        about = {"repair": "adversarial", "learning_rate": best.learning_rate, "epochs": best.epoch}
        about |= {"accuracy_before": tuned.accuracy, "accuracy_after": best.accuracy, "samples": len(data)}
        write_tuned(config, tuned.state, self.ground.train.classes, [], about)

    # measures

    def measured(self, model: nn.Module, method: str) -> dict[str, Any]:
        device = home_of(model)
        line: dict[str, Any] = {"clean": accuracy(model, self.test, device)[0], "frozen": {}, "images": {}}
        for kind, names in (("minimal", MINIMAL), ("fixed", FIXED)):
            sets = {name: self.adversarial(name, "test") for name in names}
            line["frozen"][kind] = {name: accuracy(model, one, device)[0] for name, one in sets.items()}
            line["images"] |= {name: len(one) for name, one in sets.items()}
        line["white_box"] = None if method.startswith("q ") else self.white_box(model)
        about = self.folder / method.replace(" ", "-") / "repair.json"
        if about.exists():
            said = json.loads(about.read_text())
            wanted = ("learning_rate", "epochs", "accuracy_before", "accuracy_after", "samples", "mined", "searched")
            line["chosen"] = {name: said[name] for name in (*wanted, "key_neurons", "key_synapses") if name in said}
        return line

    def white_box(self, model: nn.Module) -> dict[str, float]:
        few = fixed_subset(self.test, self.sizes["white-box"], self.seed)
        stepped, near = (under_attack(model, few, self.attack(name)[0].made(self.seed)) for name in ("pgd-8", "cw"))
        return {
            "pgd_accuracy": stepped.attacked_accuracy,
            "pgd_success": 1 - stepped.robustness,
            "cw_success": 1 - near.robustness,
            "cw_distance": float(distances(near).mean()),
        }

    def seconds_of(self, method: str) -> dict[str, float]:
        """The paper's Table 5: generate and train, or mine, slice and tune; the whole grid is in the tuning."""
        known = self.seconds()
        if method.startswith("adv "):
            name = method.split()[1]
            made = sum(value for piece, value in known.items() if piece.startswith(f"tuning {name} "))
            return {"generate": made, "tune": known.get(method, 0.0)}
        if method == "original":
            return {"train": known.get("base", 0.0)}
        if method.startswith("null"):
            return {"tune": known.get(method, 0.0)}
        q = method.removeprefix("q ") if method.startswith("q ") else "95"
        sliced = 0.0 if method in ("dare-s", "dare-sl") else known.get(f"slices {q}", 0.0)
        mined = known.get("mine_at_random" if method == "rand" else "mine", 0.0)
        return {"mine": mined, "slice": sliced, "tune": known.get(method, 0.0)}

    def figure(self, path: Path) -> None:
        """Figure 1 with the first test image that C&W and BIM both turned; each map is for the model's own answer."""
        models = {name: self.made(method) for name, method in FIGURE.items()}
        there = {name: model for name, model in models.items() if model is not None}
        turned = {name: self.adversarial(name, "test") for name in ("cw", "bim")}
        both = torch.isin(turned["cw"].index, turned["bim"].index)
        index = turned["cw"].index[both][0]
        parts = {"clean": self.test} | turned
        images = torch.cat([as_float(part.images[part.index == index][:1]) for part in parts.values()])
        label = self.test.labels[self.test.index == index].expand(len(images))
        maps, said = [], []
        for model in there.values():
            answers = logits(model, images, len(images)).argmax(1)
            maps.append(grad_cam(model, images, answers).cpu())
            said.append([self.test.classes[int(one)] for one in answers])
        names = {"cw": "C&W", "bim": "BIM"}
        rows = [f"{names.get(name, name)}: {self.test.classes[int(label[0])]}" for name in parts]
        path.parent.mkdir(parents=True, exist_ok=True)
        nine_maps(images.cpu(), torch.stack(maps, 1), rows, list(there), list(zip(*said, strict=True))).save(path)


FIGURE = {"original": "original", "tuned on C&W": "adv cw", "DARE": "dare"}


def joined(parts: Sequence[Data]) -> Data:
    """Several sets as one, in float pixels."""
    device = parts[0].labels.device
    images = torch.cat([as_float(pixels(part)).to(device) for part in parts])
    labels, index = (torch.cat([getattr(part, name).to(device) for part in parts]) for name in ("labels", "index"))
    return replace(parts[0], images=images, labels=labels, index=index)

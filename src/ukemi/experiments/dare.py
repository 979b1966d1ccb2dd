"""DARE (paper 4) as an experiment: every method tunes the base model, and what it makes is measured."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ukemi.data import Data, in_a_row
from ukemi.experiments.frozen import FIXED, MINIMAL, Frozen
from ukemi.measures import accuracy
from ukemi.measures.attacks import under_attack
from ukemi.models.inference import home_of
from ukemi.repairs import Dare, LimitMissed, Mined, dare, fine_tune_grid, mine, mine_at_random, null_control
from ukemi.repairs.compared import distances
from ukemi.repairs.more import REPAIR, beside, write_tuned
from ukemi.repairs.tuning import target_layer
from ukemi.slicing import Slices, read_slices, slices_of, write_slices
from ukemi.training import Run
from ukemi.training.checkpoints import read_checkpoint, write_checkpoint
from ukemi.training.setup import fixed_subset, trained_model

NULLS = ("null random", "null continued")
BASELINES = tuple(f"adv {name}" for name in MINIMAL)
MIXED = tuple(f"adv {name} + clean" for name in (*MINIMAL, "pgd-8"))
PARTS: dict[str, tuple[str, ...]] = {
    "effectiveness": ("original", "dare", *NULLS, *BASELINES, *MIXED, "dare-adv"),
    "variants": ("original", "dare", *NULLS, "dare-s", "dare-sl"),
    "share": (*(f"q {q}" for q in range(75, 101, 5)), *NULLS),
    "mining": ("original", "dare", *NULLS, "rand"),
    "efficiency": ("original", "dare", *BASELINES),
}
"""What each recipe of the paper tunes: RQ1, RQ2, the share q of RQ2, RQ3, RQ4."""
CHOSEN = ("learning_rate", "epochs", "accuracy_before", "accuracy_after", "samples", "mined", "searched")


class DareCell(Frozen):
    """One network with one seed: its tuned models."""

    @staticmethod
    def key(name: str, piece: str) -> dict[str, Any]:
        """How a line of results is called."""
        return {"cell": name, "method": piece}

    def line(self, method: str) -> dict[str, Any]:
        """Everything that is known of a method: how it was chosen, what it costs, how it holds."""
        found = self.made(method)
        if found is None:
            return {"sizes": self.sizes.as_json(), "missed": True, "seconds": self.seconds_of(method)}
        self.place.before(f"measuring {method}")
        measured = self.measured(found, method)
        return {"sizes": self.sizes.as_json(), "missed": False, **measured, "seconds": self.seconds_of(method)}

    def mined(self, kind: Callable[..., Mined]) -> Mined:
        """Targets over all that was kept aside."""
        path, aside = self.folder / f"{kind.__name__}.safetensors", self.ground.aside
        layer = target_layer(self.ground.model)
        if not path.exists():
            more = {"seed": self.seed} if kind is mine_at_random else {}
            work = partial(kind, self.ground.model, self.ground.history, aside, layer, **more)
            found = self.timed(kind.__name__, work)
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

    def made(self, method: str) -> nn.Module | None:
        """The tuned model; None where the accuracy limit is missed."""
        if method == "original":
            return self.ground.model
        folder = self.folder_of(method)
        if (folder / "missed").exists():
            return None
        if not Run(folder).weights_path.exists():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                self.tune(method, folder)
            except LimitMissed:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "missed").touch()
                return None
        found = Run(folder)
        return trained_model(found, Run.config_of(folder), self.test)[0].to(self.config.chosen_device()).eval()

    def folder_of(self, method: str) -> Path:
        return self.folder / method.replace(" ", "-")

    def tune(self, method: str, folder: Path) -> None:
        run = self.ground.run
        if method.startswith("null"):
            if self.made("dare") is None:
                raise LimitMissed("there is no tuned model to be like")
            told: dict[str, Any] = {
                "kind": method.removeprefix("null "),
                "seed": self.seed,
                "out": folder,
                "quiet": True,
            }
            self.timed(method, lambda: null_control(run, Run(self.folder_of("dare")), **told))
        elif method.startswith("adv "):
            self.adversarially(method, folder)
        else:
            self.dare(method, folder)

    def dare(self, method: str, folder: Path) -> None:
        """Chosen in the grid by accuracy on all five minimal sets of the selection images."""
        most = len(self.mined(mine).among(self.ground.mining))  # twins and random targets would make more of them
        q = float(method.removeprefix("q ")) if method.startswith("q ") else 95.0
        told = Dare(
            variant="dare" if method.startswith("q ") else method,
            q=q,
            learning_rates=self.sizes.grids.dare,
            epochs=self.sizes.tune_epochs,
            batch_size=self.sizes.batch_size,
            samples=max(1, min(self.sizes.tuning, most)),
        )
        choosing = in_a_row([self.adversarial(name, "choosing") for name in MINIMAL])
        mined = self.mined(mine_at_random if method == "rand" else mine)
        slices = self.slices(q) if told.sliced else None
        work = partial(dare, self.run, told, out=folder, ground=self.ground, mined=mined, slices=slices)
        self.timed(method, partial(work, score=partial(_score, choosing)))

    def adversarially(self, method: str, folder: Path) -> None:
        """Every layer trained on the attack's fooling images, with as many clean ones of the base run beside them or
        without; chosen in a grid of the same size by accuracy on the attack's own set of the selection images."""
        name = method.split()[1]
        data, choosing = self.adversarial(name, "tuning"), self.adversarial(name, "choosing")
        if not len(data):
            raise LimitMissed("the attack fools nobody")
        if method.endswith("+ clean"):
            data = in_a_row([data, fixed_subset(self.ground.train, len(data), self.seed)])
        told: dict[str, Any] = {"learning_rates": self.sizes.grids.adversarial, "epochs": self.sizes.tune_epochs}
        work = partial(fine_tune_grid, self.ground.model, data, self.ground.selection, seed=self.seed, **told)
        work = partial(work, batch_size=self.sizes.batch_size)
        tuned = self.timed(method, partial(work, score=partial(_score, choosing)))
        best = tuned.best
        if best is None:
            raise LimitMissed("every state lost too much accuracy")
        rate = {"learning_rate": best.learning_rate, "epochs": best.epoch}
        config = beside(self.config, self.run, folder, optimiser="adam", **rate)
        about = {"repair": "adversarial", **rate, "samples": len(data)}
        about |= {"accuracy_before": tuned.accuracy, "accuracy_after": best.accuracy}
        write_tuned(config, tuned.state, self.ground.train.classes, [], about)

    def measured(self, model: nn.Module, method: str) -> dict[str, Any]:
        device = home_of(model)
        line: dict[str, Any] = {"clean": accuracy(model, self.test, device)[0], "frozen": {}, "images": {}}
        for kind, names in (("minimal", MINIMAL), ("fixed", FIXED)):
            sets = {name: self.adversarial(name, "test") for name in names}
            line["frozen"][kind] = {name: accuracy(model, one, device)[0] for name, one in sets.items() if len(one)}
            line["images"] |= {name: len(one) for name, one in sets.items()}
        line["white_box"] = self.white_box(model)
        about = self.folder_of(method) / REPAIR
        if about.exists():
            said = json.loads(about.read_text())
            line["chosen"] = {name: said[name] for name in (*CHOSEN, "key_neurons", "key_synapses") if name in said}
        return line

    def white_box(self, model: nn.Module) -> dict[str, float]:
        few = fixed_subset(self.test, self.sizes.white_box, self.seed)
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


def _score(choosing: Data, model: nn.Module) -> float:
    return accuracy(model, choosing, home_of(model))[0] if len(choosing) else 0.0

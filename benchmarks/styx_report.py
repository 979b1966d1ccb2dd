"""The lines of `benchmarks/styx.py` as a Markdown page."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

Line = dict[str, Any]
LIMIT = 1.1
"""STYX's training time over traditional training's, at most"""
MEAN = "mean of the four"
"""what the paper plots: the mean over the models of its four mutators"""
CLOCKED = "[styx-time-gpu.md](styx-time-gpu.md), [styx-time-cpu.md](styx-time-cpu.md).\n"
BEYOND = (("pgd", "robustness", 100), ("carlini-wagner", "distance", 1), ("jsma", "robustness", 100))
"""of each attack that the paper did not use: what is shown, times what"""

WHY = """The paper's figures are higher, mostly on the MLPs. A likely reason: its tool attacks Keras models, whose loss
clips probabilities near 0 and 1; behind the clip there is no gradient, and images that a model is sure of are not moved
at all. Ours follow the log odds of the logits, which keep their gradient. The same network attacked both ways:
[styx-masking-cpu.md](styx-masking-cpu.md).
In l1 ours are other attacks too: a step is the steepest one, which moves the pixels of largest slope first; ART stepped
along the gradient at that time, which reaches less with the same budget.
"""


def text(lines: Sequence[Line], tables: dict[str, Any], sizes: Sequence[str]) -> str:
    """A part for each size of the experiment: lines of different sizes are never mixed."""
    said = "# STYX beside traditional and adversarial training\n\nMade by `python benchmarks/styx.py report` from the"
    said += " lines that `python benchmarks/styx.py run` wrote; settings and the paper's figures are in"
    said += " `benchmarks/styx.toml`. Test images, white-box, robustness as in the paper: 1 - fooled / recognised, in"
    said += " percent, mean over the released code's grid of settings (30 FGSM, 30 BIM, 10 DeepFool). Mean ± standard"
    said += " deviation over n seeds; in brackets what the paper prints, or (robustness) what its Figure 4 shows to"
    said += " the eye.\n\n" + WHY
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        found.setdefault(tuple(line[name] for name in sizes), []).append(line)
    for size, own in found.items():
        said += _Part(own, tables, dict(zip(sizes, size, strict=True))).text()
    return said if found else said + "\nEvery cell is open.\n"


class _Part:
    """The lines of one size."""

    def __init__(self, lines: Sequence[Line], tables: dict[str, Any], size: dict[str, Any]) -> None:
        self.size, self.tables, self.lines = size, tables, list(lines)
        self.attacks, self.mutators, self.models = tables["attacks"], tables["mutators"], tables["models"]
        self.by = {(line["model"], line["method"], line["seed"]): line for line in lines}

    def text(self) -> str:
        size = self.size
        epochs = "the paper's epochs" if size["epochs_changed"] is None else f"{size['epochs_changed']} epochs"
        if not size["images"]:
            return f"\n## {epochs}, time alone\n" + self._clocks() + self._times() + self._machines()
        said = f"\n## {epochs}, {size['images']} images for the grid and PGD, {size['few']} for C&W and JSMA\n"
        for model in self.models:
            if any(line["model"] == model for line in self.lines):
                said += self._model(model)
        return said + self._printed() + self._wins() + self._times() + self._open() + self._machines()

    def _printed(self) -> str:
        """Which lines are less than whole."""
        seeds: dict[str, list[str]] = {}
        for line in self.lines:
            if line.get("printed"):
                seeds.setdefault(f"{line['model']}, {line['method']}", []).append(str(line["seed"]))
        if not seeds:
            return ""
        said = "\nOf some lines only what the command printed is known, to a tenth of a point: accuracy and the three"
        said += " attacks, not the norms, PGD, C&W and JSMA, which so have fewer seeds than n says, or none: "
        return said + "; ".join(f"{name}, seed {', '.join(own)}" for name, own in seeds.items()) + ".\n"

    def _machines(self) -> str:
        made = sorted({f"{line['device']}, torch {line['torch']}, commit {line['commit']}" for line in self.lines})
        return f"\nMachines: {'; '.join(made)}.\n"

    def _clocks(self) -> str:
        """Seconds of an epoch and, behind a plus, of the mutation, which is done once; the paper's for all epochs."""
        said = "\nSeconds of an epoch (median) + those of the mutation before the first.\n\n"
        methods = ["traditional", "adversarial", *self.mutators]
        said += f"| model | {' | '.join(_named(one, self.mutators) for one in methods)} | paper, a whole training |\n"
        said += "| --- " * (len(methods) + 2) + "|\n"
        for model in self.models:
            cells = []
            for method in methods:
                epoch, once = (
                    self._values(model, method, lambda line, name=name: line[name] if _alone(line) else None)
                    for name in ("epoch_seconds", "mutation_seconds")
                )
                cells.append(f"{self._cell(epoch, digits=2)} + {self._cell(once, digits=2)}" if epoch else "open")
            paper = self.models[model]["paper"]["seconds"]
            said += f"| {model} | {' | '.join(cells)} | {paper['traditional']}, STYX {paper['styx']} |\n"
        return said

    def _values(self, model: str, method: str, read: Callable[..., float | None]) -> list[float]:
        """One value per seed; of `MEAN`, those seeds that all four mutators have."""
        seeds = sorted({seed for one, _, seed in self.by if one == model})
        names = self.mutators if method == MEAN else [method]
        found = []
        for seed in seeds:
            own = [read(self.by[model, name, seed]) for name in names if (model, name, seed) in self.by]
            known = [value for value in own if value is not None and value == value]
            if len(known) == len(names):
                found.append(statistics.mean(known))
        return found

    def _cell(self, values: Sequence[float], paper: float | None = None, digits: int = 1) -> str:
        if not values:
            return ""
        said = f"{statistics.mean(values):.{digits}f}"
        said += f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
        return said if paper is None else f"{said} ({paper:g})"

    def _methods(self, model: str) -> list[str]:
        rows = [name for name, how in self.tables["methods"].items() if model in how.get("only", [model])]
        at = rows.index(self.mutators[-1]) + 1
        return [*rows[:at], MEAN, *rows[at:]]

    def _model(self, model: str) -> str:
        about, paper = self.models[model], self.models[model]["paper"]
        columns = ["method", "n", "accuracy", *(attack.upper() for attack in self.attacks)]
        columns[-1] = "DeepFool"
        columns += [f"PGD {about['pgd']}", "C&W, median L2", "JSMA", "seconds", "s / epoch"]
        said = f"\n### {model}\n\n| {' | '.join(columns)} |\n" + "| --- " * len(columns) + "|\n"
        for method in self._methods(model):
            theirs = {"traditional": "traditional", "adversarial": "adversarial", MEAN: "styx"}.get(method, "")
            n = self._values(model, method, lambda line: 1.0)
            if not n:
                said += f"| {_named(method, self.mutators)} | open |" + " |" * (len(columns) - 2) + "\n"
                continue
            accuracy = self._values(model, method, lambda line: 100 * line["accuracy"])
            cells = [self._cell(accuracy, paper["accuracy"] if theirs == "traditional" else None)]
            for attack in self.attacks:
                robust = self._values(model, method, lambda line, attack=attack: 100 * line["robustness"][attack])
                shown = paper[attack].get(theirs)
                cells.append(self._cell(robust, None if shown is None else 100 * shown))
            pgd, far, jsma = (
                self._values(model, method, lambda line, to=to: _read(line, "beyond", *to[:2], scale=to[2]))
                for to in BEYOND
            )
            cells += [self._cell(pgd), self._cell(far, digits=3)]
            seconds = self._values(model, method, lambda line: line["seconds"] if _alone(line) else None)
            epoch = self._values(model, method, lambda line: line["epoch_seconds"] if _alone(line) else None)
            cells += [self._cell(jsma), self._cell(seconds, paper["seconds"].get(theirs)), self._cell(epoch, digits=2)]
            said += f"| {_named(method, self.mutators)} | {len(n)} | {' | '.join(cells)} |\n"
        return said + self._norms(model)

    def _norms(self, model: str) -> str:
        """The grid per norm."""
        groups = list(dict.fromkeys(group for line in self.lines for group in line["robustness"]))
        groups = [group for group in groups if group not in self.attacks]
        said = f"\n| {model}, per norm | {' | '.join(groups)} |\n" + "| --- " * (1 + len(groups)) + "|\n"
        for method in self._methods(model):
            found = [
                self._values(model, method, lambda line, group=group: _read(line, "robustness", group, scale=100))
                for group in groups
            ]
            if found[0]:
                said += f"| {_named(method, self.mutators)} | {' | '.join(map(self._cell, found))} |\n"
        return said

    def _robust(self, model: str, method: str, attack: str) -> float | None:
        found = self._values(model, method, lambda line: 100 * line["robustness"][attack])
        return statistics.mean(found) if found else None

    def _wins(self) -> str:
        """How often the mean of the mutators is above the others, over models and attacks, and by how much."""
        paper = self.tables["paper"]
        said = "\n### Wins and gains of STYX (mean of the four mutators)\n\n"
        said += "| attack | models | above traditional | above the better of traditional and adversarial | gain over"
        said += " traditional, points | the paper's gain |\n" + "| --- " * 6 + "|\n"
        totals = [0, 0, 0]
        for attack in self.attacks:
            gains, best = [], 0
            for model in self.models:
                plain, hard, own = (self._robust(model, name, attack) for name in ("traditional", "adversarial", MEAN))
                if plain is None or hard is None or own is None:
                    continue
                gains.append(own - plain)
                best += own > max(plain, hard)
            better = sum(gain > 0 for gain in gains)
            totals = [totals[0] + len(gains), totals[1] + better, totals[2] + best]
            mean = f"{statistics.mean(gains):+.1f}" if gains else "open"
            said += f"| {attack} | {len(gains)} of {len(self.models)} | {better} | {best} | {mean} |"
            said += f" {paper['gains'][attack]:+g} |\n"
        every = len(self.models) * len(self.attacks)
        said += f"\n{totals[2]} wins of {totals[0]} against the better of the two others (paper: {paper['wins']} of"
        said += f" {every}), {totals[1]} of {totals[0]} against traditional"
        return said + (f"; {every - totals[0]} of {every} are open.\n" if totals[0] < every else ".\n")

    def _times(self) -> str:
        said = "\n### Training time over traditional training's\n\nMutation and the epochs (their number times their"
        said += " median), over the epochs of traditional training with the same seed on the same device; at most"
        said += f" {LIMIT} is wanted.\n\n"
        every = {model: {name: self._ratio(model, name) for name in self.mutators} for model in self.models}
        if self.size["images"] and not any(found for ratios in every.values() for found in ratios.values()):
            return said + "These lines shared their device; time was measured apart: " + CLOCKED
        said += f"| model | styx, {MEAN} | slowest mutator | within the limit | adversarial |\n" + "| --- " * 5 + "|\n"
        for model, ratios in every.items():
            attacked = self._cell(self._ratio(model, "adversarial"), digits=2) or "open"
            if not all(ratios.values()):
                said += f"| {model} | open | | | {attacked} |\n"
                continue
            means = {name: statistics.mean(found) for name, found in ratios.items()}
            slowest = max(means, key=lambda name: means[name])
            mean = statistics.mean(means.values())
            said += f"| {model} | {mean:.2f} | {slowest} {means[slowest]:.2f} | {'yes' if mean <= LIMIT else 'no'} |"
            said += f" {attacked} |\n"
        return said

    def _ratio(self, model: str, method: str) -> list[float]:
        seeds = [seed for one, name, seed in self.by if (one, name) == (model, method)]
        pairs = [(self.by[model, method, seed], self.by.get((model, "traditional", seed))) for seed in seeds]
        return [_cost(own) / _cost(plain) for own, plain in pairs if plain is not None and _beside(own, plain)]

    def _open(self) -> str:
        """Trainings that are still to be done, per model."""
        said = []
        for model in self.models:
            for method in self._methods(model):
                lacking = [str(s) for s in self.tables["seeds"] if (model, method, s) not in self.by]
                if lacking and method != MEAN:
                    said.append(f"{model}, {method}: seed {', '.join(lacking)}")
        return "\n### Open\n\n" + ("".join(f"- {one}\n" for one in said) if said else "Nothing.\n")


def _read(line: Line, *path: str, scale: float) -> float | None:
    """A number of a line, if it is known."""
    found: Any = line
    for name in path:
        found = found.get(name, {})
    return None if found == {} else scale * found


def _alone(*lines: Line) -> bool:
    """Nothing else ran on the device: the seconds count."""
    return not any(line.get("shared") for line in lines)


def _beside(one: Line, other: Line) -> bool:
    """Seconds that may be compared."""
    return _alone(one, other) and one["device"] == other["device"]


def _cost(line: Line) -> float:
    """Seconds of a training; the median forgives an epoch in which the machine did something else."""
    return float(line["mutation_seconds"] + line["epochs"] * line["epoch_seconds"])


def _named(method: str, mutators: Sequence[str]) -> str:
    return f"styx {method}" if method in (*mutators, "mixture") else f"styx, {method}" if method == MEAN else method

"""The study of uncertainty: patterns, AUROC, generation, defences, retraining; goes on where it stopped.

    python benchmarks/uncertainty.py run --models lenet5 --seeds 0 --data FOLDER --work FOLDER --seconds 500
    python benchmarks/uncertainty.py report
    python benchmarks/uncertainty.py speed --data FOLDER

Every stage is a command of ukemi into the work folder, where what is there is taken as it is (networks, sets, frozen
attacks); one line per finished stage goes to `results/uncertainty.jsonl`, and what is there is not run again. The
settings are in `benchmarks/uncertainty.toml`; `--sizes '{"seeds": 20}'` makes a small run, whose lines say so.
"""

import argparse
import json
import platform
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import uncertainty_report

from ukemi.cli.main import run as command
from ukemi.data import load
from ukemi.repairs import standing_of
from ukemi.repairs.more import beside, last_rate
from ukemi.schema import number
from ukemi.training import Run, TrainConfig, train
from ukemi.training.sets import as_data, read_set
from ukemi.training.setup import fixed_subset, in_classes, load_sets, make_model, trained_model
from ukemi.uncertainty import GOALS, PATTERNS, DropoutPasses, SearchSettings, Target, Thresholds, generate

HERE = Path(__file__).parent
ATTACKS: dict[str, list[str]] = {
    "fgsm": [],
    "bim": [],
    "deepfool": [],
    "carlini-wagner": ["--steps", "200", "--searches", "5"],
}
BUDGETED = ("fgsm", "bim")
FUZZERS = ("deephunter", "tensorfuzz")
CONTINUED = "continued"
"""the control: as many epochs more, at the same rate, on the training images alone"""


def told(*words: Any) -> None:
    """Runs a command of ukemi; what it prints is shown where it fails."""
    with redirect_stdout(StringIO()) as said:
        code = command([str(word) for word in words])
    if code:
        raise SystemExit(f"ukemi {' '.join(map(str, words))} ended with {code}\n{said.getvalue()}")


class Ground:
    """One network with one seed, and what was made of it; everything is made when it is first asked for."""

    def __init__(self, name: str, seed: int, cell: dict[str, Any], sizes: dict[str, Any], args: argparse.Namespace):
        self.name, self.seed, self.cell, self.sizes, self.args = name, seed, dict(cell), sizes, args
        self.epsilon = number(self.cell.pop("epsilon"))
        self.folder = args.work / f"{name}-{seed}"

    def run(self) -> Path:
        folder = self.folder / "run"
        if Run(folder).weights_path.exists():
            return folder
        if (folder / "config.toml").exists():
            told("train", "--resume", folder)
            return folder
        fields = {key.replace("-", "_"): value for key, value in self.cell.items()}
        where = {"data_folder": self.args.data, "device": self.args.device, "seed": self.seed, "out": folder}
        train(TrainConfig(**fields, **where), quiet=True)
        return folder

    def common(self, *, thresholds: bool = True) -> list[Any]:
        """Flags that all commands about uncertainty share."""
        flags = ["--device", self.args.device, "--passes", self.sizes["passes"], "--epsilon", self.epsilon]
        flags += ["--validation-images", self.sizes["validation-images"], "--seed", self.seed]
        return [*flags, "--profile", self.profile()] if thresholds else flags

    def profile(self) -> Path:
        out = self.folder / "uncertainty"
        if not (out / "uncertainty.json").exists():
            flags = [*self.common(thresholds=False), "--images", self.sizes["images"], "--keep-fuzzed", "--gallery", 1]
            told("uncertainty", self.run(), *flags, "--out", out)
        return out / "uncertainty.json"

    def generated(self, pattern: str, goal: str, split: str = "test") -> Path:
        out = self.folder / split / f"{pattern}-{goal}"
        if not (out / "generation.json").exists():
            many = self.sizes["seeds" if split == "test" else "group-images"]
            search = ["--population", self.sizes["population"], "--generations", self.sizes["generations"]]
            flags = [*self.common(), *search, "--pattern", pattern, "--goal", goal, "--split", split, "--images", many]
            told("generate", self.run(), *flags, "--gallery", 2, "--out", out)
        return out

    def attacked(self, attack: str, split: str) -> Path:
        out = self.folder / split / attack
        if not (out / "adversarial.safetensors").exists():
            many = self.sizes["measured" if split == "test" else "group-images"]
            budget = ["--epsilon", self.epsilon] if attack in BUDGETED else []
            flags = ["--attack", attack, *ATTACKS[attack], *budget, "--split", split, "--images", many]
            told("attack", self.run(), *flags, "--device", self.args.device, "--seed", self.seed, "--out", out)
        return out / "adversarial.safetensors"

    def fuzzed(self) -> list[Path]:
        """What the fuzzers made of training images."""
        out = self.folder / "train" / "fuzzed"
        if not all((out / f"{name}.safetensors").exists() for name in FUZZERS):
            flags = [*self.common(), "--split", "train", "--images", self.sizes["group-images"], "--keep-fuzzed"]
            told("uncertainty", self.run(), *flags, "--attacks", "--variants", "None", "--gallery", 0, "--out", out)
        return [out / f"{name}.safetensors" for name in FUZZERS]

    def group(self, row: str) -> list[Path]:
        if row in PATTERNS:
            return [self.generated(row, "misclassified", "train") / "generated.safetensors"]
        return self.fuzzed() if row == "fuzzed" else [self.attacked(row, "train")]


def profiled(ground: Ground) -> dict[str, Any]:
    found = json.loads(ground.profile().read_text())
    log = Run(ground.run()).read_log()
    kept = {name: found[name] for name in ("thresholds", "sources", "passes")}
    return kept | {"calibration_error": found["calibration"]["expected_error"], "epochs": len(log)}


def searched(pattern: str, goal: str, ground: Ground) -> dict[str, Any]:
    return json.loads((ground.generated(pattern, goal) / "generation.json").read_text()) | {"settings": None}


def defended(ground: Ground) -> dict[str, Any]:
    out = ground.folder / "defended"
    if not (out / "defences.json").exists():
        made = [ground.generated(pattern, "misclassified") / "generated.safetensors" for pattern in PATTERNS]
        fuzzed = [ground.profile().parent / f"{name}.safetensors" for name in FUZZERS]
        sets = [path for path in (*made, *fuzzed) if bool(read_set(path).success.any())]
        from ukemi.defences import DEFENCES

        flags = [*ground.common(), "--images", ground.sizes["images"], "--defences", *DEFENCES, "--sets", *sets]
        told("defend", ground.run(), *flags, "--out", out)
    found = json.loads((out / "defences.json").read_text())
    return {name: found[name] for name in ("sources", "patterns", "defences", "mean_uncommon_ratio")}


def retrained(row: str, ground: Ground) -> dict[str, Any]:
    frozen = [ground.attacked(attack, "test") for attack in ATTACKS]
    frozen = [path for path in frozen if bool(read_set(path).success.any())]
    if row == CONTINUED:
        return continued(ground, frozen)
    out, sets = ground.folder / "repaired" / row, [path for path in ground.group(row) if _some(path)]
    if not sets:
        return {"samples": 0}
    if not (out / "repair.json").exists():
        there = sum(int(read_set(path).success.sum()) for path in sets)
        if there < 2:
            return {"samples": 0}
        flags = ["--sets", *sets, "--samples", min(ground.sizes["samples"], there), "--transfer", *frozen]
        flags += ["--epsilon", ground.epsilon, "--images", ground.sizes["measured"], "--epochs", ground.sizes["epochs"]]
        told("repair", "uncertainty", ground.run(), *flags, "--out", out)
        (out / "data.npz").unlink()  # hundreds of megabytes that the sets can make again
    about = json.loads((out / "repair.json").read_text())
    return {name: about[name] for name in ("samples", "repeats", "before", "after")}


def continued(ground: Ground, frozen: list[Path]) -> dict[str, Any]:
    run, out = Run(ground.run()), ground.folder / "repaired" / CONTINUED
    config = Run.config_of(run.folder)
    more = beside(
        config, run, out, epochs=ground.sizes["epochs"], learning_rate=last_rate(config, run),
        batch_size=config.batch_size, optimiser=config.optimiser, weight_decay=config.weight_decay,
        momentum=config.momentum,
    )  # fmt: skip
    done = Run(out) if Run(out).weights_path.exists() else train(more, quiet=True)
    test = load_sets(config).test
    kept = {f"{read_set(path).attack} ({path.stem})": read_set(path) for path in frozen}
    standings = {}
    for name, own in (("before", run), ("after", done)):
        model, data = trained_model(own, Run.config_of(own.folder), test)
        model = model.to(config.chosen_device())
        few = fixed_subset(data, min(ground.sizes["measured"], len(data)), config.seed)
        sets = {key: in_classes(as_data(one), data.classes) for key, one in kept.items()}
        options = {"epsilon": ground.epsilon, "seed": config.seed}
        standings[name] = standing_of(model, data, few, sets, **options).as_json()
    return {"samples": 0, **standings}


def _some(path: Path) -> bool:
    return bool(read_set(path).success.any())


def stages() -> Iterator[tuple[str, str, Callable[[Ground], dict[str, Any]]]]:
    """Stage, row, and what measures it; the cheap and telling ones first."""
    yield "profile", "", profiled
    for pattern in PATTERNS:
        for goal in GOALS:
            yield "generate", f"{pattern} {goal}", partial(searched, pattern, goal)
    yield "defend", "", defended
    for row in (CONTINUED, *PATTERNS, *ATTACKS, "fuzzed"):
        yield "retrain", row, partial(retrained, row)


def run(args: argparse.Namespace) -> None:
    tables = tomllib.loads(args.cells.read_text())
    sizes = tables["sizes"] | json.loads(args.sizes or "{}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done, started = read(args.out), perf_counter()
    for seed in args.seeds:
        for name in args.models or tables["models"]:
            ground = Ground(name, seed, tables["models"][name], sizes, args)
            for stage, row, measure in stages():
                key = {"model": name, "seed": seed, "stage": stage, "row": row, "sizes": args.sizes or ""}
                if (args.stages and stage not in args.stages) or any(key.items() <= line.items() for line in done):
                    continue
                if perf_counter() - started > args.seconds:
                    print("out of time", flush=True)
                    return
                began = perf_counter()
                found = measure(ground)
                line = {**key, **found, "seconds": perf_counter() - began, **machine(args)}
                with args.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print({**key, "seconds": round(line["seconds"], 1)}, flush=True)


def speed(args: argparse.Namespace) -> None:
    """1,000 seeds x population 50 x 50 generations x T 20 on ResNet-20; no seed may leave early."""
    config = TrainConfig(data="cifar10", model="resnet20", dropout=0.2, data_folder=args.data, device=args.device)
    data = load("cifar10", folder=args.data).test
    few = data.take(torch.arange(args.speed_seeds))
    model = make_model(config, data, data.classes, None).to(config.chosen_device()).eval()
    source = DropoutPasses(model, 20)
    target = Target("HH", "kept", Thresholds((0.999, 0.999), (0.999, 0.999)))  # out of reach
    generate(source, few.take(torch.arange(2)), target, SearchSettings(generations=2))  # warm
    settings = SearchSettings(generations=args.speed_generations)
    began = perf_counter()
    made = generate(source, few, target, settings)
    seconds = perf_counter() - began
    assert not bool(made.claimed.any())
    line = {"stage": "speed", "row": f"{len(few)} x {settings.population} x {settings.generations} x 20"}
    line |= {"evaluations": made.evaluations, "seconds": seconds, **machine(args)}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(line)


def machine(args: argparse.Namespace) -> dict[str, str]:
    device = torch.cuda.get_device_name() if args.device != "cpu" and torch.cuda.is_available() else _processor()
    return {"device": device, "torch": torch.__version__, "commit": args.commit or commit()}


def _processor() -> str:
    return platform.processor() or "CPU"


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    return found.stdout.strip() or "unknown"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(args: argparse.Namespace) -> None:
    names = args.models or list(tomllib.loads(args.cells.read_text())["models"])
    text = uncertainty_report.written(read(args.out), names, args.sizes or "")
    args.out.with_suffix(".md").write_text(text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "report", "speed"])
    parser.add_argument("--cells", type=Path, default=HERE / "uncertainty.toml")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--stages", nargs="+", choices=["profile", "generate", "defend", "retrain"])
    parser.add_argument("--sizes", help="JSON of sizes that replace those of the TOML file, for a small run")
    parser.add_argument("--seconds", type=float, default=1e9, help="no stage is begun after this many")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--work", type=Path, default=Path("uncertainty-work"), help="networks and sets are kept here")
    parser.add_argument("--commit", help="where the tree travels without its history")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "uncertainty.jsonl")
    parser.add_argument("--speed-seeds", type=int, default=1000)
    parser.add_argument("--speed-generations", type=int, default=50)
    args = parser.parse_args()
    {"run": run, "report": report, "speed": speed}[args.verb](args)


if __name__ == "__main__":
    main()

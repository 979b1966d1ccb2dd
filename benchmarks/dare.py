"""DARE beside adversarial fine-tuning and its null controls: the paper's tables 2 to 5, figures 1, 3 and 4.

    python benchmarks/dare.py run --cells demo --seeds 0 1 2
    python benchmarks/dare.py run --cells cifar10-alexnet --data FOLDER --seconds 500
    python benchmarks/dare.py figure --cells demo
    python benchmarks/dare.py report

The cells are in `benchmarks/dare.toml`. A cell trains a base model on half of the training set and keeps its history,
freezes adversarial sets, tunes by every method, and measures each tuned model. One line per finished method and seed
goes to `results/dare.jsonl`; what is there is not run again. What takes long (base run, sets, mined targets, slices,
tuned models) is kept in the work folder, so that a run that is stopped, or killed, goes on where it was.
"""

import argparse
import hashlib
import json
import platform
import subprocess
import tomllib
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from dare_cell import Cell, OutOfTime, Watch
from dare_report import report

HERE = Path(__file__).parent


def tables(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def sizes_of(told: dict[str, Any], cell: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """The file's sizes, then the cell's, then those of the flags."""
    found = {**told["sizes"], **cell.get("sizes", {})}
    given = {name: getattr(args, name.replace("-", "_")) for name in found}
    found |= {name: value for name, value in given.items() if value is not None}
    return found | {"grids": told["grids"]}


def methods(cell: dict[str, Any]) -> list[str]:
    """In the order in which they are done: the paper's question first."""
    attacks = ("bim", "cw", "fgsm", "jsma", "pgd")
    found = ["original", "dare", "null random", "null continued", "rand", "dare-s", "dare-sl", "dare-adv"]
    found += [f"adv {name}" for name in attacks]
    found += [f"adv {name} + clean" for name in (*attacks, "pgd-8")]
    return found + [f"q {q}" for q in range(75, 101, 5)] * cell.get("q-sweep", False)


def chosen(told: dict[str, Any], args: argparse.Namespace) -> list[dict[str, Any]]:
    known = [cell["name"] for cell in told["cells"]]
    for name in args.cells or []:
        if name not in known:
            raise SystemExit(f"cells: {name!r} is none of {', '.join(known)}.")
    found = [cell for cell in told["cells"] if args.cells is None or cell["name"] in args.cells]
    return [cell for cell in found if args.models is None or cell["model"] in args.models]


def opened(told: dict[str, Any], cell: dict[str, Any], seed: int, args: argparse.Namespace, watch: Watch) -> Cell:
    """The cell with a work folder of its own for everything that changes its results."""
    sizes = sizes_of(told, cell, args)
    about = json.dumps([cell, sizes, told["shifts"]], sort_keys=True)
    key = hashlib.sha256(about.encode()).hexdigest()[:8]
    genes = told["shifts"]["genes"] if cell.get("shifts") else []
    return Cell(cell, sizes, seed, args.work / f"{cell['name']}-{seed}-{key}", genes, args.data, args.device, watch)


def run(args: argparse.Namespace) -> None:
    args.out.parent.mkdir(parents=True, exist_ok=True)
    told, done, watch = tables(args.file), read(args.out), Watch(args.seconds)
    machine = {"device": device_name(args), "torch": torch.__version__, "commit": args.commit or commit()}
    machine |= {"shared": args.shared}
    try:
        for seed in args.seeds:
            for about in chosen(told, args):
                cell = opened(told, about, seed, args, watch)
                for method in args.methods or methods(about):
                    key = {"cell": about["name"], "seed": seed, "sizes": cell.sizes, "method": method}
                    if any(all(line[name] == value for name, value in key.items()) for line in done):
                        continue
                    began = perf_counter()
                    line = {**key, **cell.line(method), **machine}
                    with args.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    done.append(line)
                    print(about["name"], seed, method, shown(line), f"{perf_counter() - began:.0f} s", flush=True)
    except OutOfTime as piece:
        print(f"out of time before {piece}", flush=True)


def shown(line: dict[str, Any]) -> str:
    if line["missed"]:
        return "-"
    means = {name: f"{100 * sum(part.values()) / len(part):.1f}" for name, part in line["frozen"].items()}
    return f"clean {100 * line['clean']:.1f}, frozen {means}, white-box {line['white_box']}"


def figure(args: argparse.Namespace) -> None:
    """The paper's Figure 1: clean, C&W, BIM by original, tuned on C&W, DARE; as a picture per cell."""
    told = tables(args.file)
    for about in chosen(told, args):
        path = args.out.parent / f"dare-figure-1-{about['name']}.png"
        opened(told, about, args.seeds[0], args, Watch(args.seconds)).figure(path)
        print(path)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def device_name(args: argparse.Namespace) -> str:
    if torch.cuda.is_available() and args.device != "cpu":
        return torch.cuda.get_device_name()
    return platform.processor() or platform.machine() or "CPU"


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    return found.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "figure", "report"])
    parser.add_argument("--file", type=Path, default=HERE / "dare.toml", help="the cells")
    parser.add_argument("--cells", nargs="+", help="names of cells; default: all")
    parser.add_argument("--models", nargs="+", help="only cells with these networks")
    parser.add_argument("--methods", nargs="+", help="default: all of the cell")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--seconds", type=float, default=1e9, help="no piece of work is begun after this many")
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shared", action="store_true", help="other work runs on the device: the report says so")
    parser.add_argument("--work", type=Path, default=HERE.parent / "runs" / "dare", help="what takes long is kept here")
    parser.add_argument("--commit", help="where the tree travels without its history")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "dare.jsonl")
    for name in tables(HERE / "dare.toml")["sizes"]:
        parser.add_argument(f"--{name}", type=int, help="a size; see dare.toml")
    args = parser.parse_args()
    if args.verb == "report":
        text = report(tables(args.file), read(args.out), methods)
        for picture in sorted(args.out.parent.glob("dare-figure-1-*.png")):
            text += f"\nFigure 1, {picture.stem.removeprefix('dare-figure-1-')}: Grad-CAM for each model's own answer,"
            text += f" which stands beneath.\n\n![Grad-CAM before and after]({picture.name})\n"
        args.out.with_suffix(".md").write_text(text)
        print(text)
    else:
        (run if args.verb == "run" else figure)(args)


if __name__ == "__main__":
    main()

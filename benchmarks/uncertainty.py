"""The study of uncertainty: patterns, AUROC, generation, defences, retraining; goes on where it stopped.

    python benchmarks/uncertainty.py run --cells lenet5 --seeds 0 --data FOLDER --work FOLDER --seconds 500
    python benchmarks/uncertainty.py report
    python benchmarks/uncertainty.py speed --data FOLDER

The experiment is that of the recipes uncertainty-* (`ukemi.experiments.uncertain`) in full size: every piece is a
command of ukemi into the work folder, where what is there is taken as it is (networks, sets, frozen attacks); one line
per finished piece goes to `results/uncertainty.jsonl`, and what is there is not run again. `--sizes '{"seeds": 20}'`
makes a small run, whose lines say so.
"""

import argparse
import tomllib
from time import perf_counter

import torch
from lines import HERE, Line, append, commit, read
from pieces import configured, machines, of_one_base, parser, run
from subsets import fewer

from ukemi.data import load
from ukemi.experiments import CellConfig, ExperimentConfig, machine
from ukemi.reports.experiments import uncertainty_sections
from ukemi.training import TrainConfig
from ukemi.training.setup import make_model
from ukemi.uncertainty import DropoutPasses, SearchSettings, Target, Thresholds, generate

HEAD = """# Uncertainty: patterns, generation, defences, retraining

Made by `python benchmarks/uncertainty.py report` from the lines beside it, which `python benchmarks/uncertainty.py run`
wrote; the settings are those of the recipes uncertainty-* in full size. Mean ± standard deviation over n seeds of
training. Limits of PCS and VR are found on validation images (Youden's J). What has no line yet is *open*.

HH is hardly reached where dropout stands before the last linear layer alone (ResNet-20, MobileNet): the mean lead of
the first class over the masks then is its certain lead, and a large lead that often turns needs few features with
large, opposed contributions. How high the limit of PCS lies decides the rest: of ResNet-20's three seeds the one with
the lowest (0.70) reaches HH from half of its inputs, the others (0.84 and 0.95) from 12 % or fewer, MobileNet (0.97)
from none. NIN's limit is 0.06, because only DeepFool and C&W part from its benign images there, so that for LL the
first two classes must lie within 0.06 of each other while at most one of 20 masks turns them: its PCS and VR fall
short together (median found: PCS 0.12, VR 0.11). LeNet-5 drops behind both dense layers, and reaches HH since some
individuals follow the gradient of their fitness (climbers) and a PCS short of its limit counts by its lead: before,
72.9 ± 6.7 % of the seeds with the label kept and 44.5 ± 12.3 % misclassified. The inputs that LeNet-5's defences and
retrainings had are of that older search, all others have climbers. ResNet-20's seeds 0 and 1, NIN and MobileNet were
trained and measured on an H200 (24 epochs), ResNet-20's seed 2 on a processor (40 epochs).

nin-6000, mobilenet-10000 and resnet20-10000 are the same networks in a size for a processor, named by their training
images (epochs, inputs and budgets in `benchmarks/uncertainty.toml`); what they show is no row of the paper. Their
inputs alone were searched for with the newer distance of VR; what it adds, for LL and HH above all, is in
[uncertainty-lenet5-cpu.md](uncertainty-lenet5-cpu.md). nin-6000 and mobilenet-10000 reach LH, HL and HH from nearly
every seed, which says little of their large sisters: little trained, their limits of PCS are 0.03 and 0.09, so that
high PCS is easy and low hard. LL is reached from one of NIN's 9 seeds at best (20 individuals x 25 generations) and
from 4 in 10 of MobileNet's 28. resnet20-10000, with limits further inside (PCS 0.16, VR 0.31), reaches all eight kinds
from 29 of its 33 seeds or more, HH too.

How often uncommon patterns pass hangs on what stands beside them. Over all sources (×) the fuzzers' inputs are most of
the uncommon ones, and DeepFool's and C&W's, which lie at the border and seldom pass, most of LH. Among the inputs that
one search made of the same images for each pattern (× generated) the difference is smaller.

All defences were measured before feature squeezing had non-local means for colour images, those of the large networks
also before its median mirrored the border as scipy does. Of nin-6000's and mobilenet-10000's fuzzers as many inputs are
judged as of benign images, of the others' all.

"""


def small_cells(args: argparse.Namespace) -> list[CellConfig]:
    """The networks in a size for a processor; the files of their fewer images are made where a run wants them."""
    found = []
    for told in tomllib.loads((HERE / "uncertainty.toml").read_text())["cells"]:
        name, count = told["data"], told.pop("take")
        path = args.work / f"{name}-{count}.npz"
        if args.verb == "run" and told["name"] in (args.cells or [told["name"]]) and not path.exists():
            fewer(name, args.data, count, path)
        found.append(CellConfig(**{**told, "data": str(path)}))
    return found


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
    line: Line = {"stage": "speed", "row": f"{len(few)} x {settings.population} x {settings.generations} x 20"}
    line |= {
        "evaluations": made.evaluations,
        "seconds": seconds,
        **machine(args.device),
        "commit": args.commit or commit(),
    }
    append(args.out, line)
    print(line)


def written(config: ExperimentConfig, lines: list[Line], sizes: str) -> str:
    """The whole report."""
    own = [line for line in lines if line.get("sizes", "") == sizes and line["stage"] != "speed"]
    text = HEAD + (f"A small run, not the study: sizes {sizes}.\n\n" if sizes else "")
    missing = {cell.name: cell.not_run for cell in config.cells if cell.not_run}
    small = {cell.name for cell in config.cells if cell.data.endswith(".npz")}
    names = [
        cell.name for cell in config.cells if cell.name not in small or any(one["model"] == cell.name for one in own)
    ]
    for part in config.kind.parts:
        text += "".join(one.markdown() for one in uncertainty_sections(part, own, names, missing))
    return text + _speed(lines) + machines(lines)


def _speed(lines: list[Line]) -> str:
    text = "## Speed\n\n1,000 CIFAR-10 seeds x population 50 x 50 generations x T 20 on ResNet-20, none leaving early;"
    text += " wanted: under 300 s on one H200.\n\n"
    found = [line for line in lines if line["stage"] == "speed"]
    if not found:
        return text + "open\n"
    text += (
        "| seeds x population x generations x T | evaluations | device | commit | seconds |\n" + "| --- " * 5 + "|\n"
    )
    return text + "".join(_speed_row(line) for line in found)


def _speed_row(line: Line) -> str:
    about = f"{line['evaluations']:,} | {line['device']} | {line['commit']} | {line['seconds']:.1f}"
    return f"| {line['row']} | {about} |\n"


def main() -> None:
    flags = parser("uncertainty", __doc__ or "", ["run", "report", "speed"])
    flags.add_argument("--speed-seeds", type=int, default=1000)
    flags.add_argument("--speed-generations", type=int, default=50)
    args = flags.parse_args()
    config = configured("uncertainty", args, {}, [])
    config = config.model_copy(update={"cells": (*config.cells, *small_cells(args))})
    if args.verb == "speed":
        speed(args)
    elif args.verb == "run":
        run(config, args, lambda place: args.sizes or "")
    else:
        text = written(config, of_one_base(read(args.out)), args.sizes or "")
        args.out.with_suffix(".md").write_text(text)
        print(text)


if __name__ == "__main__":
    main()

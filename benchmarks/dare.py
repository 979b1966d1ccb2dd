"""DARE beside adversarial fine-tuning and its null controls: the paper's tables 2 to 5, figures 1, 3 and 4.

    python benchmarks/dare.py run --cells demo --seeds 0 1 2
    python benchmarks/dare.py run --cells cifar10-alexnet --data FOLDER --seconds 500
    python benchmarks/dare.py figure --cells demo
    python benchmarks/dare.py report

The experiment is that of the recipes dare-* (`ukemi.experiments.dare`), with the sizes of `benchmarks/dare.toml`
instead of the paper's. One line per finished method and seed goes to `results/dare.jsonl`; what is there is not run
again. What takes long (base run, sets, mined targets, slices, tuned models) is kept in the work folder, so that a run
that is stopped, or killed, goes on where it was.
"""

import argparse
import json
import tomllib
from collections.abc import Mapping
from time import perf_counter

from lines import HERE, Line, read
from pieces import chosen, configured, machines, of_one_base, parser, pieces_of, placed, run

from ukemi.experiments import CellConfig, ExperimentConfig
from ukemi.experiments.dare import NULLS, DareCell
from ukemi.reports import dare_tables
from ukemi.reports.dare_figure import heat_maps
from ukemi.reports.experiment_answers import dare_answer
from ukemi.reports.sections import Section

INTRO = """# DARE, measured

Made by `python benchmarks/dare.py report` from `results/dare.jsonl`, which `python benchmarks/dare.py run` wrote; the
sizes are in `benchmarks/dare.toml`. Mean ± standard deviation over n seeds, in percent unless said.

- Base models are trained on half of the training set. Of the other half some images only select and stop, the rest are
  mined or attacked for tuning. Frozen sets are made from test images that the base model recognises, and count only
  images that fool it: so "original" has 0 on all of them, but for nearest errors that fall back where a GPU rounds
  otherwise in a batch of another size (below 2 %).
- *Minimal*: the nearest error per image. BIM in L1 (10 steps, bisected; ours fills the steepest pixels first), FGSM and
  PGD in Linf (PGD: 40 steps of 2.5 epsilon / 40, no random start), bisected; C&W in L2; JSMA with theta 0.1 on at most
  a fifth of the features. *8/255*: that budget in Linf.
- *Adv*: every layer trained on that attack's minimal images of the mining part, alone or with as many clean ones; *adv
  pgd-8*: on PGD 8/255. DARE and these have grids of one size (3 learning rates by the epochs), under a limit of 10
  points of accuracy on the selection images. A baseline is chosen by its own attack on selection images, DARE and its
  variants by all five. "-": every state missed the limit.
- *Null random*: DARE's change of each layer, same norm and weights, in a random direction. *Null continued*: as many
  steps of plain training as DARE took.
- White-box: PGD and C&W made for each tuned model itself. C&W finds an error for almost every image, so the mean
  distance to it (L2, 0 where the model errs already) says more than the success rate.
"""


def written(config: ExperimentConfig, lines: list[Line]) -> str:
    """What is said over all cells, then every cell with lines of one size in tables of its own."""
    text = ""
    groups: dict[str, list[Line]] = {}
    for cell in config.cells:
        own = [line for line in lines if line["cell"] == cell.name]
        if not own:
            text += Section(f"{cell.name}: {cell.model} on {cell.data}", [cell.not_run or "Open."]).markdown()
        for at, size in enumerate(dict.fromkeys(json.dumps(line["sizes"], sort_keys=True) for line in own)):
            group = [line for line in own if json.dumps(line["sizes"], sort_keys=True) == size]
            groups[f"{cell.name}{f' ({at + 1})' if at else ''}"] = group
            first, *more = of_cell(config, cell, group)
            text += first.markdown() + "".join(one.markdown(3) for one in more)
    last = (dare_tables.best_section(groups), dare_tables.variant_section(groups))
    text = f"{INTRO}\n{short(groups)}{text}" + "".join(one.markdown() for one in last)
    return text.rstrip("\n") + "\n" + machines(lines)


def short(groups: Mapping[str, list[Line]]) -> str:
    """The answers, before the tables that they rest on."""
    full = {name: lines for name, lines in groups.items() if any(line["method"] == "dare" for line in lines)}
    shares = {name: lines for name, lines in full.items() if any(line["method"].startswith("q ") for line in lines)}
    asked = {"effectiveness": full, "mining": full, "share": shares, "efficiency": full}
    said = list(dict.fromkeys(one for part, some in asked.items() for one in dare_answer(part, some)))
    listed = "## In short\n\n" + "".join(f"- {one}\n" for one in said)
    return f"{listed}\n{dare_tables.short_section(full).markdown(3)}"


def of_cell(config: ExperimentConfig, cell: CellConfig, lines: list[Line]) -> list[Section]:
    sizes = lines[0]["sizes"]
    said = ", ".join(f"{name} {value}" for name, value in sizes.items() if name != "grids")
    methods = pieces_of(config, cell)
    main, shares = ([one for one in methods if one.startswith("q ") == share] for share in (False, True))
    found = [Section(f"{cell.name}: {cell.model} on {cell.data}", [f"Sizes: {said}; learning rates {sizes['grids']}."])]
    found.append(dare_tables.main_section(cell.name, lines, main, cell.paper))
    found.append(dare_tables.verdict_section(cell.name, lines))
    found.append(dare_tables.seconds_section(cell.name, lines, main, cell.paper.get("minutes", {})))
    return [*found, dare_tables.share_section(cell.name, lines, [*shares, *NULLS])] if shares else found


def report(config: ExperimentConfig, args: argparse.Namespace) -> None:
    text = written(config, of_one_base(read(args.out)))
    for picture in sorted(args.out.parent.glob("dare-figure-1-*.png")):
        text += f"\nFigure 1, {picture.stem.removeprefix('dare-figure-1-')}: Grad-CAM for each model's own answer,"
        text += f" which stands beneath.\n\n![Grad-CAM before and after]({picture.name})\n"
    args.out.with_suffix(".md").write_text(text)
    print(text)


def figure(config: ExperimentConfig, args: argparse.Namespace) -> None:
    """The paper's Figure 1: clean, C&W, BIM by original, tuned on C&W, DARE; as a picture per cell."""
    for cell in chosen(config, args):
        path = args.out.parent / f"dare-figure-1-{cell.name}.png"
        heat_maps(DareCell(placed(config, cell, args.seeds[0], perf_counter() + args.seconds)), path)
        print(path)


def main() -> None:
    args = parser("dare", __doc__ or "", ["run", "figure", "report"]).parse_args()
    told = tomllib.loads((HERE / "dare.toml").read_text())
    config = configured("dare", args, told["sizes"], [CellConfig(**cell) for cell in told["cells"]])
    if args.verb == "run":
        run(config, args, lambda place: place.sizes.as_json())
    else:
        {"figure": figure, "report": report}[args.verb](config, args)


if __name__ == "__main__":
    main()

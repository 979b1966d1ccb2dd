"""The tables of papers 1 and 2 in the papers' own form, our figures beside theirs, and figures 4 to 6 as pictures.

    python benchmarks/paper_tables.py

What the papers print, and which cell measures it here, is in `benchmarks/paper_tables.toml`; what is measured is in
`results/cells.jsonl` (`benchmarks/cells.py`). Writes `results/papers.md` and the pictures beside it.
"""

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cells import cells, spread
from lines import HERE, Line, read

HEAD = """# The tables of papers 1 and 2

Made by `python benchmarks/paper_tables.py` from `results/cells.jsonl`; commands, machines and all other cells are in
[cells.md](cells.md). Percent of the test images: **ours** (mean ± standard deviation over n seeds), in brackets what
the paper prints. *open*: not measured yet; *not run*: the data are not to be had here. The methods of a row share its
epochs and training images (`all`: of the set, which is fashion-mini for the small network), mostly fewer than the
paper's, whose lengths are in the recipes (`ukemi recipes`); `test`: measured on so many test images, where it is not
all. Paper 3: [uncertainty.md](uncertainty.md), paper 4: [dare.md](dare.md), paper 5: [styx.md](styx.md).
"""
FIGURES = """
## Paper 1, Figures 4 to 6

![Loss of the variants that are trained on, by epoch](papers-figure-4.png)

Loss of the variants that are trained on, seed 0: a better search finds higher ones. SENSEI's first epoch is clean.

![Robust accuracy by population and by loss threshold](papers-figures-5-6.png)
"""
TABLES = HERE / "paper_tables.toml"
_RECIPES = HERE.parent / "src" / "ukemi" / "recipes" / "shared" / "networks.toml"
NETWORKS = {told["name"]: told["printed"] for told in tomllib.loads(_RECIPES.read_text())["networks"]}
"""paper 1's Table 2 by network and space"""
SEARCHES = {"random": ("random", "C7"), "worst-of-10": ("W-10", "C0"), "sensei": ("SENSEI", "C1")}
Measured = dict[tuple[str, str], list[Line]]
Planned = dict[tuple[str, str], dict[str, Any]]


def measured(lines: Sequence[Line]) -> Measured:
    """The lines on test images by group and cell."""
    found: Measured = {}
    for line in lines:
        if not line["validation"] and not line["change"]:
            found.setdefault((line["group"], line["name"]), []).append(line)
    return found


def place(row: dict[str, Any], column: str) -> tuple[str, str]:
    """Group and name of the cell that measures this."""
    told = row.get("cells", {}).get(column, column + row.get("suffix", ""))
    group, _, name = told.rpartition("/")
    return group or row.get("group", ""), name


def printed(row: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """What the paper prints in this row, by column."""
    if "network" in row:
        return dict(NETWORKS[row["network"]][table["space"]])
    return dict(zip(table["columns"], row.get("paper", []), strict=False))


def shown(row: dict[str, Any], at: int, table: dict[str, Any], found: Measured, planned: Planned) -> str:
    """One cell: ours, and the paper's in brackets; empty where neither is to be had."""
    figure = printed(row, table).get(table["columns"][at], "")
    said = f" ({figure})" if figure != "" else ""
    cell = place(row, table["columns"][at])
    if cell in found:
        return f"**{spread(found[cell], table.get('measure', 'robust'))}**{said}"
    return ("not run" if "absent" in row and said else "open" if said or cell in planned else "") + said


def size(own: Sequence[Line], planned: Planned) -> list[str]:
    """n, epochs and training images of the lines of a row, and what they ran on."""
    if not own:
        return [""] * 4
    counts = sorted({sum(line["name"] == one["name"] for line in own) for one in own})
    n = "-".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    epochs = sorted({line["epochs"] for line in own})
    images = dict.fromkeys(_images(planned[line["group"], line["name"]]) for line in own)
    devices = sorted({"CPU" if line["device"] == "CPU" else line["device"].removeprefix("NVIDIA ") for line in own})
    return [n, ", ".join(str(one) for one in epochs), ", ".join(images), ", ".join(devices)]


def _images(cell: dict[str, Any]) -> str:
    """How many images it trains on, and on how many it is measured where that is not all."""
    trained = f"{cell['take']:,}" if "take" in cell else "all"
    return trained + (f" (test: {cell['test']:,})" if "test" in cell else "")


def written(table: dict[str, Any], found: Measured, planned: Planned) -> str:
    """A table of a paper."""
    heads = ["", *table["heads"], "n", "epochs", "images", "on"]
    text = f"\n## {table['title']}\n\n| {' | '.join(heads)} |\n" + "| --- " * len(heads) + "|\n"
    for row in table["rows"]:
        places = [place(row, column) for column in table["columns"]]
        own = [line for at in dict.fromkeys(places) for line in found.get(at, [])]
        middle = [shown(row, at, table, found, planned) for at in range(len(places))]
        text += f"| {' | '.join([row['name'], *middle, *size(own, planned)])} |\n"
    return (
        text
        + (f"\n{won(table, found)}\n" if "best" in table else "")
        + (f"\n{table['note']}\n" if "note" in table else "")
    )


def won(table: dict[str, Any], found: Measured) -> str:
    """In how many rows the column that the paper finds best is best, here and there."""
    best, columns = table["best"], table["columns"]
    here = [
        {column: _mean(found[place(row, column)]) for column in columns if place(row, column) in found}
        for row in table["rows"]
    ]
    there = [printed(row, table) for row in table["rows"]]
    counts = []
    for rows in (here, there):
        known = [row for row in rows if best in row and len(row) > 1]
        counts.append(f"{sum(max(row, key=row.__getitem__) == best for row in known)} of {len(known)} rows")
    return (
        f"{table['heads'][columns.index(best)]} is first in {counts[0]} that have two or more; the paper: {counts[1]}."
    )


def _mean(lines: Sequence[Line]) -> float:
    return sum(line["robust"] for line in lines) / len(lines)


def swept(table: dict[str, Any], found: Measured, axes: Any) -> None:
    """Robust accuracy over a setting, a line per network that has two figures or more."""
    for number, row in enumerate(table["rows"]):
        known = [(at, found.get(place(row, column), [])) for at, column in enumerate(table["columns"])]
        points = [(at, 100 * _mean(own)) for at, own in known if own]
        if len(points) > 1:
            n = "-".join(str(one) for one in sorted({len(own) for _, own in known if own}))
            colour = f"C{number}"  # the same network beside it has the same
            axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=f"{row['name']}, n = {n}")
    axes.set_xticks(range(len(table["heads"])), table["heads"])
    low, high = axes.get_ylim()
    axes.set_ylim(low - 5, high + 5)  # so that a tenth of a point does not look like much
    axes.set(title=table["title"].partition(":")[0], xlabel=table["figure"], ylabel="robust accuracy, %")
    axes.grid(alpha=0.3)
    # beneath: inside, lines cross it
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=9)


def chosen(told: Sequence[dict[str, str]], found: Measured, axes: Any) -> None:
    """Paper 1, Figure 4: the loss of the variants that are trained on; the better the search, the higher."""
    for row, one in zip(told, axes, strict=True):
        for name, (said, colour) in SEARCHES.items():
            own = [line for line in found.get((row["group"], name), []) if line["seed"] == 0 and "losses" in line]
            for line in own[:1]:
                one.plot(range(1, len(line["losses"]) + 1), line["losses"], label=said, color=colour)
        one.set(title=row["name"], xlabel="epoch", ylabel="loss of what is trained on", xlim=(1, None), ylim=(0, None))
        one.grid(alpha=0.3)
        one.legend(frameon=False)


def draw(told: dict[str, Any], found: Measured, out: Path) -> None:
    """Figures 4 to 6 beside the report, with matplotlib, which only they need."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(told["losses"]), figsize=(4 * len(told["losses"]), 3.4), layout="constrained")
    chosen(told["losses"], found, axes)
    figure.savefig(out / "papers-figure-4.png", dpi=110)
    tables = [table for table in told["tables"] if "figure" in table]
    figure, axes = plt.subplots(1, len(tables), figsize=(6 * len(tables), 4.4), layout="constrained")
    for table, one in zip(tables, axes, strict=True):
        swept(table, found, one)
    figure.savefig(out / "papers-figures-5-6.png", dpi=110)


def text(told: dict[str, Any], lines: Sequence[Line]) -> str:
    """The whole report."""
    planned = {(cell["group"], cell["name"]): cell for cell in cells(HERE / "cells.toml", None)}
    return HEAD + "".join(written(table, measured(lines), planned) for table in told["tables"]) + FIGURES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--lines", type=Path, default=HERE.parent / "results" / "cells.jsonl")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results", help="a folder")
    args = parser.parse_args()
    told, lines = tomllib.loads(args.tables.read_text()), read(args.lines)
    (args.out / "papers.md").write_text(text(told, lines))
    draw(told, measured(lines), args.out)
    print(text(told, lines))


if __name__ == "__main__":
    main()

"""An experiment as tables for the terminal and for papers, and as a page that gives the answer first."""

import json
from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.table import Table

from ukemi.experiments import Findings
from ukemi.reports import dare_tables, uncertain_claims, uncertain_tables, words
from ukemi.reports import uncertain_pictures as drawn
from ukemi.reports.dare_pictures import frozen, over_share, seconds, variants
from ukemi.reports.experiment_answers import experiment_answer
from ukemi.reports.sections import Lines, Section
from ukemi.reports.terminal import terminal_table
from ukemi.reports.texts import Rows
from ukemi.reports.writing import flat, versions, write_html
from ukemi.training.checkpoints import write_whole

SCHEMA = 1
"""Version of experiment.json's fields: raised when one changes its meaning or goes."""


def uncertainty_sections(part: str, lines: Lines, models: Sequence[str], missing: Mapping[str, str]) -> list[Section]:
    """The tables of one part of paper 3, the claims that it judges first."""
    claims = uncertain_claims.claims_section(part, lines, models, missing)
    found = [claims] if claims else []
    if part == "study":
        sections = uncertain_tables.pattern_sections(lines, models, missing)
        found += [one.showing(drawn.patterns(lines, model)) for one, model in zip(sections, models, strict=True)]
        section = uncertain_tables.auroc_section(lines, models, missing)
        found.append(section.showing(*(drawn.aurocs(lines, model) for model in models)))
    elif part == "generation":
        section = uncertain_tables.generation_section(lines, models, missing)
        found.append(section.showing(drawn.successes(lines, models)))
    elif part == "defences":
        sections = uncertain_tables.defence_sections(lines, models, missing)
        found += [one.showing(drawn.passing(lines, model)) for one, model in zip(sections, models, strict=True)]
    else:
        sections = uncertain_tables.retraining_sections(lines, models, missing)
        found += [one.showing(*drawn.retrained(lines, model)) for one, model in zip(sections, models, strict=True)]
    return found


def dare_sections(
    part: str, groups: Mapping[str, Lines], pieces: Sequence[str], papers: Mapping[str, Any]
) -> list[Section]:
    """The tables of one part of paper 4; `groups` are the lines of each cell."""
    found: list[Section] = []
    for name, lines in groups.items():
        paper = papers.get(name, {})
        if part == "share":
            found.append(dare_tables.share_section(name, lines, pieces).showing(over_share(lines, pieces)))
        elif part == "efficiency":
            section = dare_tables.seconds_section(name, lines, pieces, paper.get("minutes", {}))
            found.append(section.showing(seconds(lines, pieces)))
        else:
            found.append(dare_tables.main_section(name, lines, pieces, paper).showing(frozen(lines, pieces)))
            found.append(dare_tables.verdict_section(name, lines))
    if part in ("variants", "mining"):
        pictures = [variants(name, lines) for name, lines in groups.items()]
        return [dare_tables.variant_section(groups).showing(*pictures), *found]
    return [dare_tables.best_section(groups), *found] if part == "effectiveness" else found


def experiment_sections(found: Findings) -> list[Section]:
    """All tables of an experiment."""
    config, names = found.config, [cell.name for cell in found.config.cells]
    if config.experiment == "uncertainty":
        return uncertainty_sections(config.part, found.lines, names, found.missing)
    groups = {name: [line for line in found.lines if line["cell"] == name] for name in names}
    sections = dare_sections(
        config.part,
        {name: lines for name, lines in groups.items() if name not in found.missing},
        config.pieces(),
        {cell.name: cell.paper for cell in config.cells},
    )
    return [*sections, *(Section(name, ["not run."]) for name in names if name in found.missing)]


def size_said(found: Findings) -> str:
    """How large it was, in one sentence: tables of different sizes should not be read as one."""
    config = found.config
    cells = [cell for cell in config.cells if cell.name not in found.missing] or list(config.cells)
    sizes = config.placed(cells[0], config.seed).sizes.model_dump(mode="json")
    told = ", ".join(f"{name} {value}" for name, value in flat(sizes) if name != "defences")
    epochs = ", ".join(f"{cell.name} {config.epochs_of(cell)}" for cell in cells)
    return f"Size: {words.plural(config.seeds, 'seed')}; epochs of the networks: {epochs}; {told}."


def experiment_tables(found: Findings, width: int) -> list[Table]:
    """For a terminal of this width."""
    return [terminal_table(one.table, width, one.title) for one in experiment_sections(found) if one.table]


def write_experiment(folder: Path, found: Findings, *, command: str, notes: Sequence[str] = ()) -> None:
    """Writes experiment.json, table.md, table.tex and page.html."""
    sections, size = experiment_sections(found), size_said(found)
    settings = found.config.model_dump(mode="json", exclude={"out", "runs", "jobs", "device", "data_folder"})
    values = {"schema": SCHEMA, "title": found.config.title, "open_pieces": found.open, "not_run": found.missing}
    values |= {"answer": experiment_answer(found), "size": size, "lines": list(found.lines)}
    values |= {"settings": settings, "command": command, "versions": versions()}
    write_whole(folder / "experiment.json", (json.dumps(values, indent=2) + "\n").encode())
    texts = {"md": f"{size}\n\n" + "".join(one.markdown() for one in sections)}
    texts["tex"] = "\n".join(one.latex() for one in sections if one.table)
    for ending, text in texts.items():
        write_whole(folder / f"table.{ending}", text.encode())
    write_html(
        folder / "page.html",
        "experiment.html",
        heading=found.config.title,
        answer=experiment_answer(found),
        notes=[*notes, size],
        sections=[_shown(one) for one in sections],
        not_run=sorted(found.missing.items()),
        texts=[("Markdown", texts["md"]), ("LaTeX", texts["tex"])],
        command=command,
        machines=sorted({f"{line['device']}, torch {line['torch']}" for line in found.lines}),
        pages=_pages(folder, found),
        settings=[(cell.name, f"{cell.model} on {cell.data}") for cell in found.config.cells],
    )


def _shown(section: Section) -> dict[str, Any]:
    table = section.table or Rows((), ())
    rows = [(cells[0], cells[1:]) for cells in table.rows]
    return {
        "title": section.title,
        "said": section.said,
        "names": table.names,
        "rows": rows,
        "pictures": section.pictures,
    }


def _pages(folder: Path, found: Findings) -> list[tuple[str, str]]:
    """Names and relative links of the pages that the cells' own commands wrote."""
    links = []
    for cell in found.config.cells:
        for seed in found.config.all_seeds():
            place = found.config.placed(cell, seed).folder
            for page in sorted(place.rglob("*.html")):
                about = f"{cell.name}, seed {seed}: {page.relative_to(place).as_posix()}"
                links.append((about, quote(Path(relpath(page, folder)).as_posix())))
    return links

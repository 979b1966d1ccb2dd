"""`ukemi compare`."""

import shlex
from collections.abc import Sequence
from functools import partial

from rich.console import Console

from ukemi import reports
from ukemi.cli.main import EXIT_STOPPED
from ukemi.cli.parse import parse
from ukemi.comparing import CompareConfig, Comparison, compare
from ukemi.errors import UserError
from ukemi.reports.comparison import reasons


def run(arguments: list[str]) -> int:
    config = parse(CompareConfig, arguments, "compare")
    return code_of(compared(config, shlex.join(["ukemi", "compare", *arguments])))


def code_of(found: Comparison) -> int:
    """The exit code: nothing finished because trainings stopped is no success."""
    stopped = any(case.stopped for case in found.cases)
    return EXIT_STOPPED if stopped and not found.run_cases() else 0


def compared(config: CompareConfig, command: str, notes: Sequence[str] = ()) -> Comparison:
    """Runs a comparison, writes what came of it and prints the answer and the table."""
    if config.out.is_file():
        raise UserError(f"out: {config.out} is a file; a folder is needed.")
    stderr = Console(stderr=True)
    salvaged = partial(_salvaged, config, command, notes)
    found = compare(config, lambda text: stderr.print(text, highlight=False, markup=False), salvaged)
    absent = list(dict.fromkeys(case.missing for case in found.cases if case.missing))
    if absent and all(case.missing for case in found.cases):
        raise UserError(f"data: {'; '.join(absent)}.")
    _tell(config, found, command, notes)
    return found


def _salvaged(config: CompareConfig, command: str, notes: Sequence[str], found: Comparison) -> None:
    """Where runs failed, the others are told of all the same."""
    if found.run_cases():
        _tell(config, found, command, notes)


def _tell(config: CompareConfig, found: Comparison, command: str, notes: Sequence[str]) -> None:
    if found.machines():
        notes = [*notes, f"Finished on {'; '.join(found.machines())}."]
    if config.jobs > 1:
        notes = [*notes, f"Times were taken while {config.jobs} runs shared the machine."]
    if config.engine == "ray":
        notes = [*notes, "Times were taken on a Ray cluster, whose machines runs may have shared."]
    reports.write_comparison(config.out, found, command=command, notes=notes)
    console = Console(highlight=False, markup=False)
    for sentence in (*reports.comparison_answer(found), *notes):
        console.print(sentence, markup=False)
    for table in reports.comparison_tables(found, console.width):
        console.print(table)
    for sentence in reasons(found):
        console.print(sentence)
    console.print(
        f"numbers: {config.out / 'comparison.json'}\ntables:  {config.out / 'table'}.csv, .md, .tex\n"
        f"page:    {config.out / 'page.html'}",
        soft_wrap=True,
    )

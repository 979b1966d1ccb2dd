"""The table of `ukemi evaluate`, in terminals of any width."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from ukemi.reports import Evaluation, table


@pytest.mark.parametrize("width", [40, 120])
@pytest.mark.parametrize("title", ["mynet:Net", "runs/cifar10-resnet20-worst-of-0"])
def test_robust_accuracy_is_shown_however_narrow(evaluation: Evaluation, title: str, width: int) -> None:
    console = Console(width=width, file=io.StringIO())
    console.print(table([replace(evaluation, title=title)], width))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    share = f"{100 * evaluation.robustness.robust_accuracy:.1f}"
    assert share in said and max(map(len, said.splitlines())) <= width
    assert ("95 %" in said) == (width == 120) == ("evaluation.json" not in said)

"""What a person sees of a run while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import Tensor

from ukemi.ranks import Ranks

REFRESH = 0.5
"""seconds between two looks at the device's sums: each look waits for the device"""
LINES = 30.0
"""seconds between two lines where no bar can move"""


class Display:
    """A progress bar with loss, accuracy, images per second and time left, in a log file a line now and then and at the
    end; silent where `quiet`.

    Of several ranks the first shows its own numbers, and the speed of all."""

    def __init__(self, folder: Path, epochs: int, quiet: bool, ranks: Ranks | None = None) -> None:
        self.ranks = ranks or Ranks()
        quiet = quiet or not self.ranks.first
        self.console = Console(stderr=True, quiet=not self.ranks.first)
        self.plain = not (quiet or self.console.is_terminal or self.console.is_jupyter)
        columns = ("[progress.description]{task.description}", BarColumn(), TaskProgressColumn())
        self.progress = Progress(
            *columns,
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=self.console,
            disable=quiet or self.plain,
        )
        self.task = self.progress.add_task(escape(folder.name), total=float(epochs), numbers="")
        self.name, self.epochs = folder.name, epochs
        self.looked, self.seen, self.told = monotonic(), 0.0, monotonic()

    def __enter__(self) -> Display:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.progress.stop()

    def at(self, epoch: int) -> None:
        """Where a training goes on from; of one that is finished nothing else is shown."""
        self.progress.update(self.task, completed=epoch)

    def step(self, epoch: int, step: int, steps: int, sums: Mapping[str, Tensor]) -> None:
        now = monotonic()
        if self.progress.disable or now - self.looked < REFRESH:
            return
        loss, right, seen = (float(sums[name]) for name in ("loss", "right", "seen"))
        speed = (seen - self.seen if seen > self.seen else seen) / (now - self.looked) * self.ranks.size
        self.looked, self.seen = now, seen
        numbers = f"loss {loss / seen:.3f}  accuracy {right / seen:.1%}  {speed:,.0f} images/s"
        self.progress.update(self.task, completed=epoch + step / steps, numbers=numbers)

    def epoch_done(self, line: Mapping[str, Any]) -> None:
        parts = [f"loss {line['loss']:.3f}", f"accuracy {line['accuracy']:.1%}"]
        if "validation_accuracy" in line:
            parts.append(f"validation {line['validation_accuracy']:.1%}")
        if "robust_accuracy" in line:
            parts.append(f"robust {line['robust_accuracy']:.1%}")
        done = line["epoch"] + 1
        self.progress.update(self.task, completed=done, numbers="  ".join(parts))
        if self.plain and (done == self.epochs or monotonic() - self.told >= LINES):
            self.told = monotonic()
            told = f"{self.name}: epoch {done} of {self.epochs}, {', '.join(parts)}"
            self.console.print(told, highlight=False, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        self.console.print(text, style="yellow", highlight=False, markup=False)

"""What the seconds of a training were spent on, as far as its log knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ukemi.reports import drawing, words

Log = Sequence[Mapping[str, Any]]
PARTS = ("waiting for data", "making and scoring variants", "training steps", "validation", "measuring")


@dataclass(frozen=True)
class Cost:
    """One bar: seconds by part, in the order of `PARTS`; parts that took none are left out."""

    name: str
    seconds: dict[str, float]

    def svg(self, longest: float) -> Markup:
        """Shares of the width of the longest bar."""
        parts, left = [], 0.0
        for part, took in self.seconds.items():
            wide = 100 * took / (longest or 1.0)
            tip = f"{self.name}, {part}: {words.duration(took)}"
            shape = Markup('<rect class="part s{}" x="{}%" width="{}%" height="14" y="2" data-tip="{}"/>')
            parts.append(shape.format(PARTS.index(part), drawing.n(left), drawing.n(wide), tip))
            left += wide
        heard = f"{self.name}: " + ", ".join(f"{part} {words.duration(took)}" for part, took in self.seconds.items())
        return Markup(
            '<svg class="chart bar cost" width="100%" height="18" role="img" aria-label="{}">{}</svg>'
        ).format(heard, Markup("").join(parts))


def spent(log: Log) -> dict[str, float]:
    """Seconds of a whole training by part; what is not known of elsewhere counts as training steps."""
    if not log or "seconds" not in log[-1]:
        return {}
    waited = sum(line.get("data_seconds", 0.0) for line in log)
    validated = sum(line.get("validation_seconds", 0.0) + line.get("history_seconds", 0.0) for line in log)
    whole, scored = float(log[-1]["seconds"]), sum(line.get("scoring_seconds", 0.0) for line in log)
    scored = min(scored, max(0.0, whole - waited - validated))  # on a GPU an estimate: never more than there was
    steps = max(0.0, whole - waited - validated - scored)
    return dict(zip(PARTS, (waited, scored, steps, validated, 0.0), strict=True))


def cost(name: str, log: Log, measuring: float | None = None) -> Cost | None:
    """What one training took, and measuring it; None where neither is known."""
    seconds = spent(log) | ({} if measuring is None else {"measuring": measuring})
    kept = {part: seconds[part] for part in PARTS if seconds.get(part, 0.0) >= 0.0005}
    return Cost(name, kept) if kept else None


def bars(found: Sequence[Cost]) -> list[dict[str, Any]]:
    """For the page: bars on one scale, with what all parts come to."""
    longest = max((sum(one.seconds.values()) for one in found), default=0.0)
    return [
        {"name": one.name, "whole": words.duration(sum(one.seconds.values())), "svg": one.svg(longest)} for one in found
    ]


def legend(found: Sequence[Cost]) -> list[tuple[int, str]]:
    """Colour and name of every part that any bar has."""
    return [(at, part) for at, part in enumerate(PARTS) if any(part in one.seconds for one in found)]


def table(found: Sequence[Cost]) -> tuple[tuple[str, ...], list[tuple[str, tuple[str, ...]]]]:
    """Columns and rows: seconds by part."""
    parts = [part for _, part in legend(found)]
    rows = [
        (one.name, tuple(words.duration(one.seconds[part]) if part in one.seconds else "" for part in parts))
        for one in found
    ]
    return tuple(parts), rows


def section(found: Sequence[Cost | None]) -> dict[str, Any] | None:
    """All that a page shows; None where nothing is known."""
    known = [one for one in found if one is not None]
    if not known:
        return None
    columns, rows = table(known)
    return {"bars": bars(known), "legend": legend(known), "columns": columns, "rows": rows}

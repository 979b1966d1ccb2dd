"""The strokes that all charts share, as inline SVG."""

from collections.abc import Iterable

from markupsafe import Markup

WIDTH, HEIGHT = 256, 180
LEFT, RIGHT, TOP, BOTTOM = 44, 18, 8, 42
"""of a chart, and the room around its axes"""


def svg(width: float, height: float, title: str, heard: str, body: Iterable[Markup], kind: str) -> Markup:
    """A drawing with what a screen reader says of it; a <title> would be a second tooltip."""
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        kind, n(width), n(height), f"{title}. {heard}", Markup("").join(body)
    )


def below(at: float, said: str, y: float = HEIGHT - BOTTOM) -> Markup:
    """A tick with its value beneath."""
    tick = Markup('<line class="tick" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(n(at), n(y), n(y + 4))
    return tick + text(at, y + 17, said)


def text(x: float, y: float, said: str, kind: str = "middle") -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, n(x), n(y), said)


def turned(x: float, y: float, said: str) -> Markup:
    return Markup('<text class="axis-name" transform="translate({},{}) rotate(-90)">{}</text>').format(n(x), n(y), said)


def n(value: float) -> str:
    """A coordinate to a hundredth of a unit."""
    return f"{value:.2f}".rstrip("0").rstrip(".")

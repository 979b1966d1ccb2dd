"""Names of classes: those of the known sets, in the order of their labels, and those that a user gives."""

from collections.abc import Sequence
from pathlib import Path

from ukemi.errors import UserError

DIGITS = tuple(str(digit) for digit in range(10))

FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

SIGNS = (
    "Speed limit (20 km/h)",
    "Speed limit (30 km/h)",
    "Speed limit (50 km/h)",
    "Speed limit (60 km/h)",
    "Speed limit (70 km/h)",
    "Speed limit (80 km/h)",
    "End of speed limit (80 km/h)",
    "Speed limit (100 km/h)",
    "Speed limit (120 km/h)",
    "No passing",
    "No passing for vehicles over 3.5 t",
    "Right of way at the next intersection",
    "Priority road",
    "Yield",
    "Stop",
    "No vehicles",
    "No vehicles over 3.5 t",
    "No entry",
    "General caution",
    "Dangerous curve to the left",
    "Dangerous curve to the right",
    "Double curve",
    "Bumpy road",
    "Slippery road",
    "Road narrows on the right",
    "Road work",
    "Traffic signals",
    "Pedestrians",
    "Children crossing",
    "Bicycles crossing",
    "Beware of ice and snow",
    "Wild animals crossing",
    "End of all limits",
    "Turn right ahead",
    "Turn left ahead",
    "Ahead only",
    "Go straight or right",
    "Go straight or left",
    "Keep right",
    "Keep left",
    "Roundabout",
    "End of no passing",
    "End of no passing for vehicles over 3.5 t",
)
"""GTSRB's 43 signs; the set itself only numbers them."""


def classes_named(given: Sequence[str]) -> tuple[str, ...]:
    """The names themselves, or the lines of a text file."""
    names = list(given)
    if len(given) == 1 and not Path(given[0]).is_file():
        raise UserError(f"classes: there is no file {given[0]}; two names or more are needed, or a file with them.")
    if len(given) == 1:
        try:
            lines = Path(given[0]).read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise UserError(f"classes: {given[0]} is no text file with a name on each line.") from None
        names = [line.strip() for line in lines if line.strip()]
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise UserError(f"classes: {twice[0]!r} stands there twice; each is the name of one output.")
    return tuple(names)

"""What has to be said beside numbers that could be taken for more than they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from ukemi.reports import words
from ukemi.reports.attacks import AttackResult, title_of

MINIMAL = {"deepfool": "more steps", "carlini-wagner": "more steps or searches"}
"""attacks that look for the nearest fooling image, however far it is, with what helps one that finds none"""
ENOUGH = 0.95
"""share of the recognised images that such an attack should fool"""


def notes(images: int, not_finite: int, attacks: Sequence[AttackResult], settings: Mapping[str, Any]) -> list[str]:
    """Sentences on a training that is not finished, on logits that are not finite, on attacks without an image,
    and on those that gave up."""
    said = []
    if settings.get("unfinished"):
        said.append(f"The weights are those of {settings['unfinished']}.")
    if settings.get("outputs"):
        said.append(
            f"The model gives {settings['outputs']}, not logits: what is said of accuracy holds, what is said of losses"
            " and of how sure it is does not. Take the softmax off its end."
        )
    if not_finite:
        said.append(
            f"The model gives NaN or infinite logits for {words.count(not_finite)} of {words.plural(images, 'image')};"
            " these count as wrong."
        )
    if attacks and not any(bool(one.found.right.any()) for one in attacks):
        said.append("No image is recognised, so nothing was attacked.")
    return [*said, *_gave_up(attacks)]


def _gave_up(attacks: Sequence[AttackResult]) -> list[str]:
    """Of several settings of an attack, the one that fooled most is judged."""
    said = []
    for name, remedy in MINIMAL.items():
        those = [one for one in attacks if one.config.name() == name and bool(one.found.right.any())]
        if not those:
            continue
        best = max(those, key=lambda one: int(one.found.fooled.sum()))
        fooled, known = int(best.found.fooled.sum()), int(best.found.right.sum())
        if fooled < ENOUGH * known:
            said.append(
                f"{title_of(best.config)} fooled {words.count(fooled)} of {words.plural(known, 'recognised image')}; it"
                f" has no budget, so it should fool nearly all: {remedy} may be needed, and this is not robustness."
            )
    return said

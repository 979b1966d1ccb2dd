"""What a model's outputs show by themselves of whether an attack on it says anything: flags that need no attack."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ukemi.data import Data
from ukemi.measures.attacks import BLOCK
from ukemi.models.inference import home_of, right, rows_per_pass, scoring

SAME = 1e-4
"""outputs differ where they do so by more than this share of the largest: below lies the rounding of kernels"""
MATES = 32
"""images whose outputs are taken again beside other images"""
RANDOM = "The output is random, so one attack says nothing about another."


def guessing(images: int, classes: int) -> float:
    """How many images guessing recognises at best: two standard deviations above what it gets on average."""
    return images / classes + 2 * (images / classes * (1 - 1 / classes)) ** 0.5


@dataclass(frozen=True)
class Flag:
    """One way in which a number can deceive."""

    name: str
    raised: bool
    sentence: str
    """what was seen"""
    evidence: Mapping[str, int | float]
    judged: bool = True
    """False where an earlier flag leaves nothing to judge by; the sentence says why"""

    @property
    def verdict(self) -> str:
        return "raised" if self.raised else "clear" if self.judged else "not judged"


class Outputs:
    """The outputs of two passes over the data, and of a third over a few images beside others."""

    def __init__(self, model: nn.Module, data: Data, seed: int) -> None:
        device = home_of(model)
        images = [data.batch(positions, device) for positions in torch.arange(len(data)).split(BLOCK)]
        labels = torch.cat([batch.labels for batch in images])
        chunk = rows_per_pass((data.channels, *data.size), device)
        few = images[0].images[: min(MATES, max(1, chunk // 2))]

        def passed(images: Tensor, draw: int, chunk: int) -> Tensor:
            torch.manual_seed(seed + draw)
            return torch.cat([model(part).float() for part in images.split(chunk)])

        with scoring(model, device):
            # one after the other in one context: afterwards torch's generators are as they were
            first, second = (torch.cat([passed(batch.images, draw, chunk) for batch in images]) for draw in (0, 1))
            pairs = [torch.cat([few, mates]) for mates in (few.flip(0), few.flip(0), 1 - few)]
            answers = [passed(pair, 0, len(pair)) for pair in pairs]
            beside = [outputs[: len(few)] for outputs in answers]
            self.layers = [(name, part) for name, part in model.named_modules() if _active(part)]
        self.outputs, self.right = first.cpu(), right(first, labels).cpu()
        self._negatives = answers[2][len(few) :].cpu()
        self.forwards = 2 * len(data) + 6 * len(few)
        self._changed = _apart(first, second)
        self._classes = int((first.argmax(1) != second.argmax(1)).sum())
        self._replayed, self._mixed = not bool(_apart(beside[0], beside[1]).any()), _apart(beside[0], beside[2])

    def random(self) -> Flag:
        changed, count = int(self._changed.sum()), len(self._changed)
        said = "Two passes over the same images gave the same outputs."
        if changed:
            said = f"Two passes over the same images gave other outputs for {changed} of {count}"
            said += f" and another class for {self._classes}." + self._named(nn.modules.dropout._DropoutNd, "Dropout")
        seen = {"images": count, "differ": changed, "other_class": self._classes}
        return Flag("random-output", changed > 0, said, seen)

    def mates(self) -> Flag:
        mixed, count = int(self._mixed.sum()), len(self._mixed)
        if not self._replayed:
            return Flag("batch-mates", False, RANDOM, {}, judged=False)
        said = "Outputs stay the same when the other images of a batch are replaced."
        if mixed:
            said = f"Other images in the same batch changed the outputs of {mixed} of {count} images."
            said += self._named(nn.modules.batchnorm._NormBase, "Batch statistics")
        return Flag("batch-mates", mixed > 0, said, {"images": count, "differ": mixed})

    def probabilities(self) -> Flag:
        finite = self.outputs[self.outputs.isfinite().all(1)]
        if (missing := len(self.outputs) - len(finite)) == len(self.outputs):
            return Flag("probabilities", False, "All outputs are NaN or infinite.", {"not_finite": missing}, False)
        lowest, highest, off = map(float, (*finite.aminmax(), _off(finite).max()))
        said = f"Outputs lie between {lowest + 0:.3g} and {highest + 0:.3g}: logits."  # + 0: zero has no minus
        # logits of one image may add up to 1 by chance, but not those of its negative too; bfloat16 is off by 0.002
        more = torch.cat([finite, self._negatives[self._negatives.isfinite().all(1)]])
        found = not bool((more < 0).any()) and bool((_off(more) < 1e-2).all())
        if found:
            said = "Every row of outputs adds up to 1: probabilities, not logits. Their logarithm is attacked here."
        said += f" NaN or infinite: {missing} of {len(self.outputs)}." * bool(missing)
        seen = {"lowest": lowest, "highest": highest, "sum_is_off_by": off, "not_finite": missing}
        return Flag("probabilities", found, said, seen)

    def chance(self, classes: int) -> Flag:
        count, found = len(self.right), int(self.right.sum())
        guessed = guessing(count, classes)
        said = f"{found} of {count} images are recognised"
        said += f"; guessing among {classes} classes gets up to {int(guessed)}." if found <= guessed else "."
        seen = {"images": count, "recognised": found, "guessing": guessed}
        if found == count <= guessed:  # the best that there is would look like chance
            return Flag("chance-accuracy", False, f"{said[:-1]}, so more images are needed.", seen, judged=False)
        return Flag("chance-accuracy", found <= guessed, said, seen)

    def _named(self, kind: type[nn.Module], what: str) -> str:
        names = [name or type(part).__name__ for name, part in self.layers if isinstance(part, kind)]
        return f" {what} active in evaluation mode: {', '.join(names[:3])}." if names else ""


def _off(rows: Tensor) -> Tensor:
    """How far the sum of each row is from 1, `[N]`."""
    return (rows.double().sum(1) - 1).abs()


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """Rows that differ by more than rounding, bool `[N]`; what is not finite in both alike does not differ."""
    limit = SAME * max(1.0, float(one.nan_to_num(0, 0, 0).abs().max()))
    return ~torch.isclose(one, other, rtol=0, atol=limit, equal_nan=True).all(1)


def _active(part: nn.Module) -> bool:
    """A layer that is in training mode, or one that has no statistics but those of its batch."""
    return part.training or (isinstance(part, nn.modules.batchnorm._NormBase) and part.running_mean is None)

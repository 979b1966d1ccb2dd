"""Two coverage-guided fuzzers on our own variations: in the manner of DeepHunter, and of TensorFuzz.

Both keep a corpus of variants, mutate one gene of some of them per round (a metamorphic mutation: the label is kept,
because the whole chromosome stays inside its space and is applied to the unchanged image), keep what the guide finds
new, and report what the model gets wrong. They differ in the guide: DeepHunter counts sections of each neuron's range
that were never hit (k-multisection coverage), TensorFuzz measures the distance to the nearest activation seen.

What is new depends on all that came before, so a run is a function of its seed, its data and its batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from ukemi import randomness
from ukemi.activations import check_rows, over_data, recording, sections, unit_mean
from ukemi.attacks.norms import length
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.genetics import MUTATIONS
from ukemi.models.inference import FEW, default_chunk, home_of, logits, padded, right, scoring
from ukemi.randomness import Stream
from ukemi.schema import Schema
from ukemi.spaces import T6, Space
from ukemi.variations import vary

MOST_SEEN = 2**14
"""activations that TensorFuzz's store holds; when it is full nothing is new any more"""
Report = Callable[[int, int], None]


class FuzzSettings(Schema):
    """How long and how wide a fuzzer works."""

    rounds: int = Field(50, ge=1)
    """How often the corpus is picked from."""
    batch: int = Field(32, ge=1)
    """Entries of the corpus that are mutated per round."""
    mutants: int = Field(8, ge=1)
    """Mutants of each."""


class Guide(Protocol):
    """What decides whether activations are new, and remembers them."""

    def novel(self, values_MU: Tensor) -> Tensor:
        """bool `[M]`, each judged by what was seen before this call; then all are seen."""

    def coverage(self) -> float: ...


class Sections:
    """k-multisection coverage (DeepGauge; DeepHunter's feedback): new is what hits a section of some neuron's range
    that nothing hit before. Ranges are those over `reference`; values outside are not counted."""

    def __init__(self, model: nn.Module, reference: Data, count: int = 100) -> None:
        ends = [torch.cat(means, 1).aminmax(dim=0) for _, means in over_data(model, reference, unit_mean)]
        self._low = torch.stack([end.min for end in ends]).amin(0)
        self._high = torch.stack([end.max for end in ends]).amax(0)
        self._count = count
        # row 0 is outside the range; it counts as hit, so that it is never new
        self._hit = torch.zeros(count + 1, len(self._low), dtype=torch.bool, device=self._low.device)
        self._hit[0] = True

    def novel(self, values_MU: Tensor) -> Tensor:
        at_MU = sections(values_MU, self._low, self._high, self._count) + 1
        fresh_M = (~self._hit.gather(0, at_MU)).any(1)
        self._hit.scatter_(0, at_MU, True)
        return fresh_M

    def coverage(self) -> float:
        """The share of all sections that were hit."""
        return float(self._hit[1:].double().mean())


class Distances:
    """TensorFuzz's feedback: new is what lies further than `threshold` from every activation seen, measured on the
    last recorded layer. Without a threshold it is the median distance between nearest neighbours of `reference`."""

    def __init__(self, model: nn.Module, reference: Data, threshold: float | None = None) -> None:
        traces = torch.cat([means[-1] for _, means in over_data(model, reference, unit_mean)])
        self._width = traces.shape[1]
        if threshold is None and len(traces) < 2:
            raise UserError("activations: how far neighbours lie apart takes at least 2 images, but 1 was given.")
        self.threshold = float(_nearest(traces, traces, apart=True).median()) if threshold is None else threshold
        self._seen = traces[:0]

    def novel(self, values_MU: Tensor) -> Tensor:
        traces = values_MU[:, -self._width :]
        room = MOST_SEEN - len(self._seen)
        fresh_M = (_nearest(traces, self._seen) > self.threshold) & (room > 0)
        self._seen = torch.cat([self._seen, traces[fresh_M][: max(0, room)]])
        return fresh_M

    def coverage(self) -> float:
        """How many activations are kept."""
        return float(len(self._seen))


def _nearest(values_MU: Tensor, seen_SU: Tensor, apart: bool = False) -> Tensor:
    """The distance to the nearest of `seen_SU`, `[M]`; with `apart` rows of equal number are not compared."""
    if not len(seen_SU):
        return torch.full((len(values_MU),), torch.inf, device=values_MU.device)
    parts = []
    for start in range(0, len(values_MU), 256):
        distance = torch.cdist(values_MU[start : start + 256].double(), seen_SU.double())
        if apart:
            row = torch.arange(len(distance), device=distance.device)
            distance[row, start + row] = torch.inf
        parts.append(distance.amin(1))
    return torch.cat(parts).to(values_MU.dtype)


GUIDES: dict[str, Callable[[nn.Module, Data], Guide]] = {"deephunter": Sections, "tensorfuzz": Distances}
"""What guides each fuzzer, by the name that the command line uses: made of the model and reference data."""


@dataclass(frozen=True)
class Fuzzed:
    """All that a fuzzer kept, N inputs in the order of finding; tensors on the CPU."""

    images: Tensor
    """`[N, C, H, W]` in [0, 1]"""
    labels: Tensor
    """int64 `[N]`"""
    index: Tensor
    """int64 `[N]`: the identity of the image that each came from"""
    turned: Tensor
    """bool `[N]`: the model recognises the image and not this variant; the others are new, and recognised"""
    genes: Tensor
    """`[N, G]`"""
    distance: Tensor
    """`[N]`: Linf, from the unchanged image"""
    coverage: tuple[float, ...]
    """what the guide had covered after each round"""
    evaluations: int

    def as_data(self, like: Data, *, turned: bool = True) -> Data:
        """The turned inputs, or all, as labelled images with the identities of their origins."""
        rows = self.turned if turned else torch.ones_like(self.turned)
        return Data(self.images[rows], self.labels[rows], like.classes, self.index[rows], like.identities)


def fuzz(
    model: nn.Module,
    data: Data,
    guide: Guide,
    settings: FuzzSettings | None = None,
    *,
    space: Space = T6,
    seed: int = 0,
    report: Report | None = None,
) -> Fuzzed:
    """Fuzzes the images of `data` that the model recognises; `report(done, total)` hears of rounds. Where it recognises
    none there is nothing to turn, and nothing is kept."""
    settings, device = settings or FuzzSettings(), home_of(model)
    if not len(data):
        return _nothing(data, space)
    batch = data.batch(torch.arange(len(data)), device)
    chunk = default_chunk((data.channels, *data.size), device, FEW)
    known = right(logits(model, batch.images, chunk), batch.labels).nonzero().flatten()
    if not len(known):
        return _nothing(data, space)
    seeds, labels = batch.images[known], batch.labels[known]
    corpus = _Corpus(space, len(known), device)
    guide.novel(_values(model, seeds, chunk)[1])
    kept, coverage = list[tuple[Tensor, ...]](), []
    for number in range(settings.rounds):
        roots, codes = corpus.mutants(settings.batch, settings.mutants, seed, number)
        genes = space.decode(codes)
        images = vary(seeds[roots], genes, space)
        answers, values = _values(model, images, chunk)
        wrong = ~right(answers, labels[roots])
        fresh = guide.novel(values) & ~wrong
        corpus.add(roots[fresh], codes[fresh])
        found = (wrong | fresh).nonzero().flatten()
        distance = length(images[found] - seeds[roots[found]], "linf")
        kept.append((images[found], labels[roots[found]], known[roots[found]], wrong[found], genes[found], distance))
        coverage.append(guide.coverage())
        if report is not None:
            report(number + 1, settings.rounds)
    images, labels, rows, turned, genes, distance = (torch.cat(column).cpu() for column in zip(*kept, strict=True))
    index = batch.index.cpu()[rows]
    made = settings.rounds * settings.batch * settings.mutants
    return Fuzzed(images, labels, index, turned, genes, distance, tuple(coverage), made)


def _nothing(data: Data, space: Space) -> Fuzzed:
    none, no = torch.empty(0, dtype=torch.int64), torch.empty(0)
    images, genes = torch.empty(0, data.channels, *data.size), torch.empty(0, len(space))
    return Fuzzed(images, none, none, none.bool(), genes, no, (), 0)


class _Corpus:
    """Chromosomes that were kept, the image that each belongs to, and how often it was picked."""

    def __init__(self, space: Space, seeds: int, device: torch.device) -> None:
        self._space = space
        self._codes = space.encode(space.identity(device)).expand(seeds, -1)
        self._roots = torch.arange(seeds, device=device)
        self._picked = torch.zeros(seeds, dtype=torch.int64, device=device)

    def mutants(self, batch: int, each: int, seed: int, number: int) -> tuple[Tensor, Tensor]:
        """`batch` entries, those that were picked least (by a keyed order among equals), each mutated `each` times."""
        entries = torch.arange(len(self._roots), device=self._roots.device)
        order = randomness.bits(entries, seed=seed, stream=Stream.FUZZ, epoch=number).argsort(stable=True)
        order = order[self._picked[order].argsort(stable=True)]
        chosen = order.repeat(-(-batch // len(order)))[:batch]  # a small corpus is picked from more than once
        self._picked += torch.bincount(chosen, minlength=len(order))
        places = torch.arange(batch, device=chosen.device)

        def draw(many: int) -> Tensor:
            return randomness.uniform(places, each, many, seed=seed, stream=Stream.FUZZ, epoch=number).double()

        parents = self._codes[chosen][:, None].expand(-1, each, -1)
        calm = torch.zeros(batch, device=chosen.device)
        codes = MUTATIONS["redraw"](parents, calm, draw, self._space, 0.0)
        return self._roots[chosen].repeat_interleave(each), codes.flatten(0, 1)

    def add(self, roots: Tensor, codes: Tensor) -> None:
        self._roots, self._codes = torch.cat([self._roots, roots]), torch.cat([self._codes, codes])
        self._picked = torch.cat([self._picked, torch.zeros_like(roots)])


def _values(model: nn.Module, images: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """Logits `[M, K]` and the mean of every unit `[M, U]`, in passes of one shape."""
    parts = []
    for rows in images.split(chunk):
        with scoring(model, images.device), recording(model, unit_mean) as outputs:
            answers = model(padded(rows, chunk)).float()
        check_rows(outputs, chunk)
        parts.append((answers[: len(rows)].clone(), torch.cat(outputs, 1)[: len(rows)].clone()))
    answers, values = (torch.cat(column) for column in zip(*parts, strict=True))
    return answers, values

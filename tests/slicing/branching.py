"""A small network with everything that branches and pools, its forward pass by hand, and its slow slices."""

import slow_slices as slow
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi.data import Data


class Branching(nn.Module):
    """Conv, BatchNorm, ReLU, max-pool; a residual block; a grouped branch beside it, joined; average pool, Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2)
        self.block = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.side = nn.Conv2d(4, 2, 1, groups=2)
        self.average = nn.AvgPool2d(2)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.norm(self.stem(x))))
        x = torch.cat([self.block(x) + x, self.side(x)], 1)
        return self.head(self.drop(torch.flatten(self.average(x), 1)))

    @torch.no_grad()
    def nodes(self, x: Tensor) -> dict[str, Tensor]:
        """The outputs that slices look at."""
        stem = self.stem(x)
        active = F.relu(self.norm(stem))
        pooled = self.pool(active)
        block, side = self.block(pooled), self.side(pooled)
        total = block + pooled
        joined = torch.cat([total, side], 1)
        flat = self.average(joined).flatten(1)
        return {
            "image": x,
            "stem": stem,
            "active": active,
            "pooled": pooled,
            "block": block,
            "side": side,
            "total": total,
            "joined": joined,
            "flat": flat,
            "head": self.head(flat),
        }


WEIGHTS = ("stem", "block", "side", "head")
Sums = dict[str, Tensor]


def branching() -> Branching:
    """In float64, with statistics that are not those of a fresh layer."""
    model = Branching().double().eval()
    model.norm.running_mean.uniform_(-0.5, 0.5)
    model.norm.weight.data.uniform_(-1, 1)
    return model


def samples(count: int, classes: int = 3, channels: int = 2, side: int = 4) -> Data:
    """Random images in float64 with labels in turn."""
    images = torch.rand(count, channels, side, side, dtype=torch.float64)
    index = torch.arange(count)
    return Data(images, index % classes, tuple("abcdefgh"[:classes]), index, count)


def means_of(value: Tensor) -> Tensor:
    return value.flatten(2).mean(2) if value.ndim > 2 else value


def by_channels(model: Branching, data: Data, baseline: Data) -> dict[int, tuple[Sums, Sums]]:
    """Signs and real values of the synapses by class, in the paper's reading."""
    usual = {name: means_of(value).mean(0) for name, value in model.nodes(baseline.images).items()}
    moved = {name: (means_of(value) - usual[name]).tolist() for name, value in model.nodes(data.images).items()}
    return _added(data, lambda at: _one_by_channels(model, {name: rows[at] for name, rows in moved.items()}, data, at))


def by_class_means(model: Branching, data: Data) -> dict[int, tuple[Sums, Sums]]:
    """The same with one mean activation per class in place of its samples."""
    nodes = {name: means_of(value) for name, value in model.nodes(data.images).items()}
    found = {}
    for label in range(3):
        own = data.labels == label
        moved = {name: (value[own].mean(0) - value.mean(0)).tolist() for name, value in nodes.items()}
        found[label] = _one_by_channels(model, moved, data, int(own.nonzero()[0]))
    return found


def by_places(model: Branching, data: Data, baseline: Data, theta: float) -> dict[int, tuple[Sums, Sums]]:
    """Synapses by class, in NNSlicer's reading."""
    usual = {name: value.mean(0) for name, value in model.nodes(baseline.images).items()}
    nodes = model.nodes(data.images)
    return _added(data, lambda at: _one_by_places(model, {n: v[at] for n, v in nodes.items()}, usual, data, at, theta))


def _added(data: Data, of_sample) -> dict[int, tuple[Sums, Sums]]:
    found: dict[int, tuple[Sums, Sums]] = {}
    for at, label in enumerate(data.labels.tolist()):
        one = of_sample(at)
        if label in found:
            one = tuple({name: one[part][name] + found[label][part][name] for name in WEIGHTS} for part in (0, 1))
        found[label] = one
    return found


def _one_by_channels(model: Branching, moved: dict[str, list[float]], data: Data, at: int) -> tuple[Sums, Sums]:
    signs, reals = {}, {}

    def weighted(name: str, given: list[float], source: str, groups: int = 1) -> list[float]:
        weight = getattr(model, name).weight.detach()
        kernel = weight.sum((2, 3)) if weight.ndim > 2 else weight
        back, signs[name], reals[name] = slow.dense(given, moved[name], moved[source], kernel, groups)
        return back

    start = [float(k == int(data.labels[at])) for k in range(3)]
    joined = weighted("head", start, "flat")  # one place is left of each map, so units are channels
    total, side = joined[:4], joined[4:]
    through_block = weighted("block", slow.term(total, moved["total"], moved["block"]), "pooled")
    skipped = slow.term(total, moved["total"], moved["pooled"])
    through_side = weighted("side", side, "pooled", groups=2)
    weighted("stem", [sum(parts) for parts in zip(through_block, skipped, through_side, strict=True)], "image")
    return signs, reals


def _one_by_places(
    model: Branching, nodes: dict[str, Tensor], usual: dict[str, Tensor], data: Data, at: int, theta: float
) -> tuple[Sums, Sums]:
    moved = {name: value - usual[name] for name, value in nodes.items()}
    signs: Sums = {}
    start = torch.tensor([float(k == int(data.labels[at])) for k in range(3)], dtype=torch.float64)
    flat, signs["head"] = slow.linear(start, moved["flat"], model.head.weight.detach(), theta)
    joined = slow.mean_pooled(flat[:, None, None], moved["joined"], 2, 2, theta)
    total, side = joined[:4], joined[4:]
    terms = torch.stack([moved["block"], moved["pooled"]], -1).flatten(0, -2).tolist()
    kept = torch.tensor([slow.kept_signs(pair, theta) for pair in terms], dtype=torch.float64)
    block, skipped = (kept * total.sign().flatten()[:, None]).unflatten(0, total.shape).unbind(-1)
    weight = model.block.weight.detach()
    pooled, signs["block"] = slow.convolved(block, moved["pooled"], weight, theta, padding=1)
    pooled, weight = pooled + skipped, model.side.weight.detach()
    halves = []
    for group in range(2):
        inputs, outputs = slice(2 * group, 2 * group + 2), slice(group, group + 1)
        halves.append(slow.convolved(side[outputs], moved["pooled"][inputs], weight[outputs], theta))
    pooled = pooled + torch.cat([back for back, _ in halves])
    signs["side"] = torch.cat([part for _, part in halves])
    active = slow.max_pooled(pooled, nodes["active"], 2, 2)
    _, signs["stem"] = slow.convolved(active, moved["image"], model.stem.weight.detach(), theta, padding=1)
    return signs, signs

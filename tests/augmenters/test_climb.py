"""Skipped samples that climb: two passes instead of eleven, beside a slow one in plain Python."""

import pytest
import torch
from test_sensei import SlowSA, losses_of, rows, slow_children
from torch import Tensor, nn

from ukemi import T3, Sensei, vary
from ukemi.data import DataSet


class SlowClimb(SlowSA):
    def epoch(self, model: nn.Module, image: Tensor, label: Tensor, epoch: int) -> list[int]:
        if self.active:
            return super().epoch(model, image, label, epoch)
        child = slow_children(self.parents, self.sample, 1, T3, 4, epoch)[0]
        old, new = losses_of(model, image, label, [self.worst, child])
        if new > old:
            self.worst, self.parents = child, [child, *self.parents[:3]]
        self.active = max(old, new) > self.threshold
        self.scored += 2
        return self.worst


@pytest.mark.parametrize("planned", ["no", "yes", "filled"])
def test_climbing_equals_the_slow_one(planned: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model, threshold = tiny_net.double(), 2.45
    sensei = Sensei(T3, samples=8, seed=4, settings="sensei-sa", threshold=threshold, skipped="climb")
    slow = [SlowClimb(sample, threshold, compete=False) for sample in range(8)]
    climbed = woken = moved = 0
    for epoch in range(1, 16):
        searched, before = [one.active for one in slow], [one.worst for one in slow]
        expected = [one.epoch(model, images[at], labels[at], epoch) for at, one in enumerate(slow)]
        sensei._turn(sensei._stored(index.device), epoch)
        if planned != "no":
            sensei.planned = sensei.plan([index])[0] if planned == "yes" else 8 * 9 + 8
        found = sensei(model, images, labels, index, epoch)
        assert sensei.genes is not None and torch.equal(found, vary(images, sensei.genes, T3))
        assert T3.encode(sensei.genes).tolist() == expected
        sensei.observe(index, torch.zeros(8, 10), labels)  # says nothing new: the climb itself has looked
        assert sensei.state_dict()["coming"].tolist() == [one.active for one in slow]
        climbed += searched.count(False)
        woken += sum(one.active and not was for one, was in zip(slow, searched, strict=True))
        moved += sum(a != b and not was for a, b, was in zip(before, expected, searched, strict=True))
        with torch.no_grad():
            model[5].bias += 0.02 * torch.arange(10)
    assert climbed and woken and 0 < moved < climbed
    if planned == "filled":
        assert sensei.forwards == 15 * 8 * (11 + 2)
    else:
        assert sensei.forwards == sum(one.scored for one in slow)


def test_on_a_gpu_a_plan_covers_every_batch_of_its_size() -> None:
    """One number for all: as many searched rows as the fullest batch needs, as many climbing as the emptiest does."""
    sensei = Sensei(T3, samples=96, settings="sensei-sa", skipped="climb")
    searching, climbing = divmod(sensei._planned(most=19, least=3, size=32, fill=True), 33)[::-1]
    assert (searching, climbing) == (20, 30)
    assert divmod(sensei._planned(most=32, least=32, size=32, fill=True), 33) == (0, 32)
    plain = Sensei(T3, samples=96, settings="sensei-sa")
    assert plain._planned(most=19, least=3, size=32, fill=True) == 20

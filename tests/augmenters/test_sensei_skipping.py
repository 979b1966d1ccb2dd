"""SENSEI-SA in closed form: who is robust, what is counted, how a skipped sample looks."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, Sensei, vary
from ukemi.data import DataSet

sys.path.insert(0, str(Path(__file__).parent))
from test_sensei import rows


class ByLook(nn.Module):
    """Right on the variants of images, or on the images themselves; wrong, with a high loss, on the others."""

    def __init__(self, images: Tensor, right_on: str) -> None:
        super().__init__()
        self.images, self.right_on = images, right_on

    def forward(self, x: Tensor) -> Tensor:
        clean = (x[:, None] == self.images).flatten(2).all(2).any(1)
        right = clean if self.right_on == "clean" else ~clean if self.right_on == "variants" else clean | True
        return torch.where(right[:, None], torch.tensor([20.0, 0.0]), torch.tensor([0.0, 20.0])).double()


@pytest.mark.parametrize("when", ["batch", "epoch"])
@pytest.mark.parametrize("skip", ["loss", "classification"])
@pytest.mark.parametrize(("right_on", "robust"), [("all", True), ("variants", False), ("clean", False)])
def test_robust_is_who_holds_on_the_unchanged_image_and_on_all_children(
    right_on: str, robust: bool, skip: str, when: str, fashion: DataSet
) -> None:
    images, _, index = rows(fashion)
    data = replace(fashion.train.take(index), images=images, labels=torch.zeros(8).long())
    sensei = Sensei(T3, samples=8, settings="sensei-sa", skip=skip, when=when)
    sensei.begin_epoch(ByLook(images, right_on), data, 1)
    sensei(ByLook(images, right_on), images, data.labels, index, 1)
    assert sensei.state_dict()["coming"].tolist() == [not robust] * 8
    assert sensei.forwards == 8 * 11 and sensei.spared == -8


def test_a_loss_of_the_threshold_itself_is_robust(fashion: DataSet) -> None:
    images, _, index = rows(fashion)
    loss = float(nn.functional.cross_entropy(torch.tensor([[20.0, 0.0]]), torch.tensor([1])))
    for labels, threshold, robust in ((1, loss, True), (1, loss - 1e-4, False)):
        sensei = Sensei(T3, samples=8, settings="sensei-sa", threshold=threshold)
        sensei(ByLook(images, "all"), images, torch.full((8,), labels), index, 1)
        assert sensei.state_dict()["coming"].tolist() == [not robust] * 8


@pytest.mark.parametrize(("fitness", "usual"), [("cross-entropy", 10), ("kl", 11)])
def test_what_is_saved_is_counted_beside_a_search_that_skips_nobody(
    fitness: str, usual: int, tiny_net: nn.Module, fashion: DataSet
) -> None:
    images, labels, index = rows(fashion)
    skipping, plain = (
        Sensei(T3, samples=8, settings=settings, fitness=fitness, threshold=100.0)
        for settings in ("sensei-sa", "sensei")
    )
    for epoch in (1, 2, 3):
        for sensei in (skipping, plain):
            found = sensei(tiny_net.double(), images, labels, index, epoch)
            sensei.observe(index, tiny_net(found), labels)
    assert plain.forwards == 3 * 8 * usual and skipping.forwards == 8 * (usual + 1)
    assert skipping.spared == plain.forwards - skipping.forwards


@pytest.mark.parametrize("when", ["batch", "epoch"])
@pytest.mark.parametrize("skipped", ["worst", "clean", "random"])
def test_a_skipped_sample_is_flipped_as_any_other(
    skipped: str, when: str, tiny_net: nn.Module, fashion: DataSet
) -> None:
    images, labels, index = rows(fashion)
    data = replace(fashion.train.take(index), images=images)
    sensei = Sensei(T3, samples=8, settings="sensei-sa", threshold=100.0, skipped=skipped, when=when, flips=True)
    for epoch in (1, 2):
        sensei.begin_epoch(tiny_net.double(), data, epoch)
        found = sensei(tiny_net, images, labels, index, epoch)
        sensei.observe(index, torch.zeros(8, 10), labels)
    assert sensei.genes is not None and not sensei.state_dict()["active"].any()
    variants = vary(images, sensei.genes, T3)
    assert torch.equal(found, sensei.flipped(variants, index, 2)) and not torch.equal(found, variants)


def test_rows_that_only_fill_a_shape_are_not_judged(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    sensei = Sensei(T3, samples=8, settings="sensei-sa", threshold=100.0)
    sensei(tiny_net.double(), images, labels, index, 1)
    sensei._turn(sensei._stored(index.device), 2)
    object.__setattr__(sensei, "settings", sensei.settings.model_copy(update={"threshold": 1e-9}))
    sensei.planned = 8  # all are skipped, and all are searched to fill the shape
    sensei(tiny_net, images, labels, index, 2)
    assert sensei.forwards == 2 * 8 * 11 and not sensei.state_dict()["coming"].any()


def test_what_was_planned_for_batches_is_not_asked_of_the_search_ahead(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    data, found = replace(fashion.train.take(index), images=images), []
    for planned in (None, -1, 0):  # what the training loop left from the epoch before
        sensei = Sensei(T3, samples=8, settings="sensei-sa", when="epoch")
        sensei.planned = planned
        sensei.begin_epoch(tiny_net.double(), data, 1)
        found.append(sensei(tiny_net, images, labels, index, 1))
        assert sensei.forwards == 8 * 11 and sensei.state_dict()["begun"].all()
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])

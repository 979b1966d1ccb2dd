"""The SENSEI family against plain Python: generations, survivors, skipping, presets, and what a user may plug in."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ukemi import T3, T6, Sensei, vary
from ukemi.augmenters import PRESETS
from ukemi.augmenters.store import Store
from ukemi.data import DataSet
from ukemi.genetics import Breeding, first_population, unpacked

sys.path.insert(0, str(Path(__file__).parents[1] / "genetics"))
from test_genetics import slow_children


def rows(data: DataSet, count: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    batch = data.train.batch(torch.arange(count), "cpu")
    return batch.images.double(), batch.labels, batch.index


def losses_of(model: nn.Module, image: Tensor, label: Tensor, codes: list[list[int]]) -> list[float]:
    with torch.no_grad():
        genes = T3.decode(torch.tensor(codes))
        logits = model.eval()(vary(image.expand(len(codes), -1, -1, -1), genes, T3))
    return nn.functional.cross_entropy(logits, label.expand(len(codes)), reduction="none").tolist()


class SlowSA:
    """SENSEI-SA for one sample in plain Python: who is scored, what is trained, whether it is searched next time."""

    def __init__(self, sample: int, threshold: float, compete: bool) -> None:
        self.sample, self.threshold, self.compete = sample, threshold, compete
        self.parents = first_population(torch.tensor([sample]), 10, T3, seed=4)[0].tolist()
        self.begun, self.active, self.worst = False, True, [0, 0, 0, 0]
        self.scored = 0

    def epoch(self, model: nn.Module, image: Tensor, label: Tensor, epoch: int) -> list[int]:
        if not self.active:
            return self.worst
        if not self.compete:
            candidates = slow_children(self.parents, self.sample, 10, T3, 4, epoch)
        elif self.begun:
            how = Breeding(apart=True, edge=0.3)
            candidates = self.parents + slow_children(self.parents, self.sample, 6, T3, 4, epoch, how)
        else:
            candidates = self.parents
        losses = losses_of(model, image, label, candidates)
        order = sorted(range(10), key=lambda at: (-losses[at], at))
        self.parents, self.begun = [candidates[at] for at in order[:4]], True
        self.worst = candidates[order[0]]
        clean = losses_of(model, image, label, [T3.encode(T3.identity()).tolist()])[0]
        self.active = not all(loss <= self.threshold for loss in [*losses, clean])
        self.scored += 11
        return self.worst

    def observed(self, loss: float, searched: bool) -> None:
        if not searched:
            self.active = loss > self.threshold


@pytest.mark.parametrize("compete", [False, True])
@pytest.mark.parametrize("observes", [True, False])
def test_selective_augmentation_equals_the_slow_one(
    compete: bool, observes: bool, tiny_net: nn.Module, fashion: DataSet
) -> None:
    images, labels, index = rows(fashion)
    model, threshold = tiny_net.double(), 2.38
    preset = {"settings": "ukemi", "skip": "loss", "edge": 0.3} if compete else {"settings": "sensei-sa"}
    sensei = Sensei(T3, samples=8, seed=4, threshold=threshold, **preset)
    slow = [SlowSA(sample, threshold, compete) for sample in range(8)]
    skipped = again = 0
    for epoch in range(1, 7):
        searched = [one.active for one in slow]
        expected = [one.epoch(model, images[at], labels[at], epoch) for at, one in enumerate(slow)]
        order = torch.randperm(8)
        for part in order.split(3):
            found = sensei(model, images[part], labels[part], index[part], epoch)
            assert sensei.genes is not None and torch.equal(found, vary(images[part], sensei.genes, T3))
            assert T3.encode(sensei.genes).tolist() == [expected[at] for at in part.tolist()]
            with torch.no_grad():
                logits = model.eval()(found)
            if observes:
                sensei.observe(index[part], logits, labels[part])
        skipped += searched.count(False)
        with torch.no_grad():  # weights move a little, so that robust samples stop being so
            model[5].bias += 0.02 * torch.arange(10)
        if observes:
            # what observe saw: the logits before the weights moved
            with torch.no_grad():
                model[5].bias -= 0.02 * torch.arange(10)
                for at, one in enumerate(slow):
                    one.observed(losses_of(model, images[at], labels[at], [expected[at]])[0], searched[at])
                model[5].bias += 0.02 * torch.arange(10)
        else:
            for at, one in enumerate(slow):  # nobody observed: the next visit's own pass decides
                one.observed(losses_of(model, images[at], labels[at], [expected[at]])[0], searched[at])
        if observes:
            assert sensei.state_dict()["coming"].tolist() == [one.active for one in slow]
        again += 0 if observes or epoch == 6 else searched.count(False)
    assert 0 < skipped < 40
    # where nobody observes, every sample that was skipped costs one pass at its next visit
    assert sensei.forwards == sum(one.scored for one in slow) + again
    assert sensei.spared == 6 * 8 * 10 - sensei.forwards


def test_a_skipped_sample_is_searched_again_once_its_loss_rises(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    sensei = Sensei(T3, samples=8, settings="sensei-sa", threshold=100.0)
    model = tiny_net.double()
    sensei(model, images, labels, index, 1)
    logits = torch.zeros(8, 10)
    sensei.observe(index, logits, labels)
    before = sensei.forwards
    sensei(model, images, labels, index, 2)
    # all robust: no pass at all, after eight for the unchanged images
    assert sensei.forwards == before and sensei.spared == 80 - 8
    logits[3, labels[3]] = -1000.0  # sample 3 falls
    sensei.observe(index, logits, labels)
    sensei(model, images, labels, index, 3)
    assert sensei.forwards == before + 11
    assert sensei.state_dict()["active"].tolist() == [at == 3 for at in range(8)]


@pytest.mark.parametrize("when", ["batch", "epoch"])
@pytest.mark.parametrize("skipped", ["worst", "clean", "random"])
def test_what_a_skipped_sample_is_trained_on(skipped: str, when: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    data = replace(fashion.train.take(index), images=images)
    sensei = Sensei(T3, samples=8, settings="sensei-sa", threshold=100.0, skipped=skipped, when=when, seed=9)
    model = tiny_net.double()
    sensei.begin_epoch(model, data, 1)
    first = sensei(model, images, labels, index, 1)
    sensei.observe(index, torch.zeros(8, 10), labels)
    sensei.begin_epoch(model, data, 2)
    second = sensei(model, images, labels, index, 2)
    expected = {"worst": first, "clean": images, "random": vary(images, T3.sample(index, seed=9, epoch=2)[:, 0], T3)}
    assert torch.equal(second, expected[skipped])


def test_classification_decides_where_it_is_asked_to(fashion: DataSet) -> None:
    images, labels, index = rows(fashion)

    class Knows(nn.Module):
        """Right on the first four samples, wrong on the others, whatever the variant; its losses are high."""

        def forward(self, x: Tensor) -> Tensor:
            said = labels.clone()
            said[4:] = (said[4:] + 1) % 10
            return nn.functional.one_hot(said.repeat_interleave(len(x) // 8), 10).double() * 0.1

    sensei = Sensei(T3, samples=8, settings="sensei-sa", skip="classification")
    sensei(Knows(), images, labels, index, 1)
    assert sensei.state_dict()["coming"].tolist() == [False] * 4 + [True] * 4
    sensei = Sensei(T3, samples=8, settings="sensei-sa")
    sensei(Knows(), images, labels, index, 1)
    assert sensei.state_dict()["coming"].all()


def test_planned_and_unplanned_batches_give_the_same(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model = tiny_net.double()
    made = [Sensei(T3, samples=8, settings="sensei-sa", threshold=2.38) for _ in range(2)]
    for epoch in range(1, 4):
        for at, sensei in enumerate(made):
            sensei._turn(sensei._stored(index.device), epoch)
            if at:
                sensei.planned = sensei.plan([index])[0]
        outs = [sensei(model, images, labels, index, epoch) for sensei in made]
        assert torch.equal(*outs)
        for sensei, out in zip(made, outs, strict=True):
            with torch.no_grad():
                sensei.observe(index, model.eval()(out), labels)
    assert made[0].forwards == made[1].forwards < 8 * 11 * 3


def test_rows_that_only_fill_a_shape_change_nothing(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model = tiny_net.double()
    plain, filled = (Sensei(T3, samples=8, settings="sensei-sa", threshold=2.38) for _ in range(2))
    for epoch in range(1, 4):
        found = plain(model, images, labels, index, epoch)
        filled._turn(filled._stored(index.device), epoch)
        filled.planned = 8  # more rows than are active
        assert torch.equal(filled(model, images, labels, index, epoch), found)
        for sensei in (plain, filled):
            sensei.observe(index, torch.zeros(8, 10), labels)
    a, b = plain.state_dict(), filled.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a) and filled.forwards > plain.forwards


def test_an_epoch_wise_search_equals_a_batch_wise_one_on_frozen_weights(tiny_net: nn.Module, fashion: DataSet) -> None:
    model = tiny_net.double()
    images, labels, index = rows(fashion)
    data = replace(fashion.train.take(index), images=images)
    ahead = Sensei(T3, samples=8, when="epoch", crossing="one-point-or-none")
    now = Sensei(T3, samples=8, crossing="one-point-or-none")
    for epoch in range(1, 4):
        ahead.begin_epoch(model, data, epoch)
        assert torch.equal(ahead(model, images, labels, index, epoch), now(model, images, labels, index, epoch))
    assert ahead.forwards == now.forwards


@pytest.mark.parametrize("skip", ["never", "loss"])
def test_an_epoch_wise_search_uses_the_weights_at_the_epochs_start(
    skip: str, tiny_net: nn.Module, fashion: DataSet
) -> None:
    """Algorithm 2's literal reading: the slow search sees an epoch's first weights, and training moves them then."""
    images, labels, index = rows(fashion)
    data = replace(fashion.train.take(index), images=images)
    model = tiny_net.double()
    ahead = Sensei(T3, samples=8, seed=4, when="epoch", skip=skip, threshold=2.38)
    slow = [SlowSA(sample, 2.38, compete=False) for sample in range(8)]
    for epoch in range(1, 6):
        searched = [one.active for one in slow]
        expected = [one.epoch(model, images[at], labels[at], epoch) for at, one in enumerate(slow)]
        for one in slow:
            one.active = one.active or skip == "never"
        ahead.begin_epoch(model, data, epoch)
        for part in torch.randperm(8).split(3):
            found = ahead(model, images[part], labels[part], index[part], epoch)
            assert ahead.genes is not None and torch.equal(found, vary(images[part], ahead.genes, T3))
            assert T3.encode(ahead.genes).tolist() == [expected[at] for at in part.tolist()]
            with torch.no_grad():
                logits = model.eval()(found)
                for row, at in enumerate(part.tolist()):
                    if not searched[at]:
                        loss = nn.functional.cross_entropy(logits[row][None], labels[at][None])
                        slow[at].active = float(loss) > 2.38
                ahead.observe(index[part], logits, labels[part])
                model[5].weight += 0.02 * torch.randn_like(model[5].weight)  # a step
    assert ahead.forwards == sum(one.scored for one in slow) - (0 if skip == "loss" else 5 * 8)


def test_released_steps_stay_in_range_share_a_coin_and_are_capped(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model = tiny_net.double()
    sensei = Sensei(T3, samples=8, settings="sensei-released", cap=1, seed=2)
    plain = Sensei(T3, samples=8, settings="sensei-released", cap=0, seed=2)
    first = sensei(model, images, labels, index, 0), plain(model, images, labels, index, 0)
    changed = (first[0] != first[1]).flatten(1).any(1)
    with torch.no_grad():
        said = model.eval()(first[1]).argmax(1)
    seen: Counter[tuple[int, int]] = Counter()
    for at in range(
        8
    ):  # a pair of classes may be trained as mistaken twice, more than once; then the second-worst comes
        pair = int(labels[at]), int(said[at])
        assert bool(changed[at]) == (pair[0] != pair[1] and seen[pair] > 1)
        seen[pair] += 1
    for epoch in range(1, 5):
        sensei(model, images, labels, index, epoch)
        assert sensei.genes is not None and T3.contains(sensei.genes).all()
    assert sensei.state_dict()["batch"].tolist() == [1]  # counted anew in every epoch


def test_competing_parents_never_get_lost_on_frozen_weights(tiny_net: nn.Module, fashion: DataSet) -> None:
    images, labels, index = rows(fashion)
    model = tiny_net.double()
    sensei = Sensei(T3, samples=8, settings="ukemi")
    best = torch.zeros(8)
    for epoch in range(1, 6):
        sensei(model, images, labels, index, epoch)
        fitness = sensei.state_dict()["fitness"].clone()
        assert (fitness >= best).all()
        best = fitness
        parents = unpacked(sensei.state_dict()["parents"])
        assert all(len(torch.unique(row, dim=0)) == 4 for row in parents)


@given(seed=st.integers(0, 99), preset=st.sampled_from([name for name in PRESETS if name != "augmentation"]))
def test_genes_stay_in_range_over_generations(seed: int, preset: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).double()
    images, labels, index = torch.rand(5, 1, 6, 6).double(), torch.arange(5) % 3, torch.arange(5)
    sensei = Sensei(T6, samples=5, settings=preset, seed=seed)
    for epoch in range(3):
        sensei(model, images, labels, index, epoch)
        if sensei.genes is not None:
            assert T6.contains(sensei.genes).all()
    parents = unpacked(sensei.state_dict()["parents"])
    assert (parents >= 0).all() and (parents <= T6.last_codes()).all()


def test_memory_of_a_large_set() -> None:
    """10 chromosomes per sample of T6 for 1.28 million samples, for the hungriest selection."""
    store = Store.empty(1000, 10, 7, torch.device("cpu"), worst=False, flags=False)
    taken = sum(tensor.numel() * tensor.element_size() for tensor in store.state_dict().values())
    assert taken * 1280 < 200e6

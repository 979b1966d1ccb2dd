"""SENSEI (Gao et al. 2020, Algorithms 2 and 3): a genetic search that goes on from epoch to epoch, one per sample.

Every sample keeps a population of chromosomes. In each epoch its candidates are scored with the weights about to be
updated, the worst one is trained on, and the fittest become the parents of the next epoch. SENSEI-SA skips samples that
are robust for as long as they stay so. SENSEI-RW and SENSEI-T (KAIST 2021) draw the survivors by roulette wheel and by
tournament. All of them are settings of one class; `augmenters/presets.py` names them.
"""

from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi import randomness
from ukemi.augmenters.base import check_rows, whole
from ukemi.augmenters.cap import Cap
from ukemi.augmenters.presets import PRESETS, SenseiSettings
from ukemi.augmenters.search import Searched, Searching, check_logits
from ukemi.augmenters.store import Store
from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.fitness.pointwise import binary_cross_entropy, summed_binary
from ukemi.genetics import SELECTIONS, bred, first_population, selected, unpacked
from ukemi.models.inference import home_of
from ukemi.randomness import Stream
from ukemi.schema import chosen
from ukemi.spaces import Space
from ukemi.variations import vary

BATCH = 512
"""rows per batch when a whole epoch's variants are searched ahead"""
PARTS = 16
"""on a GPU the searched rows of a batch are filled up to a multiple of this part of it: few shapes over a training"""


class Sensei(Searching):
    """The worst variant that each sample's own genetic search finds; its population lives on from epoch to epoch."""

    Config = SenseiSettings

    def __init__(
        self,
        space: Space,
        *,
        samples: int | None = None,
        seed: int = 0,
        flips: bool = False,
        settings: SenseiSettings | str = "sensei",
        **changes: Any,
    ) -> None:
        """`settings` is a preset by name or a `Sensei.Config`; `changes` are its fields to set otherwise."""
        if isinstance(settings, SenseiSettings):
            self.settings = type(settings).taken_from(settings, **changes)
        elif isinstance(settings, str) and settings in PRESETS:
            self.settings = PRESETS[settings](**changes)
        else:
            raise UserError(f"settings: {settings!r} is none of {', '.join(PRESETS)}, nor a Sensei.Config.")
        super().__init__(space, self.settings.fitness, seed=seed, flips=flips)
        if samples is not None and (samples := whole("samples", samples)) < 1:
            raise UserError(f"samples: the number of training samples is needed, at least 1, but {samples} was given.")
        self.samples, self.observes = samples, self.skips
        self.survivors, self._how = self.settings.survivors(), self.settings.breeding()
        self._select = chosen(self.settings.selection, SELECTIONS, "augmenter.selection")
        self._store: Store | None = None
        self._epoch = -1
        self._batch: Tensor | None = None
        """int64 `[1]`: the batch's number in this epoch, on the device, where a coin is thrown per batch"""
        self._cap = Cap(self.settings.cap)

    @property
    def skips(self) -> bool:
        return self.settings.skip != "never"

    @torch.no_grad()
    def rehearse(self, model: nn.Module, data: Data) -> None:
        """Asks the fitness; and two generations of two samples on a copy, where a part is anyone's own."""
        tried = self.check_fitness(model, data)
        parts = {name: getattr(self.settings, name) for name in ("selection", "crossing", "mutation", "fitness")}
        if all(isinstance(part, str) and ":" not in part for part in parts.values()):
            return
        # a fitness that learns from the data has too little to learn from here
        changes: dict[str, Any] = {"when": "batch", "warmup": 0}
        if not tried:
            changes["fitness"] = "cross-entropy"
        batch = data.batch(torch.arange(min(2, len(data))), home_of(model))
        index = torch.arange(len(batch.index), device=batch.index.device)
        trial = Sensei(self.space, samples=len(index), settings=self.settings, **changes)
        for epoch in range(2):
            trial(model, batch.images, batch.labels, index, epoch)

    @torch.no_grad()
    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        """Turns the flags, lets the fitness look at the data and, with `when="epoch"`, searches all samples."""
        if self.samples is None:
            self.samples = data.identities
        store = self._stored(home_of(model))
        store.check(data.index.cpu())
        self._turn(store, epoch)
        if epoch < self.settings.warmup:
            return
        self.begin_fitness(model, data, epoch)
        if self.settings.when == "epoch":
            self.planned = None
            self._search_all(model, data, epoch)

    def _search_all(self, model: nn.Module, data: Data, epoch: int) -> None:
        """Every rank searches its rows of each batch."""
        order = torch.arange(len(data)).split(BATCH)
        mine = [self.ranks.part(positions) for positions in order]
        for batch in data.batches([positions for positions in mine if len(positions)], home_of(model)):
            self._trained(model, batch.images, batch.labels, batch.index, epoch)
        for positions in mine:
            if not len(positions):  # of the last batch alone
                self._sit_out()
        self.merge([data.index[torch.cat(theirs)] for theirs in zip(*map(self.ranks.parts, order), strict=True)])

    def plan(self, batches: Sequence[Tensor]) -> list[int]:
        """How many rows of each batch are searched, or -1 for all; the device is waited for once.

        On a GPU all batches of a size search as many rows as the one that needs most: a step of another shape would be
        another graph, and capturing one takes longer than the rows that it would save.
        """
        if self._epoch < self.settings.warmup:
            return [0] * len(batches)
        if not self.skips or self._store is None or self.settings.when == "epoch":
            return [-1] * len(batches)
        active = self._store.active
        counts = torch.stack([active[index.to(active.device)].sum() for index in batches]).tolist()
        sizes = [len(index) for index in batches]
        if active.device.type == "cuda":
            most = {size: max(n for n, of in zip(counts, sizes, strict=True) if of == size) for size in set(sizes)}
            counts = [most[size] for size in sizes]
        return [self._filled(count, size, active.device) for count, size in zip(counts, sizes, strict=True)]

    @torch.no_grad()
    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        store = self._stored(index.device)
        store.check(index)
        if epoch != self._epoch and self.settings.when == "epoch" and epoch >= self.settings.warmup:
            raise UserError(f'augmenter: when="epoch" needs begin_epoch(model, data, {epoch}) before its batches.')
        self._turn(store, epoch)
        if epoch < self.settings.warmup:
            drawn = self.settings.warmup_on == "random"
            self.genes = self.space.sample(index, seed=self.seed, epoch=epoch)[:, 0] if drawn else None
            images = images if self.genes is None else vary(images, self.genes, self.space)
            return self.flipped(images, index, epoch)
        if self.settings.when == "batch":
            return self._trained(model, images, labels, index, epoch)
        found_NG = self.space.decode(store.worst_of(index))
        if self.skips:
            active_N = store.active[index]
            store.waiting[index] = ~active_N
            found_NG = torch.where(active_N[:, None], found_NG, self._unsearched(store, index, epoch))
        # a sample that no search has seen is trained as it is
        self.genes = torch.where(store.begun[index][:, None], found_NG, self.space.identity(index.device))
        return self.flipped(vary(images, self.genes, self.space), index, epoch)

    @torch.no_grad()
    def observe(self, index: Tensor, logits: Tensor, labels: Tensor) -> None:
        """The training step's own logits tell for free whether a skipped sample stopped being robust."""
        if not self.skips or self._store is None:
            return
        store = self._store
        check_logits(logits)
        check_rows("index", index, logits)
        check_rows("labels", labels, logits)
        store.check(index)
        loss_of = summed_binary if self._binary else partial(F.cross_entropy, reduction="none")
        losses_N = loss_of(logits.float(), labels.long())
        awake_N = ~self._holds(losses_N, logits.argmax(1) == labels)
        store.coming[index] = torch.where(store.waiting[index], awake_N, store.coming[index])
        store.waiting[index] = False

    def absent(self) -> None:
        if self._epoch >= self.settings.warmup and self.settings.when == "batch":
            self._sit_out()

    def _sit_out(self) -> None:
        self._coin(self._epoch)
        if self.settings.cap and self._store is not None:
            self._cap.absent(self._store.begun.device, self.ranks)

    def merge(self, rows: Sequence[Tensor]) -> None:
        if self._store is not None:
            self._store.merge(self.ranks, rows)

    def state_dict(self) -> dict[str, Tensor]:
        if self._store is None:
            return {}
        state = {**self._store.state_dict(), "epoch": torch.tensor(self._epoch), "lattice": self.space.last_codes()}
        state |= {name: value for name, value in self._counters().items() if value is not None}
        return state | self.fitness_state()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes back what `state_dict` gave; what belongs to another search is refused and nothing is changed."""
        if not state:
            self.load_fitness({})
            self._store, self._epoch, self._batch, self._cap.counts = None, -1, None, None
            return
        if not {"begun", "epoch", "lattice"} <= state.keys():
            raise UserError(f"augmenter: {', '.join(sorted(state))} is not the state of a SENSEI search.")
        samples, device = len(state["begun"]), state["begun"].device
        if self.samples not in (None, samples):
            raise UserError(f"augmenter: this search has {self.samples} samples, but the state has {samples}.")
        if state["lattice"].tolist() != self.space.last_codes().tolist():
            raise UserError("augmenter: the state is that of a search in another space.")
        store = self._made_store(samples, device)
        for name, mine in store.state_dict().items():
            if name not in state or state[name].shape != mine.shape:
                given = list(state[name].shape) if name in state else "absent"
                raise UserError(f"augmenter: {name} should be {list(mine.shape)}, but it is {given}: another search's.")
            mine.copy_(state[name])
        self.load_fitness(state)
        self._store, self.samples, self._epoch = store, samples, int(state["epoch"])
        counters = {name: state[name].clone() if name in state else None for name in self._counters()}
        if self.settings.coin == "batch" and counters["batch"] is None:  # the state of a search without such a coin
            counters["batch"] = torch.zeros(1, dtype=torch.int64, device=device)
        self._batch, self._cap.counts = counters["batch"], counters["mistaken"]

    def _counters(self) -> dict[str, Tensor | None]:
        return {"batch": self._batch, "mistaken": self._cap.counts}

    def _stored(self, device: torch.device) -> Store:
        """The rows of all samples, made at first use."""
        if self._store is None:
            if self.samples is None:
                raise UserError("sensei: samples, the number of training samples, is needed (or begin_epoch).")
            self._store = self._made_store(self.samples, device)
            if self.settings.coin == "batch":
                self._batch = torch.zeros(1, dtype=torch.int64, device=device)
        elif self._store.begun.device != device:  # a state that was loaded elsewhere
            self._move(device)
        return self._store

    @torch.inference_mode(False)
    def _move(self, device: torch.device) -> None:
        assert self._store is not None
        self._store = self._store.to(device)
        self._batch, self._cap.counts = (
            None if counter is None else counter.to(device) for counter in self._counters().values()
        )

    @torch.inference_mode(False)  # what is made inside that mode could not be written outside of it
    def _made_store(self, samples: int, device: torch.device) -> Store:
        worst = self.skips or self.settings.when == "epoch"
        return Store.empty(samples, self.survivors, len(self.space), device, worst, self.skips)

    def _turn(self, store: Store, epoch: int) -> None:
        """The flags of an epoch are read once, at its start."""
        if epoch == self._epoch:
            return
        self._epoch = epoch
        store.turn()
        for counter in self._counters().values():
            if counter is not None:
                counter.zero_()

    def _trained(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        """The tensor to train on: the worst of a new search or, for skipped samples, what they are trained on."""
        coin = self._coin(epoch)
        if not self.skips:
            real_N = torch.ones_like(index, dtype=torch.bool)
            worst, self.genes = self._search(model, images, labels, index, real_N, epoch, coin)
            return worst
        store, before = self._stored(index.device), self.forwards
        if self.planned is None:
            self._look_again(store, model, images, labels, index, epoch)
        active_N = store.active[index]
        count = self._filled(int(active_N.sum()), len(index), index.device) if self.planned is None else self.planned
        genes_NG = self._unsearched(store, index, epoch)
        out = self.flipped(vary(images, genes_NG, self.space), index, epoch)
        store.waiting[index] = ~active_N
        if count:
            # the active rows come first; those that only fill up the shape are searched and then forgotten
            rows = active_N.to(torch.uint8).argsort(descending=True, stable=True)[:count]
            real = active_N[rows]
            worst, found = self._search(model, images[rows], labels[rows], index[rows], real, epoch, coin)
            out = out.index_copy(0, rows, torch.where(real[:, None, None, None], worst, out[rows]))
            genes_NG = genes_NG.index_copy(0, rows, torch.where(real[:, None], found, genes_NG[rows]))
        elif self.settings.cap:
            self._cap.absent(index.device, self.ranks)
        self.genes = genes_NG
        # beside a search that skips nobody and so needs no pass for the unchanged image; it can be below 0
        usual = self.settings.population + int(getattr(self.fitness, "clean", False))
        self.spared += len(index) * usual - (self.forwards - before)
        return out

    def _filled(self, count: int, size: int, device: torch.device) -> int:
        part = max(1, ceil(size / PARTS)) if device.type == "cuda" else 1
        return min(size, ceil(count / part) * part)

    def _unsearched(self, store: Store, index: Tensor, epoch: int) -> Tensor:
        """The genes `[N, G]` of what skipped samples are trained on."""
        if self.settings.skipped == "worst":
            return self.space.decode(store.worst_of(index))
        if self.settings.skipped == "random":
            return self.space.sample(index, seed=self.seed, epoch=epoch)[:, 0]
        return self.space.identity(index.device).expand(len(index), -1)

    def _look_again(
        self, store: Store, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int
    ) -> None:
        """One scoring pass for skipped samples that nobody observed: a loop that does not call `observe`."""
        rows = (store.waiting[index] & ~store.active[index]).nonzero().flatten()
        if not len(rows):
            return
        genes_NG = self._unsearched(store, index[rows], epoch)
        found = self.searched(model, images[rows], labels[rows], index[rows], epoch, genes_NG[:, None])
        holds = self._holds(self._losses(found)[:, 0], found.predicted[:, 0] == labels[rows])
        store.active[index[rows]] = ~holds
        store.waiting[index[rows]] = False

    def _search(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        index: Tensor,
        real: Tensor,
        epoch: int,
        coin: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """One generation: candidates, scores, survivors. What is trained on comes back, with its genes."""
        store = self._stored(index.device)
        candidates_NKG = self._candidates(store, index, epoch, coin)
        genes_NKG = self.space.decode(candidates_NKG)
        if self.skips:  # the unchanged image is scored beside them: robust is who holds on it too
            clean_N1G = self.space.identity(index.device).expand(len(index), 1, -1)
            genes_NKG = torch.cat([genes_NKG, clean_N1G], 1)
        found = self.searched(model, images, labels, index, epoch, genes_NKG, beside=int(self.skips))
        fitness_NK = found.fitness[:, : self.settings.population]
        kept_NS = selected(self._select, fitness_NK, index, self.survivors, seed=self.seed, epoch=epoch)
        # the fittest first, whoever selected
        kept_NS = kept_NS.gather(1, fitness_NK.gather(1, kept_NS).argsort(dim=1, descending=True, stable=True))
        rows_N = torch.arange(len(index), device=index.device)
        survivors_NSG = candidates_NKG.gather(1, kept_NS[..., None].expand(-1, -1, len(self.space)))
        at_N = self._capped(labels, real, found) if self.settings.cap else found.at
        store.write(index, real, survivors_NSG, fitness_NK.amax(1), candidates_NKG[rows_N, at_N])
        if self.skips:
            robust_N = self._holds(self._losses(found), found.predicted == labels[:, None]).all(1)
            store.coming[index] = torch.where(real, ~robust_N, store.coming[index])
        genes_NG = genes_NKG[rows_N, at_N]
        if not self.settings.cap:
            return found.worst, genes_NG
        other = self.flipped(vary(images, genes_NG, self.space), index, epoch)
        return torch.where((at_N == found.at)[:, None, None, None], found.worst, other), genes_NG

    def _candidates(self, store: Store, index: Tensor, epoch: int, coin: Tensor | None) -> Tensor:
        """Codes `[N, population, G]` to score."""
        size, begun_N = self.settings.population, store.begun[index]
        begun_N11 = begun_N[:, None, None]
        first_NKG = first_population(
            index, size, self.space, seed=self.seed, identity=self.settings.identity, first=self.settings.first
        )
        parents_NSG, fitness_N = unpacked(store.parents[index]), store.fitness[index]
        breed = partial(bred, seed=self.seed, epoch=epoch, how=self._how, fitness_N=fitness_N, coin=coin)
        if self.settings.compete:
            children = size - self.survivors
            alive_N = torch.full_like(index, self.survivors)
            children_NKG = breed(parents_NSG, alive_N, index, children, self.space)
            return torch.where(begun_N11, torch.cat([parents_NSG, children_NKG], 1), first_NKG)
        # a sample that is new breeds from its whole first population
        padding_NSG = first_NKG[:, self.survivors :]
        parents_NKG = torch.where(begun_N11, torch.cat([parents_NSG, padding_NSG], 1), first_NKG)
        alive_N = torch.where(begun_N, self.survivors, size)
        return breed(parents_NKG, alive_N, index, size, self.space)

    def _coin(self, epoch: int) -> Tensor | None:
        """One number for the batch, keyed by (epoch, batch number); the number counts on the device."""
        if self._batch is None:
            return None
        thrown = randomness.uniform(self._batch, seed=self.seed, stream=Stream.COIN, epoch=epoch)
        self._batch += 1
        return thrown.flatten().double()

    @property
    def _binary(self) -> bool:
        """Whether the threshold is one of the summed binary cross-entropy: in the released code it is."""
        return self.fitness is binary_cross_entropy

    def _losses(self, found: Searched) -> Tensor:
        return found.fitness if self._binary else found.losses

    def _holds(self, losses: Tensor, right: Tensor) -> Tensor:
        """Point-wise robust: a low loss, or the right class; an answer that is no number is neither."""
        return losses <= self.settings.threshold if self.settings.skip == "loss" else right & ~losses.isnan()

    def _capped(self, labels: Tensor, real: Tensor, found: Searched) -> Tensor:
        """Which candidate `[N]` is trained on: the second-worst where its pair of classes is used up in this epoch."""
        rows_N = torch.arange(len(labels), device=labels.device)
        predicted_N = found.predicted[rows_N, found.at]
        over_N = self._cap.over(labels, predicted_N, real, found.classes, self.ranks)
        ranked_NK = found.fitness[:, : self.settings.population].argsort(dim=1, descending=True, stable=True)
        return torch.where(over_N, ranked_NK[:, 1], found.at)

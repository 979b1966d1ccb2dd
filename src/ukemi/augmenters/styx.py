"""STYX: half of the samples are trained with a tenth of their pixels mutated (Algorithms 1 and 2).

The paper mutates the training set once, before training: `mutated(data)`. The augmenter `Styx` gives the same images
while training, without a second copy of the set, and may draw new masks in every epoch. No model is asked, so a step
costs what a standard one does.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ukemi import randomness
from ukemi.augmenters.base import Augmenter, AugmenterConfig, outside
from ukemi.data import Data, Images, as_float, check_pixels
from ukemi.errors import UserError
from ukemi.models.inference import home_of
from ukemi.randomness import Stream
from ukemi.schema import Fixed, Named, Number
from ukemi.spaces import Space
from ukemi.variations import mutators
from ukemi.variations.mutators import Mutator, Pixels, mutate, mutators_of, places

Masks = Literal["fixed", "image", "epoch"]
AUTO = "auto"
"""The mutator that `ukemi.training.choose_mutator` puts another one in the place of."""
BATCH = 512
"""rows per pass when a whole set is mutated ahead"""


class StyxConfig(AugmenterConfig):
    """Mutates a share of the pixels in a share of the samples (STYX)."""

    name: Fixed[Literal["styx"]] = "styx"
    mutator: Named = "mixture"
    """What happens to a pixel: zero, average (of its neighbours), random, gaussian (noise is added), mixture (one of
    the four, drawn per image), package.module:function; or auto (mutator and ratios are chosen by short trainings)."""
    data_ratio: Annotated[Number, Field(ge=0, le=1)] = 0.5
    """Share of the samples that are mutated."""
    pixel_ratio: Annotated[Number, Field(ge=0, le=1)] = 0.1
    """Share of the pixels that change in a mutated sample."""
    sigma: Annotated[Number, Field(ge=0)] = 0.5
    """Deviation of the gaussian mutator's noise, for pixels in 0..1."""
    masks: Masks = "fixed"
    """Which pixels: the same ones in all samples (the paper), drawn per image, or drawn anew per image and epoch."""
    pixels: Pixels = "position"
    """A pixel is a position with all its channels, or the value of one channel (the released code)."""
    redraw: bool = False
    """Draw anew in every epoch which samples are mutated."""

    @model_validator(mode="after")
    def _known(self) -> "StyxConfig":
        if self.mutator != AUTO:
            self.mutators()
        return self

    def mutators(self) -> tuple[Mutator, ...]:
        field = f"{self.place}.mutator".lstrip(".")
        if self.mutator == AUTO:
            raise UserError(f"{field}: auto is for `ukemi train` and ukemi.training.choose_mutator; name one here.")
        return mutators_of(self.mutator, self.sigma, field)

    def build(self, space: Space, seed: int, flips: bool) -> "Styx":
        return Styx(seed=seed, flips=flips, **self.model_dump(exclude={"name"}))


class Styx(Augmenter):
    """Mutates pixels of exactly round(data_ratio x samples) samples, the same ones in every epoch unless `redraw`.

    Samples are those of `begin_epoch(model, data, epoch)`; a loop that does not call it gives `samples`, and identities
    are 0 to samples - 1. With fixed masks or masks per image a sample looks the same in every epoch.
    """

    Config = StyxConfig

    def __init__(
        self,
        mutator: Any = "mixture",
        *,
        samples: int | None = None,
        seed: int = 0,
        flips: bool = False,
        data_ratio: float = 0.5,
        pixel_ratio: float = 0.1,
        sigma: float = 0.5,
        masks: Masks = "fixed",
        pixels: Pixels = "position",
        redraw: bool = False,
    ) -> None:
        self.settings = StyxConfig(
            mutator=mutator,
            data_ratio=data_ratio,
            pixel_ratio=pixel_ratio,
            sigma=sigma,
            masks=masks,
            pixels=pixels,
            redraw=redraw,
        )
        if samples is not None and samples < 1:
            raise UserError(f"samples: there should be at least one, but {samples} was given.")
        super().__init__(seed=seed, flips=flips)
        self.samples = samples
        self._mutation = _Mutation(self.settings, seed)
        self._identities: Tensor | None = None
        """int64: the samples of the last `begin_epoch`"""
        self._limit: Tensor | None = None
        """int64 scalar: samples whose hash does not exceed it are mutated"""
        self._turn = 0
        """the turn for which the limit was drawn"""

    @torch.no_grad()
    def rehearse(self, model: nn.Module, data: Data) -> None:
        """Two images are mutated."""
        batch = data.batch(torch.arange(min(2, len(data))), home_of(model))
        made = self._mutation(batch.images, batch.index, torch.ones_like(batch.index, dtype=torch.bool), 0)
        check_pixels(made, "augmenter.mutator")

    def begin_epoch(self, model: nn.Module, data: Data, epoch: int) -> None:
        """Draws which of the data's samples are mutated."""
        self._identities = data.index.to(home_of(model))
        self._draw_limit(self._identities, self._turn_of(epoch))

    @torch.no_grad()
    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        picked_N = self._picked(index, self._turn_of(epoch))
        turn = epoch if self.settings.masks == "epoch" else 0
        return self.flipped(self._mutation(images, index, picked_N, turn), index, epoch)

    def state_dict(self) -> dict[str, Tensor]:
        if self._limit is None:
            return {}
        return {"limit": self._limit, "turn": torch.tensor(self._turn)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if not state:
            return
        if state.keys() != {"limit", "turn"}:
            raise UserError(f"augmenter: {', '.join(sorted(state))} is not the state of a Styx.")
        self._limit, self._turn = state["limit"], int(state["turn"])

    def _turn_of(self, epoch: int) -> int:
        return epoch if self.settings.redraw else 0

    def _draw_limit(self, identities: Tensor, turn: int) -> None:
        self._limit, self._turn = _limit(identities, self.settings.data_ratio, self.seed, turn), turn

    def _picked(self, index: Tensor, turn: int) -> Tensor:
        """Which of these samples are mutated, bool `[N]`."""
        if self._limit is None or turn != self._turn:
            if self._identities is None and self.samples is None:
                raise UserError("styx: samples, the number of training samples, is needed (or begin_epoch).")
            mine = torch.arange(self.samples or 0) if self._identities is None else self._identities
            self._draw_limit(mine.to(index.device), turn)
        self._check(index)
        assert self._limit is not None
        return _hashes(index, self.seed, turn) <= self._limit.to(index.device)

    def _check(self, index: Tensor) -> None:
        if self.samples is None or self._identities is not None:
            return
        if (given := outside(index, self.samples)) is not None:
            raise UserError(f"index: {given} is outside the {self.samples} samples.")


class _Before(StyxConfig):
    """The settings of `mutated`."""

    place: ClassVar[str] = ""
    count: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _without_epochs(self) -> "_Before":
        if self.masks == "epoch":
            raise UserError("masks: there are no epochs before training; fixed and image are the choices.")
        return self


def mutated(
    data: Data,
    *,
    mutator: Any = "mixture",
    data_ratio: float = 0.5,
    pixel_ratio: float = 0.1,
    count: int = 1,
    sigma: float = 0.5,
    masks: Literal["fixed", "image"] = "fixed",
    pixels: Pixels = "position",
    seed: int = 0,
) -> Data:
    """A training set of which exactly round(data_ratio x samples) samples are mutated, `count` times each.

    Every variant starts from the original. The first takes its place and identity; the others follow behind the set,
    round by round in the set's order, with new identities, the original's label and its group (where there were no
    groups, each original and its variants become one, so that no split parts them). Draws hang on identities: variants
    of one sample differ, but where the mask is fixed and the mutator draws nothing (zero, average).

    Pixels keep their type: of a uint8 set, mutated values are rounded to whole levels, the others stay bit for bit.
    Images that are decoded on demand are mutated on demand.
    """
    settings = _Before(
        mutator=mutator,
        data_ratio=data_ratio,
        pixel_ratio=pixel_ratio,
        count=count,
        sigma=sigma,
        masks=masks,
        pixels=pixels,
    )
    picked_N = _hashes(data.index, seed, 0) <= _limit(data.index, data_ratio, seed, 0)
    again = picked_N.nonzero().flatten().repeat(count - 1)
    origin = torch.cat([torch.arange(len(data), device=again.device), again])
    new = torch.arange(data.identities, data.identities + len(again), device=again.device)
    index = torch.cat([data.index, new])
    changed = torch.cat([picked_N, torch.ones_like(again, dtype=torch.bool)])
    images = _Mutated(data.images, origin, index, changed, _Mutation(settings, seed))
    groups = data.groups
    if len(again):
        groups = data.index if groups is None else groups
        groups = groups[origin.to(groups.device)]
    return replace(
        data,
        images=images.made() if isinstance(data.images, Tensor) else images,
        labels=data.labels[origin],
        index=index,
        identities=data.identities + len(again),
        groups=groups,
    )


def _hashes(index: Tensor, seed: int, turn: int) -> Tensor:
    return randomness.bits(index, seed=seed, stream=Stream.MIXTURE, epoch=turn)


def _limit(identities: Tensor, ratio: float, seed: int, turn: int) -> Tensor:
    """The hash of the last sample that is mutated, int64 scalar. Different identities have different hashes."""
    count = round(ratio * len(identities))
    if count == 0:  # a hash as low as this is one in 2^64
        return torch.tensor(torch.iinfo(torch.int64).min, device=identities.device)
    return _hashes(identities, seed, turn).sort().values[count - 1]


class _Mutation:
    """The mutators with their masks: `(images, index, picked, turn) -> images`."""

    def __init__(self, settings: StyxConfig, seed: int) -> None:
        self._settings, self._seed = settings, seed
        self._mutators = settings.mutators()
        self._fixed: dict[tuple[object, ...], Tensor] = {}

    def __call__(self, images: Tensor, index: Tensor, picked_N: Tensor, turn: int) -> Tensor:
        if images.device.type not in mutators.ROWWISE:
            return self._mutate(images, index, picked_N, turn)
        rows = picked_N.nonzero().flatten()
        return images.index_copy(0, rows, self._mutate(images[rows], index[rows], None, turn))

    def _mutate(self, images: Tensor, index: Tensor, picked_N: Tensor | None, turn: int) -> Tensor:
        return mutate(
            images,
            index,
            self._places(images, index, turn),
            self._mutators,
            pixels=self._settings.pixels,
            picked=picked_N,
            seed=self._seed,
            turn=turn,
        )

    def _places(self, images: Tensor, index: Tensor, turn: int) -> Tensor:
        shape = tuple(images.shape[1:])
        ratio, pixels = self._settings.pixel_ratio, self._settings.pixels
        if self._settings.masks != "fixed":
            return places(index, shape, ratio, pixels=pixels, seed=self._seed, turn=turn)
        key = (shape, index.device)
        if key not in self._fixed:
            self._fixed[key] = places(index.new_zeros(1), shape, ratio, pixels=pixels, seed=self._seed)
        return self._fixed[key]


class _Mutated:
    """Rows of a set, mutated when they are asked for."""

    def __init__(self, images: Images, origin: Tensor, index: Tensor, changed: Tensor, mutation: _Mutation) -> None:
        self._images, self._origin, self._index, self._changed = images, origin, index, changed
        self._mutation = mutation
        self.shape = (len(origin), *images.shape[1:])

    def __getitem__(self, positions: Tensor) -> Tensor:
        found = self._images[self._origin[positions]]
        made = self._mutation(as_float(found), self._index[positions], self._changed[positions], 0)
        check_pixels(made, "mutator")  # bytes could not say it
        return (made * 255).round().to(torch.uint8) if found.dtype == torch.uint8 else made

    def made(self) -> Tensor:
        """All rows; only those that change are computed."""
        out = self._images[self._origin]
        for rows in self._changed.nonzero().flatten().split(BATCH):
            out[rows] = self[rows]
        return out

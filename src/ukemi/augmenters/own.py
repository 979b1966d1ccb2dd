"""Your own augmenter, by name: trained, compared, measured, killed and resumed like the built-in ones."""

from collections.abc import Callable
from typing import Literal

from ukemi.augmenters.base import Augmenter, AugmenterConfig
from ukemi.errors import UserError
from ukemi.schema import Fixed, Named, called, chosen
from ukemi.spaces import Space


class OwnConfig(AugmenterConfig):
    """Trains with an augmenter of your own: a class, or a function that makes one, `(space, *, seed, flips)`."""

    name: Fixed[Literal["own"]] = "own"
    of: Named = "ukemi:Random"
    """The class or function, as package.module:name."""

    def build(self, space: Space, seed: int, flips: bool) -> Augmenter:
        make: Callable[..., object] = chosen(self.of, {}, "augmenter.of")
        made = called(make, "augmenter.of", space, seed=seed, flips=flips)
        if not isinstance(made, Augmenter):
            raise UserError(f"augmenter.of: a ukemi.Augmenter is needed, but {self.of} gave a {type(made).__name__}.")
        return made

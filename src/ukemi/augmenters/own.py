"""Your own augmenter, by name: trained, compared, measured, killed and resumed like the built-in ones."""

import inspect
from collections.abc import Callable
from typing import Any, Literal

from ukemi.augmenters.base import Augmenter, AugmenterConfig
from ukemi.errors import UserError
from ukemi.schema import Fixed, Named, called, chosen
from ukemi.spaces import Space


class OwnConfig(AugmenterConfig, extra="allow"):
    """Trains with an augmenter of your own: a class, or a function that makes one, `(space, *, seed, flips)`.

    Further settings are its keyword arguments.
    """

    name: Fixed[Literal["own"]] = "own"
    of: Named = None
    """The class or function, as package.module:name; it is needed."""

    def build(self, space: Space, seed: int, flips: bool) -> Augmenter:
        if self.of is None:
            raise UserError("augmenter.of: the class or function of your own is needed, as package.module:name.")
        make: Callable[..., object] = chosen(self.of, {}, "augmenter.of")
        settings = dict(self.model_extra or {})
        _check_settings(make, settings, space, seed=seed, flips=flips)
        made = called(make, "augmenter.of", space, seed=seed, flips=flips, **settings)
        if not isinstance(made, Augmenter):
            raise UserError(f"augmenter.of: a ukemi.Augmenter is needed, but {self.of} gave a {type(made).__name__}.")
        return made


def _check_settings(make: Callable[..., object], settings: dict[str, Any], *given: Any, **named: Any) -> None:
    """A misspelt setting, or what is called otherwise, would else look like a failure inside of what is called."""
    what = getattr(make, "__name__", type(make).__name__)
    for name in settings:
        try:
            inspect.signature(make).bind_partial(*given, **named, **{name: settings[name]})
        except TypeError:
            raise UserError(f"augmenter.{name.replace('_', '-')} is no setting of {what}.") from None
        except ValueError:
            return  # some callables have no signature; the call itself will tell
    try:
        inspect.signature(make).bind(*given, **named, **settings)
    except TypeError as error:
        call = f"{what}(space, seed=…, flips=…)"
        raise UserError(f"augmenter.of: {what} is called as {call}, which it does not take ({error}).") from None
    except ValueError:
        return

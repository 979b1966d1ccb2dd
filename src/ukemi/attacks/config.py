"""An attack with its settings: one schema for Python, TOML and the command line."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ukemi.attacks.base import Attacked, Norm
from ukemi.attacks.norms import NORMS
from ukemi.attacks.registry import ATTACKS
from ukemi.data import check_pixels
from ukemi.errors import UserError
from ukemi.models.inference import recording
from ukemi.schema import Named, Number, Schema, called, chosen

PARTS = ("images", "success", "distance", "forwards", "backwards")
"""the tensors of an `Attacked`"""
Attack = Callable[..., Attacked]
"""`(model, images, labels, index=…) -> Attacked`."""


class AttackSettings(Schema):
    """The fields of an attack, where naming one is optional: what commands take as flags beside their own."""

    attack: Named = None
    """The attack: fgsm, bim, pgd, deepfool, carlini-wagner, jsma, square, or package.module:function."""
    epsilon: Annotated[Number, Field(ge=0)] | None = None
    """Budget of a fixed-budget attack, in pixels of 0..1: 8/255."""
    norm: Literal["l1", "l2", "linf"] | None = None
    """The distance that is bounded or made small."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Steps of an iterative attack."""
    step_size: Annotated[Number, Field(gt=0)] | None = None
    """Length of one step."""
    restarts: Annotated[int, Field(ge=1)] | None = None
    """PGD's starts."""
    overshoot: Annotated[Number, Field(ge=0)] | None = None
    """DeepFool: how far beyond the boundary."""
    confidence: Annotated[Number, Field(ge=0)] | None = None
    """C&W: the margin that counts as fooled."""
    searches: Annotated[int, Field(ge=1)] | None = None
    """C&W: values of c that are tried."""
    theta: Number | None = None
    """JSMA: how far a feature is moved at once."""
    gamma: Annotated[Number, Field(gt=0, le=1)] | None = None
    """JSMA: share of the features that may change."""
    others: Literal["all", "likely"] | None = None
    """JSMA: how the other classes count in the choice of a pair: all alike (the paper), or by how likely they are."""


class AttackConfig(AttackSettings):
    """An attack by name and what is set of its settings; the others keep the attack's own defaults."""

    place: ClassVar[str] = "attack"

    attack: Named = "pgd"
    """The attack: fgsm, bim, pgd, deepfool, carlini-wagner, jsma, square, or package.module:function."""

    @model_validator(mode="after")
    def _fits(self) -> "AttackConfig":
        self.made()
        return self

    def settings(self) -> dict[str, Any]:
        """What is set, by the attack's own names."""
        return self.model_dump(exclude={"attack"}, exclude_none=True)

    def title(self) -> str:
        """pgd (linf, epsilon 0.0314, steps 40)."""
        name = self.attack if isinstance(self.attack, str) else getattr(self.attack, "__name__", "attack")
        said = [value if key == "norm" else _said(key, value) for key, value in self.settings().items()]
        return f"{name} ({', '.join(said)})" if said else name

    def name(self) -> str:
        """The attack's name, as package.module:function where it is anyone's own."""
        if isinstance(self.attack, str):
            return self.attack
        named = self.attack if hasattr(self.attack, "__qualname__") else type(self.attack)
        return f"{named.__module__}:{named.__qualname__}"

    def check(self, image_shape: tuple[int, ...]) -> Norm | None:
        """Refuses settings that the attack itself would for such images, `(C, H, W)`, before any work: it is run on
        none. Says the norm that it measures in; nothing is known of anyone's own."""
        if chosen(self.attack, ATTACKS, "attack") not in ATTACKS.values():
            return None
        none = torch.empty(0, dtype=torch.int64)
        return self.made()(nn.Flatten(), torch.empty(0, *image_shape), none).norm

    def made(self, seed: int | None = None) -> Attack:
        """The attack with these settings; one that it does not take, or one that it needs, is named.

        What comes back takes `index`, even where the attack draws nothing and doesn't; `seed` goes to those that do.
        """
        function = chosen(self.attack, ATTACKS, "attack")
        takes = inspect.signature(function).parameters
        anything = any(each.kind is each.VAR_KEYWORD for each in takes.values())
        for name in self.settings():
            if name not in takes and not anything:
                known = ", ".join(key.replace("_", "-") for key in type(self).model_fields if key in takes)
                raise UserError(
                    f"{name.replace('_', '-')}: {self.title()} does not take it; it takes {known or 'nothing'}."
                )
        needed = [name for name, each in takes.items() if each.default is each.empty and each.kind is each.KEYWORD_ONLY]
        for name in needed:
            if name not in (*self.settings(), "index", "seed"):  # which are no settings
                raise UserError(f"{name.replace('_', '-')}: {self.title()} needs it{_SUCH.get(name, '')}.")
        settings = self.settings() | ({"seed": seed} if seed is not None and "seed" in takes else {})
        return _keyed(function, settings, anything or "index" in takes)


_SUCH = {"epsilon": ", 8/255 for example"}


def _said(key: str, value: float | str) -> str:
    return f"{key.replace('_', ' ')} {value if isinstance(value, str) else format(value, 'g')}"


def _keyed(function: Attack, settings: dict[str, Any], takes_index: bool) -> Attack:
    """The attack with its settings and with `index`, which is dropped where the function does not take one.

    A function that fails, or that gives something else than an `Attacked`, is named.
    """

    @wraps(partial(function, **settings))  # its signature says what else it takes
    def keyed(
        model: nn.Module, images: Tensor, labels: Tensor, *, index: Tensor | None = None, **more: Any
    ) -> Attacked:
        options = settings | more | ({"index": index} if takes_index else {})
        found = called(function, "attack", model, images, labels, **options)
        return found if function in ATTACKS.values() else _checked(found, getattr(function, "__name__", "it"), images)

    return keyed


def _checked(found: Any, name: str, images: Tensor) -> Attacked:
    """What somebody's own attack gives: an `Attacked` that fits the images, with pixels in [0, 1]."""
    if not isinstance(found, Attacked):
        raise UserError(
            f"attack: {name} gives a {type(found).__name__} where an Attacked is needed;"
            " ukemi.attacks.from_callable makes an attack from a function that gives images."
        )
    for part in PARTS:
        given = getattr(found, part)
        if not isinstance(given, Tensor):
            raise UserError(f"attack: {part} of {name} should be a tensor, but it is a {type(given).__name__}.")
    if found.norm not in NORMS:
        raise UserError(f"attack: norm of {name} should be l1, l2 or linf, but it is {found.norm!r}.")
    if found.images.shape != images.shape:
        raise UserError(f"attack: {name} gives images {list(found.images.shape)} for {list(images.shape)}.")
    for part in PARTS[1:]:
        given = getattr(found, part)
        if given.shape != images.shape[:1] or (part == "success" and given.dtype != torch.bool):
            wanted = f"{'bool ' if part == 'success' else ''}[{len(images)}]"
            raise UserError(
                f"attack: {part} of {name} should be {wanted}, but it is {given.dtype} {list(given.shape)}."
            )
    if not recording(images.device):
        check_pixels(found.images, f"attack: what {name} gives")
    # measures, sets and pages take them for images of the data
    return replace(found, images=found.images.detach().to(images), distance=found.distance.detach())

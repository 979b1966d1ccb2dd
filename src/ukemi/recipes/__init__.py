"""Recipes: the papers' experiments, each a TOML file with what all sizes share, `[small]` and `[full]`.

A file has `paper`, `table`, `about`, `minutes` for each size, the fields of `ukemi compare` under `[common]`, and under
`[small]` and `[full]` what differs. Small ones take minutes on two cores, with the images that are part of the package;
full ones have the paper's data, networks and epochs, and want a GPU. `networks` and `spaces` stand for cases of paper 1
(`shared/networks.toml`). A recipe that names an `experiment` is no comparison of trainings but a part of that
(`ukemi.experiments`); its cells and sizes are in `shared/EXPERIMENT.toml`, and `cells` may name some of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from ukemi.comparing import CompareConfig
from ukemi.comparing.config import plain
from ukemi.errors import UserError, check_known, meant
from ukemi.experiments import KINDS, ExperimentConfig
from ukemi.schema import read_config

Size = Literal["small", "full"]
SIZES: tuple[Size, ...] = get_args(Size)
GRIDS_OF = {"t3": "t3-81", "t6": "t6-2187"}
T6_IMAGES = 2500
"""2,187 variants each: the released code takes a quarter of the test images too"""
_FOLDER = Path(str(files("ukemi.recipes")))


@dataclass(frozen=True)
class Recipe:
    """One experiment."""

    name: str
    paper: str
    table: str
    """which of the paper's tables or figures it makes"""
    about: str
    minutes: dict[str, float]
    """expected, by size: small on two CPU cores, full on one GPU"""
    common: dict[str, Any]
    sizes: dict[str, dict[str, Any]]

    def config(self, size: Size, **changes: Any) -> CompareConfig | ExperimentConfig:
        """The comparison or experiment that it is in this size, with some of its fields changed."""
        told = _over(_over({"title": self.about}, self.common), self.sizes[size])
        if "experiment" in told:
            return ExperimentConfig(**_experiment(told, size) | changes)
        networks, spaces = told.pop("networks", None), told.pop("spaces", None)
        if networks is not None:
            if "cases" in told:
                raise UserError("networks: they are cases, so there can't be cases of your own beside them.")
            given = {"methods": told["methods"]} if "methods" in told else {}
            methods = [plain(one.name) for one in CompareConfig(**given).methods]
            told["cases"] = _cases(networks, ["t3"] if spaces is None else spaces, methods)
        elif spaces is not None:
            raise UserError(f"spaces: they belong to networks, and there are none in size {size}.")
        return CompareConfig(**told | changes)

    def footnote(self, size: Size) -> str:
        """What is to be said beneath tables with rows of paper 1's networks."""
        networks = _over(self.common, self.sizes[size]).get("networks", ())
        if networks != "all" and not any(name.startswith("CIFAR") for name in networks):
            return ""
        return str(read_config(_FOLDER / "shared" / "networks.toml")["footnote"])


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` on `below`; of [train] and [sizes] both count."""
    both = {**below, **above}
    for table in ("train", "sizes"):
        if table in below and table in above:
            for given in (below[table], above[table]):
                if not isinstance(given, dict):
                    raise UserError(f"{table}: should be a table of settings, but {given!r} was given.")
            both[table] = {**below[table], **above[table]}
    return both


def _experiment(told: Mapping[str, Any], size: Size) -> dict[str, Any]:
    """An experiment's usual cells and sizes beneath what the recipe says; cells by name are taken from those."""
    check_known("experiment", told["experiment"], KINDS)
    usual = read_config(_FOLDER / "shared" / f"{told['experiment']}.toml")[size]
    known = {cell["name"]: cell for cell in usual["cells"]}
    cells = told.get("cells", usual["cells"])
    if not isinstance(cells, list):
        raise UserError(f"cells: should be a list, but {cells!r} was given.")
    for cell in cells:
        if isinstance(cell, str):
            check_known("cells", cell, known)
    return _over(usual, told) | {"cells": [known[cell] if isinstance(cell, str) else cell for cell in cells]}


def _cases(networks: Any, spaces: Any, methods: Sequence[str]) -> list[dict[str, Any]]:
    """Networks of paper 1 by name, or "all" of them, under each space, with what it prints for these methods."""
    if networks != "all" and not isinstance(networks, list):
        raise UserError(f'networks: should be "all" or a list of names, but {networks!r} was given.')
    if not isinstance(spaces, list):
        raise UserError(f"spaces: should be a list of names, but {spaces!r} was given.")
    for field, given in (("networks", networks), ("spaces", spaces)):
        if not given:
            raise UserError(f"{field}: at least one is needed.")
    known = read_config(_FOLDER / "shared" / "networks.toml")
    rows = {told["name"]: {**known["like"][told["like"]], **told} for told in known["networks"]}
    names = list(rows) if networks == "all" else networks
    for name in names:
        check_known("networks", name, rows)
    found = [_case(name, dict(rows[name]), space, methods) for space in spaces for name in names]
    return [case for case in found if case is not None]


def _case(name: str, told: dict[str, Any], space: str, methods: Sequence[str]) -> dict[str, Any] | None:
    six, _, printed = told.pop("t6", {}), told.pop("like"), told.pop("printed")
    check_known("spaces", space, GRIDS_OF)
    if space == "t6":
        if six is False:
            return None
        told |= {**six, "images": T6_IMAGES}
    told["printed"] = {name: figure for name, figure in printed[space].items() if name in methods}
    return {**told, "name": f"{name} {space.upper()}", "space": space, "grids": [GRIDS_OF[space]]}


def recipes() -> dict[str, Recipe]:
    """All recipes by name."""
    return {path.stem: read_recipe(path) for path in sorted(_FOLDER.glob("*.toml"))}


def recipe_of(name: str) -> Recipe:
    """A recipe by name, or from anyone's own file."""
    if name.endswith(".toml"):
        return read_recipe(Path(name))
    path = _FOLDER / f"{name}.toml"
    if not path.is_file():
        raise UserError(f"recipe: {name!r} is none of {', '.join(recipes())}, nor a .toml file.")
    return read_recipe(path)


def read_recipe(path: Path) -> Recipe:
    values = read_config(path)
    known = {"paper", "table", "about", "minutes", "common", *SIZES}
    for key in sorted(values.keys() - known):  # first: a key that was mistyped is missing too
        near = meant(key, sorted(known))
        more = f"did you mean {near}?" if near else f"known are {', '.join(sorted(known))}."
        raise UserError(f"recipe: in {path.name} {key.replace('_', '-')} is not a known field; {more}")
    for key in sorted(known - values.keys()):
        raise UserError(f"recipe: in {path.name} {key} is missing.")
    for key in ("minutes", "common", *SIZES):
        if not isinstance(values[key], dict):
            raise UserError(f"recipe: in {path.name} {key} should be a table, but {values[key]!r} was given.")
    sizes: dict[str, dict[str, Any]] = {size: values[size] for size in SIZES}
    if any("experiment" in told for told in sizes.values()):  # what a recipe is does not hang on its size
        raise UserError("experiment: it belongs under [common].")
    about = (str(values["paper"]), values["table"], values["about"])
    return Recipe(path.stem, *about, values["minutes"], values["common"], sizes)

"""Recipes are whole: every one is a plan in both sizes; the small ones run in the slow part of the suite."""

import json
from pathlib import Path

import pytest

from ukemi.cli.main import run
from ukemi.comparing import planned
from ukemi.errors import UserError
from ukemi.recipes import SIZES, read_recipe, recipe_of, recipes
from ukemi.spaces import GRIDS

NAMES = list(recipes())


def test_the_papers_experiments_are_there() -> None:
    wanted = {f"sensei-{name}" for name in ("exp1", "exp2", "exp3", "exp4", "exp5", "rq2")}
    wanted |= {f"sensei-{name}" for name in ("population", "fitness", "selection", "threshold")}
    wanted |= {"augmentation-exp1", "augmentation-exp2", "augmentation-exp3", "worst-of-when", "space-size"}
    assert set(NAMES) == wanted | {"styx-effectiveness", "styx-efficiency"}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_a_plan_in_both_sizes(name: str) -> None:
    recipe = recipe_of(name)
    small, full = (planned(recipe.config(size)) for size in SIZES)
    assert {one.config.data for one in small.planned} == {"fashion-mini"}
    assert {one.seed for one in small.planned} == {0, 1, 2} and {one.seed for one in full.planned} == set(range(5))
    assert not {one.key for one in small.planned} & {one.key for one in full.planned}
    assert recipe.minutes.keys() == set(SIZES) and recipe.minutes["small"] <= 10
    for plan in (small, full):
        spaces = {one.case: one.config.space.removesuffix("-continuous") for one in plan.planned}
        # what is searched while training is what is measured
        assert all(plan.measured[case].grids[0].split("-")[0] == space for case, space in spaces.items())
        assert all(grid in GRIDS for measured in plan.measured.values() for grid in measured.grids)


def test_table_2_has_every_row_of_the_paper() -> None:
    plan = planned(recipe_of("sensei-exp2").config("full"))
    cases = list(plan.measured)
    assert len(cases) == 15 + 13 and not any(case.startswith("IMDB") and case.endswith("T6") for case in cases)
    told = {one.case: one.config for one in plan.planned if one.method == "sensei" and one.seed == 0}
    assert told["GTSRB-1 T3"].model == "gtsrb-1" and told["GTSRB-1 T6"].model == "gtsrb-1-t6"
    nets = [told[f"CIFAR-10-{number} T3"].model for number in (1, 2, 3, 4)]
    assert nets == ["resnet32", "resnet50-6n2", "wrn-28-10", "resnet20"]
    assert told["CIFAR-10-3 T6"].drops == (60, 120, 160) and plan.measured["FM-1 T6"].images == 2500
    assert {one.data for one in told.values()} == {"gtsrb", "fashion-mnist", "cifar10", "svhn", "imdb-wiki"}


def test_recipes_share_their_runs() -> None:
    plans = [planned(recipe_of(f"sensei-{name}").config("small")) for name in ("exp1", "rq2")]
    keys = [{one.key for one in plan.planned} for plan in plans]
    assert len(keys[0] & keys[1]) == 6  # worst-of-10 and sensei


GOOD = 'paper = "1"\ntable = "t"\nabout = "a"\nminutes = { small = 1, full = 2 }\n[common]\n[small]\n[full]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace('table = "t"\n', ""), "in own.toml table is missing"),
        ("more = 1\n" + GOOD, "in own.toml more is not a known field"),
        (GOOD.replace("[small]", '[small]\nnetworks = ["VGG"]'), "networks: 'VGG' is none of GTSRB-1"),
        (GOOD.replace("[small]", '[small]\nnetworks = "all"\nspaces = ["t9"]'), "spaces: 't9' is none of t3, t6"),
    ],
)
def test_anyones_own_recipe_is_checked(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_recipe(path).config("small")
    path.write_text(GOOD)
    assert recipe_of(str(path)).config("small", seeds=2).seeds == 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_a_small_recipe_runs(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All of them share a folder, also between the suite's processes: locks keep them apart."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if base.name.startswith("popen") else base) / "recipes"
    assert run(["run", name, "--device", "cpu", "--out", str(tmp_path), "--runs", str(shared)]) == 0
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert found["open_runs"] == 0 and found["answer"] is not None and (tmp_path / "page.html").stat().st_size < 15e6
    for case in found["cases"]:
        assert not case["stopped"] and set(case["methods"]) == set(found["methods"])
        assert all(measures["robust"]["n"] == 3 for measures in case["methods"].values())

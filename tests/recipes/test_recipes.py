"""Recipes are whole: every one is a plan in both sizes; the small ones run in the slow part of the suite."""

import json
from pathlib import Path

import pytest
from torch import nn

from ukemi.cli.main import run
from ukemi.comparing import CompareConfig, planned
from ukemi.errors import UserError
from ukemi.experiments import KINDS, ExperimentConfig
from ukemi.experiments.running import missing
from ukemi.models import create
from ukemi.recipes import SIZES, Size, read_recipe, recipe_of, recipes
from ukemi.recipes.sizes import size_of
from ukemi.spaces import GRIDS

SHOWN = ("uncertainty-study", "dare-rq1", "dare-q")

ALL = recipes()
NAMES = list(ALL)
EXPERIMENTS = [name for name, recipe in ALL.items() if "experiment" in recipe.common]
COMPARISONS = [name for name in NAMES if name not in EXPERIMENTS]


def test_the_papers_experiments_are_there() -> None:
    wanted = {f"sensei-{name}" for name in ("exp1", "exp2", "exp3", "exp4", "exp5", "rq2")}
    wanted |= {f"sensei-{name}" for name in ("population", "fitness", "selection", "threshold")}
    wanted |= {"augmentation-exp1", "augmentation-exp2", "augmentation-exp3", "worst-of-when", "space-size"}
    wanted |= {"sensei-yang", "search-or-luck"}
    wanted |= {f"uncertainty-{name}" for name in ("study", "generation", "defences", "retraining")}
    wanted |= {"dare-rq1", "dare-rq2", "dare-rq3", "dare-rq4", "dare-q"}
    assert set(NAMES) == wanted | {"styx-effectiveness", "styx-efficiency", "styx-beyond"}


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_recipe_is_a_plan_in_both_sizes(name: str) -> None:
    recipe = recipe_of(name)
    small, full = (planned(comparison(name, size)) for size in SIZES)
    assert {one.config.data for one in small.planned} == {"fashion-mini"}
    assert {one.seed for one in small.planned} == {0, 1, 2} and {one.seed for one in full.planned} == set(range(5))
    assert not {one.key for one in small.planned} & {one.key for one in full.planned}
    assert recipe.minutes.keys() == set(SIZES) and recipe.minutes["small"] <= 10
    for plan in (small, full):
        spaces = {one.case: one.config.space.removesuffix("-continuous") for one in plan.planned}
        # what is searched while training is what is measured; Engstrom's grid is one of rotation and translation
        measured = {case: plan.measured[case].grids[0].replace("engstrom", "t2") for case in spaces}
        assert all(measured[case].split("-")[0] == space for case, space in spaces.items())
        assert all(grid in GRIDS for one in plan.measured.values() for grid in one.grids)


def comparison(name: str, size: Size) -> CompareConfig:
    told = recipe_of(name).config(size)
    assert isinstance(told, CompareConfig)
    return told


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_pieces_in_both_sizes(name: str) -> None:
    small, full = (recipe_of(name).config(size) for size in SIZES)
    assert isinstance(small, ExperimentConfig) and isinstance(full, ExperimentConfig)
    assert small.pieces() == full.pieces() and {cell.data for cell in small.cells} == {"fashion-mini"}
    assert (small.seeds, full.seeds) == (3, 5) and recipe_of(name).minutes["small"] <= 10


def test_every_part_of_an_experiment_has_a_recipe_and_they_share_their_folders() -> None:
    told = [recipe_of(name).config("full") for name in EXPERIMENTS]
    own = [one for one in told if isinstance(one, ExperimentConfig)]
    for kind in KINDS:
        some = [one for one in own if one.experiment == kind]
        assert sorted(one.part for one in some) == sorted(KINDS[kind].parts)
        folders = [{one.placed(cell, 0).folder.name for cell in one.cells} for one in some]
        widest = max(folders, key=len)
        assert all(folder <= widest for folder in folders)


def test_papers_3_and_4_have_every_row_and_say_what_can_not_be_run(tmp_path: Path) -> None:
    study, rq1, share = (recipe_of(name).config("full", data_folder=tmp_path) for name in SHOWN)
    assert isinstance(study, ExperimentConfig) and isinstance(rq1, ExperimentConfig)
    assert [cell.model for cell in study.cells if cell.not_run] == ["mobilenet-224"]
    assert {(cell.data, cell.model) for cell in rq1.cells} == {
        (data, model) for data in ("cifar10", "svhn", "fashion-mnist") for model in ("alexnet", "vgg16", "vgg19")
    }
    assert isinstance(share, ExperimentConfig) and {cell.model for cell in share.cells} == {"alexnet"}
    gone = missing(rq1)
    assert set(gone) == {cell.name for cell in rq1.cells} and "svhn is not there" in gone["svhn-vgg16"]


def test_dropout_at_test_is_what_was_trained_with() -> None:
    told = recipe_of("uncertainty-study").config("full")
    assert isinstance(told, ExperimentConfig)
    rates = {cell.name: cell.train.get("dropout") for cell in told.cells if not cell.not_run}
    assert rates == {"lenet5": None, "nin": None, "resnet20": 0.2, "mobilenet": 0.2}  # the first two have their own
    for model, many in (("lenet5-dropout", 2), ("nin", 2)):
        net = create(model, classes=10, channels=3, size=(32, 32))
        assert [one.p for one in net.modules() if isinstance(one, nn.Dropout)] == [0.5] * many


def test_sizes_are_said() -> None:
    said = {name: [size_of(recipe_of(name).config(size)) for size in SIZES] for name in (*SHOWN, "sensei-exp2")}
    assert said["dare-rq1"] == ["3 seeds x 1 cell, 6 epochs", "5 seeds x 9 cells, 200 epochs"]
    assert said["uncertainty-study"][1] == "5 seeds x 5 cells, 10 to 24 epochs"
    full = "5 seeds x 28 cases x 4 methods, 30 to 200 epochs, 2,500 test images or all"
    assert said["sensei-exp2"] == ["3 seeds x 2 cases x 4 methods, 3 epochs, 60 to 300 test images", full]
    assert "of the dearest method" in size_of(recipe_of("space-size").config("small"))


def test_cases_of_papers_1_and_2_have_what_those_print() -> None:
    config = recipe_of("sensei-exp2").config("full")
    assert isinstance(config, CompareConfig)
    printed = {case.title(): config.printed(case) for case in config.cases}
    assert len(printed) == 28 and all(set(row) == {one.name for one in config.methods} for row in printed.values())
    assert printed["CIFAR-10-4 T6"] == {"standard": 0.04, "random": 28.2, "worst-of-10": 44.3, "sensei": 54.7}
    assert round(sum(row["sensei"] for name, row in printed.items() if name.endswith("T3")) / 15, 2) == 79.89
    assert round(sum(row["worst-of-10"] for name, row in printed.items() if name.endswith("T6")) / 13, 2) == 59.38
    three = recipe_of("augmentation-exp3").config("full")
    assert isinstance(three, CompareConfig) and three.printed(three.cases[1])["sensei-rw"] == 54.1
    few = recipe_of("sensei-rq2").config("full")
    assert isinstance(few, CompareConfig) and set(few.printed(few.cases[0])) == {"worst-of-10", "sensei"}


def test_the_order_of_the_cifar_rows_has_a_footnote() -> None:
    assert "ResNet-32 is CIFAR-10-1 (67.2" in recipe_of("sensei-exp2").footnote("full")
    assert recipe_of("sensei-exp2").footnote("small") == recipe_of("dare-rq1").footnote("full") == ""


def test_styx_trains_as_its_code_did() -> None:
    for name in ("styx-effectiveness", "styx-efficiency", "styx-beyond"):
        told = {one.case: one.config for one in planned(comparison(name, "full")).planned}
        rules = {case: (one.optimiser, one.learning_rate, one.schedule) for case, one in told.items()}
        assert rules["mnist-MLP"] == rules["fmnist-MLP"] == ("rmsprop", 1e-3, "constant")
        assert rules["mnist-CNN"] == rules["fmnist-CNN"] == ("adadelta", 1.0, "constant")
        assert rules["cifar10-CNN"] == ("rmsprop", 1e-4, "constant")


def test_table_2_has_every_row_of_the_paper() -> None:
    plan = planned(comparison("sensei-exp2", "full"))
    cases = list(plan.measured)
    assert len(cases) == 15 + 13 and not any(case.startswith("IMDB") and case.endswith("T6") for case in cases)
    told = {one.case: one.config for one in plan.planned if one.method == "sensei" and one.seed == 0}
    assert told["GTSRB-1 T3"].model == "gtsrb-1" and told["GTSRB-1 T6"].model == "gtsrb-1-t6"
    nets = [told[f"CIFAR-10-{number} T3"].model for number in (1, 2, 3, 4)]
    assert nets == ["resnet32", "resnet50-6n2", "wrn-28-10", "resnet20"]
    assert told["CIFAR-10-3 T6"].drops == (60, 120, 160) and plan.measured["FM-1 T6"].images == 2500
    assert {one.data for one in told.values()} == {"gtsrb", "fashion-mnist", "cifar10", "svhn", "imdb-wiki"}


def test_recipes_share_their_runs() -> None:
    plans = [planned(comparison(f"sensei-{name}", "small")) for name in ("exp1", "rq2")]
    keys = [{one.key for one in plan.planned} for plan in plans]
    assert len(keys[0] & keys[1]) == 6  # worst-of-10 and sensei


DARE = 'experiment = "dare"\npart = "share"'
GOOD = 'paper = "1"\ntable = "t"\nabout = "a"\nminutes = { small = 1, full = 2 }\n[common]\n[small]\n[full]\n'


def small(text: str) -> str:
    return GOOD.replace("[small]", f"[small]\n{text}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace('table = "t"\n', ""), "in own.toml table is missing"),
        ("more = 1\n" + GOOD, "in own.toml more is not a known field; known are about, common"),
        (GOOD.replace('table = "t"', 'tabel = "t"'), "in own.toml tabel is not a known field; did you mean table?"),
        (GOOD.replace("[small]", '[small]\nnetworks = ["VGG"]'), "networks: 'VGG' is none of GTSRB-1"),
        (GOOD.replace("[small]", '[small]\nnetworks = "all"\nspaces = ["t9"]'), "spaces: 't9' is none of t3, t6"),
        (GOOD.replace("[common]", '[common]\nexperiment = "x"'), "experiment: 'x' is none of uncertainty, dare"),
        (GOOD.replace("[common]", '[common]\nexperiment = "dare"'), "part is missing"),
        (GOOD.replace("[common]", f"[common]\n{DARE}").replace("[small]", '[small]\ncells = ["a"]'), "cells: 'a' is"),
        (GOOD.replace("[common]", "common = 3"), "in own.toml common should be a table, but 3 was given"),
        (GOOD.replace("[small]", "[[small]]"), "in own.toml small should be a table, but .* was given"),
        (GOOD.replace("{ small = 1, full = 2 }", "3"), "in own.toml minutes should be a table, but 3 was given"),
        (small("train = {}").replace("[common]", "[common]\ntrain = 3"), "train: should be a table of settings, but 3"),
        (small("networks = 4"), 'networks: should be "all" or a list of names, but 4 was given'),
        (small("networks = 'FM-1'"), "networks: should be \"all\" or a list of names, but 'FM-1' was given"),
        (small("networks = [{ name = 'FM-1' }]"), "networks: {'name': 'FM-1'} is none of GTSRB-1"),
        (small("networks = ['FM-1']\nspaces = [['t3']]"), r"spaces: \['t3'\] is none of t3, t6"),
        (GOOD.replace("[common]", '[common]\nexperiment = "networks"'), "experiment: 'networks' is none"),
        (small("networks = []"), "networks: at least one is needed"),
        (small("networks = ['FM-1']\nspaces = 't3'"), "spaces: should be a list of names, but 't3' was given"),
        (small("spaces = ['t3']"), "spaces: they belong to networks, and there are none in size small"),
        (small("networks = 'all'\ncases = []"), "networks: they are cases, so there can't be cases of your own"),
        (GOOD.replace("[common]", f"[common]\n{DARE}\ncells = 3"), "cells: should be a list, but 3 was given"),
        (small(DARE), "experiment: it belongs under .common."),
        (small("networks = ['FM-1']\nmethods = 3"), "methods: should be a list, but 3 was given"),
        (small("networks = ['FM-1']\nmethods = [3]"), "methods.0: should be a table of settings, but 3 was given"),
        (GOOD.replace("[common]", f"[common]\n{DARE}\ncells = [3]"), "cells.0: should be a table, but 3 was given"),
    ],
)
def test_anyones_own_recipe_is_checked(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_recipe(path).config("small")
    path.write_text(GOOD)
    assert recipe_of(str(path)).config("small", seeds=2).seeds == 2


def test_what_a_paper_prints_stands_beside_the_usual_methods_too(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(small("networks = ['FM-1']"))
    config = read_recipe(tmp_path / "own.toml").config("small")
    assert isinstance(config, CompareConfig) and set(config.printed(config.cases[0])) == {"random", "sensei"}


def test_anyones_own_experiment_has_its_own_cells_and_sizes(tmp_path: Path) -> None:
    cells = "[[small.cells]]\nname = 'mine'\ndata = 'fashion-mini'\nmodel = 'lenet5'\n[small.sizes]\ntest = 9\n"
    path = tmp_path / "own.toml"
    path.write_text(GOOD.replace("[common]", f"[common]\n{DARE}").replace("[small]\n", f"[small]\n{cells}"))
    told = read_recipe(path).config("small", seeds=1)
    assert isinstance(told, ExperimentConfig) and [cell.name for cell in told.cells] == ["mine"]
    sizes = told.placed(told.cells[0], 0).sizes
    assert sizes.test == 9 and sizes.tuning == 200 and told.seeds == 1  # the rest is as in the small size


def test_equal_cost_belongs_to_comparisons(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["run", "dare-rq1", "--equal-cost", "--out", str(tmp_path / "out")]) == 2
    assert "equal-cost: dare-rq1 compares no trainings" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "file").touch()
    assert run(["run", "dare-rq1", "--out", str(tmp_path / "file")]) == 2
    assert "is a file; a folder is needed" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def shared_runs(factory: pytest.TempPathFactory) -> str:
    """All recipes share a folder, also between the suite's processes: locks keep them apart."""
    base = factory.getbasetemp()
    return str((base.parent if base.name.startswith("popen") else base) / "recipes")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", COMPARISONS)
def test_a_small_recipe_runs(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    where = ["--device", "cpu", "--out", str(tmp_path), "--runs", shared_runs(tmp_path_factory)]
    assert run(["run", name, *where]) == 0
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert found["open_runs"] == 0 and found["answer"] is not None and (tmp_path / "page.html").stat().st_size < 15e6
    assert "Size: 3 seeds" in (tmp_path / "table.md").read_text()
    for case in found["cases"]:
        assert not case["stopped"] and set(case["methods"]) == set(found["methods"])
        assert all(measures["robust"]["n"] == 3 for measures in case["methods"].values())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_small_experiment_runs(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    where = ["--device", "cpu", "--out", str(tmp_path), "--runs", shared_runs(tmp_path_factory)]
    assert run(["run", name, *where]) == 0
    found = json.loads((tmp_path / "experiment.json").read_text())
    told = recipe_of(name).config("small")
    assert isinstance(told, ExperimentConfig) and len(found["lines"]) == 3 * len(told.pieces())
    assert found["open_pieces"] == 0 and not found["not_run"] and found["size"].startswith("Size: 3 seeds")
    assert "open" not in (tmp_path / "table.md").read_text().split() and (tmp_path / "page.html").stat().st_size < 15e6

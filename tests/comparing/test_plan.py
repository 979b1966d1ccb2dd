"""One list of runs: who is in it, what settings they have, what their folders are called."""

import re
from pathlib import Path

import pytest

from ukemi.augmenters import AUGMENTERS
from ukemi.comparing import CompareConfig, plan_of, planned
from ukemi.errors import UserError
from ukemi.training import Run


def test_the_plan_is_the_product_one_seed_first() -> None:
    config = CompareConfig(
        methods=("standard", "worst-of,k=3"), data=("fashion-mini",), models=("demo-cnn", "lenet5"), seeds=2, seed=7
    )
    plan = planned(config)
    assert [(one.seed, one.case, one.method) for one in plan.planned] == [
        (seed, f"fashion-mini {model}", method)
        for seed in (7, 8)
        for model in ("demo-cnn", "lenet5")
        for method in ("standard", "worst-of,k=3")
    ]
    assert len({one.key for one in plan.planned}) == 8
    assert all(one.config.seed == one.seed and one.config.validation == 0 for one in plan.planned)
    assert plan.runs == Path("comparison/runs")


def test_methods_lie_on_cases_and_these_on_the_settings_of_all() -> None:
    config = CompareConfig(
        train={"epochs": 5, "batch-size": 32, "momentum": 0.5},
        cases=[
            {"name": "a", "epochs": 6, "smoothing": 0.1, "space": "t6", "grids": ["t6-2187"], "images": 9},
            {"name": "b"},
        ],
        methods=[
            {"name": "one", "augmenter": "sensei", "epochs": 7},
            {"name": "two", "augmenter": {"name": "worst-of", "k": 4}, "objective": "mixup", "then": "retrain"},
            "ukemi,edge=1/4,objective=cross-entropy,epochs=9",
        ],
        seeds=1,
        images=50,
    )  # fmt: skip
    plan = planned(config)
    told = {(one.case, one.method): one for one in plan.planned}
    assert told["a", "one"].config.epochs == 7 and told["a", "two"].config.epochs == 6
    assert told["b", "two"].config.epochs == 5 and told["b", "two"].config.smoothing == 0
    assert told["a", "one"].config.batch_size == 32 and told["a", "one"].config.augmenter.name == "sensei"
    assert told["b", "two"].config.augmenter.k == 4 and told["b", "two"].config.objective.name == "mixup"
    third = told["a", "ukemi,edge=1/4,objective=cross-entropy,epochs=9"].config
    assert (third.augmenter.edge, third.objective.name, third.epochs) == (0.25, "cross-entropy", 9)
    assert plan.measured["a"].grids == ("t6-2187",) and plan.measured["a"].images == 9
    assert plan.measured["b"].grids == ("t3-81",) and plan.measured["b"].images == 50
    assert told["b", "two"].key != told["b", "two"].base().key


def test_a_runs_name_is_what_makes_it_and_not_where() -> None:
    def key(**changes: object) -> str:
        return planned(CompareConfig(methods=("sensei",), seeds=1, **changes)).planned[0].key

    assert key() == key(device="cpu", data_folder=Path("elsewhere"), out=Path("other"), images=5, title="x")
    assert key() == key(train={"space": "t3", "checkpoint-minutes": 1.0, "validation": 0.0})
    assert key() != key(train={"epochs": 3}) and key() != key(seed=1) and key() != key(models=("lenet5",))
    # a promise: another name would train everything again
    assert key(train={"epochs": 2}) == "89bf1dffeeb77955"


def test_every_augmenter_has_a_name_of_its_own_and_a_default_said_aloud_has_none() -> None:
    methods = [{"name": name, "augmenter": name} for name in AUGMENTERS]
    told = planned(CompareConfig(methods=methods, seeds=1)).planned
    assert len({one.key for one in told}) == len(AUGMENTERS)
    aloud = planned(CompareConfig(methods=("worst-of,k=10,epochs=20",), seeds=1)).planned[0]
    assert aloud.key == {one.method: one.key for one in told}["worst-of"]


def test_a_method_without_an_augmenter_trains_with_the_one_that_it_is_named_after() -> None:
    methods = [{"name": "sensei", "epochs": 3}, {"name": "worst-of", "augmenter": "random"}, {"name": "plain"}]
    told = planned(CompareConfig(methods=methods, seeds=1)).planned
    assert [one.config.augmenter.name for one in told] == ["sensei", "random", "standard"]


def test_a_name_behind_a_comma_is_how_tables_call_a_method() -> None:
    told = planned(CompareConfig(methods=("worst-of,k=20,name=W-20", "worst-of,k=20"), seeds=1)).planned
    assert [one.method for one in told] == ["W-20", "worst-of,k=20"] and told[0].key == told[1].key


def test_a_folder_made_with_other_defaults_is_refused(tmp_path: Path) -> None:
    one = planned(CompareConfig(methods=("sensei",), seeds=1)).planned[0]
    Run.start(one.config.model_copy(update={"out": tmp_path / one.key}))
    one.check(tmp_path)
    path = tmp_path / one.key / "config.toml"
    path.write_text(path.read_text().replace("epochs = 20", "epochs = 30"))
    with pytest.raises(UserError, match="was made with epochs 30, by another version of ukemi, and 20 is wanted"):
        one.check(tmp_path)


def test_genes_of_a_case_in_place_of_the_space_of_all_make_the_same_run_twice(tmp_path: Path) -> None:
    shear = {"name": "shear", "low": -1.0, "high": 1.0, "identity": 0.0, "step": 1.0}
    case = {"data": "fashion-mini", "genes": [shear]}
    one = planned(CompareConfig(methods=("random",), cases=[case], train={"space": "t6"}, seeds=1)).planned[0]
    made = Run.start(one.config.model_copy(update={"out": tmp_path / one.key}))
    assert made.folder == one.run(tmp_path).folder
    one.check(tmp_path)  # raises where the run's file says something else
    assert Run.config_of(made.folder).space == one.config.space == "t3" and one.config.genes is not None
    without = planned(CompareConfig(methods=("random",), cases=[case], seeds=1)).planned[0]
    assert without.key == one.key


@pytest.mark.parametrize("then", [{}, {"then": "retrain"}])
def test_a_folder_made_with_another_file_of_that_name_is_refused(
    then: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = {"name": "a", "augmenter": "random", **then}
    for place, text in (("one", "1"), ("two", "2"), ("copy", "1")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.npz").write_text(text)
    monkeypatch.chdir(tmp_path / "one")
    one = planned(CompareConfig(methods=(method,), data=("x.npz",), seeds=1)).planned[0]
    Run.start(one.config.model_copy(update={"out": tmp_path / one.base().key}))
    one.check(tmp_path)
    monkeypatch.chdir(tmp_path / "two")
    with pytest.raises(UserError, match=r"was made with data .*one/x.npz, and .*two/x.npz is wanted now"):
        one.check(tmp_path)
    monkeypatch.chdir(tmp_path / "copy")
    one.check(tmp_path)
    (tmp_path / "one").rename(tmp_path / "elsewhere")  # what was moved can't be told apart
    monkeypatch.chdir(tmp_path / "two")
    one.check(tmp_path)


def test_what_is_measured_has_a_name_of_its_own() -> None:
    def key(**changes: object) -> str:
        return next(iter(planned(CompareConfig(**changes)).measured.values())).key

    assert key() == key(seeds=9, train={"epochs": 1}) and key() != key(images=5) and key() != key(grids=("t2-27",))
    weak, strong = "fgsm,epsilon=1/255", "fgsm,epsilon=8/255"
    assert key() == key(attack_images=7) and key(attacks=(weak,)) != key(attacks=(strong,))
    assert key(attacks=(weak,)) != key(attacks=(weak,), attack_images=7)
    assert key(attacks=(weak,)) == key(attacks=[{"attack": "fgsm", "epsilon": 1 / 255}])
    few, many = (f"pgd,epsilon=8/255,steps={steps}" for steps in (3, 4))  # of one name in tables
    assert key(attacks=(few,)) != key(attacks=(many,))


def test_cases_whose_data_are_absent_are_left_out_and_named(tmp_path: Path) -> None:
    config = CompareConfig(data=("fashion-mini", "svhn"), seeds=1, data_folder=tmp_path)
    plan = plan_of(config)
    assert {one.case for one in plan.planned} == {"fashion-mini demo-cnn"}
    assert "svhn is not there" in plan.missing["svhn demo-cnn"] and len(plan.measured) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"methods": ()}, "methods: at least one is needed"),
        ({"methods": ("luck",)}, "methods: 'luck' is none of standard, random"),
        ({"methods": ("sensei", "sensei")}, "methods: 'sensei' is there twice"),
        ({"methods": ("worst-of,k",)}, "methods.worst-of,k: 'k' should have the form SETTING=VALUE"),
        ({"methods": [{"name": "a", "augmentor": "sensei"}]}, "methods.a.augmentor is no setting of `ukemi train`"),
        ({"methods": [{"name": "a", "seed": 3}]}, "methods.a.seed: the comparison sets it itself"),
        ({"methods": [{"augmenter": "sensei"}]}, "methods.name is missing"),
        ({"methods": [{"name": "a", "then": "pray"}]}, "methods.then: should be 'retrain'"),
        ({"methods": [{"name": "a", "augmenter": {"name": ["b"]}}]}, "methods: ['b'] is none of standard, random"),
        ({"methods": [{"name": "", "augmenter": "random"}]}, "methods.name: should be one line of text"),
        ({"methods": [{"name": " ", "augmenter": "random"}]}, "methods.name: should be one line of text"),
        (
            {"methods": [{"name": "a\nb"}]},
            "methods.name: should be one line of text, since tables show it, but 'a\\nb' was",
        ),
        ({"cases": [{"name": "a\u2028b"}]}, "cases.name: should be one line of text"),
        ({"baseline": "best"}, "baseline: 'best' is none of the methods"),
        ({"train": {"epoch": 3}}, "train.epoch is no setting"),
        ({"grids": ("t9",)}, "grids: 't9' is none of"),
        ({"grids": ("torch:nn",)}, "grids: 'torch:nn' is a module, not a ukemi.Space"),
        ({"grids": ("ukemi:T9",)}, "grids: module 'ukemi' has no name 'T9'"),
        ({"grids": ()}, "grids: at least one"),
        ({"cases": [{"name": "a", "grids": ["t9"]}]}, "grids: 't9' is none of"),
        ({"cases": [{"name": "a", "nothing": 1}]}, "cases.a.nothing is no setting"),
        ({"train": {"epoch": 1}}, "train.epoch is no setting of `ukemi train`; did you mean epochs?"),
        ({"train": {"lr": 1}}, "train.lr is no setting of `ukemi train`; did you mean learning-rate?"),
        ({"attacks": ("fgsm,eps=8/255",)}, "attack.eps is not a known field; did you mean epsilon?"),
        ({"train": {"epochs": 0}}, "train.epochs: should be greater than or equal to 1"),
        ({"cases": [{"name": "a", "epochs": 0}], "train": {"epochs": 3}}, "cases.a.epochs: should be greater"),
        ({"methods": ["random", "worst-of,k=0"]}, "methods.worst-of,k=0.augmenter.k: should be greater"),
        ({"cases": [{"name": "a"}], "data": ["mnist"]}, "data: the cases name their own"),
        ({"cases": [{"name": "a"}], "models": ["lenet5"]}, "models: the cases name their own"),
        ({"cases": [{"name": "a"}, {"name": "a"}]}, "cases: each needs a name of its own"),
        ({"data": ()}, "at least one data set"),
        ({"seeds": 0}, "seeds: should be greater than or equal to 1"),
        ({"jobs": 0}, "jobs: should be greater than or equal to 1"),
        ({"attacks": ("hope",)}, "attack: 'hope' is none of"),
        ({"attacks": ("fgsm",)}, "epsilon: fgsm needs it"),
        ({"attacks": ("fgsm,epsilon",)}, "attacks.fgsm,epsilon: 'epsilon' should have the form SETTING=VALUE"),
        ({"decides": "attacked"}, "decides: attacked needs an attack"),
        ({"decides": "beauty"}, "decides: should be"),
        ({"train": {"epochs": 0}}, "epochs: should be greater than or equal to 1"),
        ({"methods": ("worst-of,k=0",)}, "k: should be greater than or equal to 1"),
    ],
)
def test_a_mistake_is_one_sentence(changes: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        planned(CompareConfig(**changes))


def test_what_a_paper_prints_is_given_by_method_and_changes_no_run() -> None:
    methods = ["worst-of,k=10", {"name": "my-sensei", "augmenter": "sensei"}]
    plain = CompareConfig(methods=methods, cases=[{"name": "a"}])
    for key in ("my-sensei", "my_sensei"):  # a file's keys are read either way
        config = CompareConfig(methods=methods, cases=[{"name": "a", "printed": {key: 66.2}}])
        assert config.printed(config.cases[0]) == {"my-sensei": 66.2}
        assert [one.key for one in planned(config).planned] == [one.key for one in planned(plain).planned]
    with pytest.raises(
        UserError, match=r"cases\.a\.printed: 'random' is none of the methods: worst-of,k=10, my-sensei"
    ):
        CompareConfig(methods=methods, cases=[{"name": "a", "printed": {"random": 5}}])
    with pytest.raises(UserError, match=r"cases.*printed.*100"):
        CompareConfig(methods=methods, cases=[{"name": "a", "printed": {"my-sensei": 166.2}}])

"""In what methods differ, and the chart over it."""

from dataclasses import replace
from typing import Any

from report_samples import HOSTILE
from test_comparison_page import CASE, comparison

from ukemi.comparing import Comparison
from ukemi.recipes import recipe_of
from ukemi.reports.method_settings import apart, over_setting


def told(*methods: dict[str, Any], **train: Any) -> Comparison:
    """The three methods of the sample by these settings."""
    names = ("plain", "luck", "search")
    methods = tuple({"name": name, "then": None, **method} for name, method in zip(names, methods, strict=False))
    return replace(comparison(), settings={"train": train, "methods": list(methods)})


def sensei(**settings: Any) -> dict[str, Any]:
    return {"augmenter": {"name": "sensei", **settings}}


def test_the_one_number_is_found_defaults_included() -> None:
    one = apart(told(sensei(population=3), sensei(), sensei(population=30)))
    assert one is not None and (one.setting, one.beside) == ("population", None)
    assert one.values == {"plain": 3, "luck": 10, "search": 30}
    epochs = apart(told({"epochs": 3}, {"epochs": 5}, {}, epochs=9))
    assert epochs is not None and epochs.values == {"plain": 3, "luck": 5, "search": 9}


def test_one_method_may_stand_beside() -> None:
    some = (
        {"augmenter": {"name": "sensei-sa", "threshold": 1e-3}},
        {"augmenter": {"name": "sensei-sa", "threshold": 0.1}},
    )
    one = apart(told(sensei(), *some))
    assert one is not None and one.beside == "plain" and one.values == {"luck": 1e-3, "search": 0.1}


def test_other_differences_make_no_chart() -> None:
    assert apart(comparison()) is None  # no settings are known
    assert apart(told(sensei(), {"augmenter": "random"}, {"augmenter": {"name": "worst-of", "k": 3}})) is None
    assert apart(told(sensei(population=3), sensei(population=30), sensei(identity=True, population=5))) is not None
    assert apart(told(sensei(population=3, warmup=1), sensei(population=30, warmup=2), sensei(warmup=3))) is None
    assert apart(told(sensei(identity=True), sensei(identity=False), sensei(when="epoch"))) is None
    assert apart(told(sensei(population=3), sensei(population=30))) is None


def test_the_recipes_of_figures_5_and_6_are_charts() -> None:
    for name, setting, many in (("sensei-population", "population", 6), ("sensei-threshold", "threshold", 5)):
        config = recipe_of(name).config("full")
        one = apart(replace(comparison(), settings=config.model_dump(mode="json")))
        assert one is not None and one.setting == setting and len(one.values) == many


def test_the_chart_has_a_mark_and_a_whisker_per_value() -> None:
    found = replace(told(sensei(population=3), sensei(), sensei(population=30)), cases=(CASE, CASE))
    first, _ = over_setting(found, "robust accuracy")
    assert str(first.svg).count("data-tip=") == 3 and str(first.svg).count('class="deviation"') == 3
    assert "population 10: 51.0\u202f% ± 1.0" in str(first.svg)
    wide = over_setting(told(*(sensei(threshold=value) for value in (1e-5, 1e-3, 0.1))), "robust accuracy")
    assert all(f">{value}</text>" in str(wide[0].svg) for value in ("1e-05", "0.001", "0.1"))
    level = told(sensei(), *({"augmenter": {"name": "sensei-sa", "threshold": value}} for value in (1e-3, 0.1)))
    level = replace(level, cases=(replace(CASE, name=HOSTILE[0]),))
    (drawn,) = over_setting(level, "robust accuracy")
    assert [name for name, _ in drawn.legend] == ["robust accuracy", "plain"] and "<script" not in drawn.svg
    alone = replace(CASE, outcomes={"luck": CASE.outcomes["luck"]})
    assert over_setting(replace(found, cases=(alone,)), "robust accuracy") == []

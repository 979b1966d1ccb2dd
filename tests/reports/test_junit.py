"""Limits and the JUnit file."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ukemi import UserError
from ukemi.reports import Check, Evaluation, checks_of, parse_fail_under, write_junit
from ukemi.reports.page import glance
from ukemi.reports.summary import summary


def test_limits_are_read() -> None:
    assert parse_fail_under(["robust=0.8", " accuracy = 9/10", "mean=1"]) == {"robust": 0.8, "accuracy": 0.9, "mean": 1}
    assert parse_fail_under([]) == {}


@pytest.mark.parametrize(
    "given",
    ["robust", "robust=", "robust=80", "robust=-0.1", "robust=nan", "robust=x", "speed=0.5", "=0.5", "robust=1/0"],
)
def test_a_limit_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(UserError, match=r"^fail-under: .*was given\.$"):
        parse_fail_under([given])


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(UserError, match="robust is given twice"):
        parse_fail_under(["robust=0.5", "robust=0.6"])


def test_a_value_at_its_limit_passes(evaluation: Evaluation) -> None:
    found = evaluation.robustness
    assert found.mean_accuracy is not None
    limits = {"accuracy": found.accuracy, "robust": found.robust_accuracy + 1e-6, "mean": found.mean_accuracy}
    checks = checks_of(evaluation, limits)
    assert [(check.name, check.passed) for check in checks] == [("accuracy", True), ("robust", False), ("mean", True)]
    assert [check.value for check in checks] == [found.accuracy, found.robust_accuracy, found.mean_accuracy]


def test_the_numbers_and_the_page_say_which_limit_is_missed(evaluation: Evaluation) -> None:
    value = evaluation.robustness.robust_accuracy
    gated = replace(evaluation, limits={"accuracy": 0.0, "robust": 1.0})
    assert summary(gated)["limits"] == [
        {"name": "accuracy", "limit": 0.0, "value": evaluation.robustness.accuracy, "passed": True},
        {"name": "robust", "limit": 1.0, "value": value, "passed": False},
    ]
    assert f"Limit missed: robust {value:.4f} is under 1." in glance(gated)
    held = replace(evaluation, limits={"accuracy": 0.0, "robust": 0.0})
    assert "No limit is missed (accuracy 0 and robust 0)." in glance(held)
    assert summary(evaluation)["limits"] == [] and "imit" not in " ".join(glance(evaluation))


def test_a_mean_that_was_not_measured_and_unknown_names_are_refused(evaluation: Evaluation) -> None:
    bare = replace(evaluation, robustness=replace(evaluation.robustness, mean_accuracy=None))
    with pytest.raises(UserError, match="fail-under: mean is allowed only"):
        checks_of(bare, {"mean": 0.5})
    with pytest.raises(UserError, match="fail-under: 'speed' is none of accuracy, robust, mean"):
        checks_of(bare, {"speed": 0.5})


def test_the_file_reads_back(tmp_path: Path) -> None:
    checks = [
        Check("robust", 0.25, 0.8, False, "a <b> & 'c'", 2.5),
        Check("accuracy", 0.9, 0.8, True, "a <b> & 'c'", 2.5),
        Check("robust", 0.9, 0.8, True, "other", 1.0),
    ]
    write_junit(tmp_path / "junit.xml", checks)
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    suite = root.find("testsuite")
    assert root.tag == "testsuites"
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    assert float(suite.get("time", "")) == 3.5
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["robust accuracy", "accuracy", "robust accuracy"]
    assert cases[0].get("classname") == "a <b> & 'c'"
    failures = [case.find("failure") for case in cases]
    assert failures[0] is not None
    assert failures[0].get("message") == "robust accuracy is 0.2500, the limit is 0.8"
    assert failures[1:] == [None, None]
    assert all(float(case.get("time", "")) > 0 for case in cases)


@given(st.text())
def test_any_title_makes_a_file_that_reads_back(tmp_path_factory: pytest.TempPathFactory, title: str) -> None:
    path = tmp_path_factory.mktemp("junit") / "junit.xml"
    write_junit(path, [Check("robust", 0.25, 0.8, False, title)])
    assert len(ElementTree.parse(path).findall(".//failure")) == 1


def test_no_checks_are_an_empty_suite(tmp_path: Path) -> None:
    write_junit(tmp_path / "junit.xml", [])
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert suite.get("tests") == "0"

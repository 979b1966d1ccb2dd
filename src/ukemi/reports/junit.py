"""Release gates: limits that a model must reach, and their outcome as the XML that CI systems read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from ukemi.errors import UserError, check_known
from ukemi.reports.attacks import worst_of
from ukemi.reports.evaluation import Evaluation
from ukemi.reports.words import listed
from ukemi.schema import number
from ukemi.training.checkpoints import write_whole

NAMES = ("accuracy", "robust", "mean", "attacked")
_ROUNDING = 1e-12
"""a mean of shares may miss its limit by the last bit"""
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Check:
    """One limit and whether it was reached."""

    name: str
    value: float
    limit: float
    passed: bool
    of: str = "ukemi"
    """the evaluation that it belongs to"""
    seconds: float = 0.0
    """how long measuring took"""


def parse_fail_under(given: Sequence[str]) -> dict[str, float]:
    """Limits from texts such as `robust=0.8`.

    >>> parse_fail_under(["robust=0.8", "accuracy=9/10"])
    {'robust': 0.8, 'accuracy': 0.9}
    """
    limits: dict[str, float] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or name not in NAMES:
            raise UserError(f"fail-under: {', '.join(NAMES)} followed by =LIMIT is allowed, but {text!r} was given.")
        if name in limits:
            raise UserError(f"fail-under: {name} is given twice.")
        limits[name] = _limit(value)
    return limits


def _limit(text: str) -> float:
    try:
        limit = float(number(text))
    except ValueError:
        limit = -1.0
    if not 0 <= limit <= 1:
        raise UserError(f"fail-under: a limit is a number from 0 to 1 such as 0.8, but {text.strip()!r} was given.")
    return limit


def checks_of(evaluation: Evaluation, limits: Mapping[str, float]) -> list[Check]:
    """Holds an evaluation against its limits."""
    found = evaluation.robustness
    values = {
        "accuracy": found.accuracy,
        "robust": found.robust_accuracy,
        "mean": found.mean_accuracy,
        "attacked": worst_of(evaluation.attacks),
    }
    checks = []
    for name, limit in limits.items():
        check_known("fail-under", name, values)
        value = values[name]
        if value is None:
            needed = "the mean accuracy is measured" if name == "mean" else "an attack is run"
            raise UserError(f"fail-under: {name} is allowed only where {needed} too.")
        passed = value >= limit - _ROUNDING
        checks.append(Check(name, value, limit, passed, evaluation.title, evaluation.all_seconds() or 0.0))
    return checks


def limits_said(checks: Sequence[Check]) -> list[str]:
    """Every limit that is missed, in a sentence; or that all hold."""
    missed = [f"Limit missed: {one.name} {one.value:.4f} is under {one.limit:g}." for one in checks if not one.passed]
    if missed or not checks:
        return missed
    return [f"No limit is missed ({listed([f'{one.name} {one.limit:g}' for one in checks])})."]


def write_junit(path: Path, checks: Sequence[Check]) -> None:
    """Writes the checks as one test suite, a test case each."""
    failed = [check for check in checks if not check.passed]
    seconds = sum({check.of: check.seconds for check in checks}.values())  # one measurement serves all its checks
    counts = {"tests": str(len(checks)), "failures": str(len(failed)), "errors": "0", "time": f"{seconds:.3f}"}
    root = ElementTree.Element("testsuites", {"name": "ukemi", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "ukemi", **counts, "skipped": "0"})
    for check in checks:
        _add(suite, check)
    ElementTree.indent(root)
    write_whole(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _add(suite: ElementTree.Element, check: Check) -> None:
    # XML has no way to write control characters, and a title may hold some
    place = {"classname": _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", check.of), "name": f"{check.name} accuracy"}
    place["name"] = place["name"].replace("accuracy accuracy", "accuracy")
    case = ElementTree.SubElement(suite, "testcase", {**place, "time": f"{check.seconds:.3f}"})
    said = f"{place['name']} is {check.value:.4f}, the limit is {check.limit:g}"
    if check.passed:
        ElementTree.SubElement(case, "system-out").text = said
    else:
        failure = ElementTree.SubElement(case, "failure", {"type": "below the limit", "message": said})
        failure.text = said

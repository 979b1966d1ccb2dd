"""An experiment that is done at once, in place of DARE's."""

import pytest
from quick_experiment import Quick, Sizes

from ukemi.experiments import KINDS
from ukemi.experiments.config import Kind


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> type[Quick]:
    parts = {"all": ("one", "two", "three three"), "some": ("two",)}
    monkeypatch.setitem(KINDS, "dare", Kind(Quick, Sizes, parts))
    return Quick

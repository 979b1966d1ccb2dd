"""What can't be finished is told, and keeps no other run from being done."""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import pytest
from compare_child import config

from ukemi.comparing import compare, gathered, plan_of, running
from ukemi.errors import UserError
from ukemi.training import TrainingStopped


def test_a_training_that_diverges_is_told_and_the_others_go_on(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = running.train

    def diverging(told: Any, **options: Any) -> Any:
        if told.augmenter.name == "random" and told.seed == 1:
            raise TrainingStopped("the loss is not finite")
        return train(told, **options)

    monkeypatch.setattr(running, "train", diverging)
    found = compare(config(small, tmp_path))
    case = found.cases[0]
    assert case.stopped == {"random": {1: "the loss is not finite"}} and found.open == 0
    assert list(case.outcomes["random"]) == [0] and list(case.outcomes["worst-of,k=2"]) == [0, 1]
    pair = case.pair("random", "worst-of,k=2", "robust")
    assert pair is not None and len(pair.over_seeds.differences) == 1


NO_ROOM = OSError(28, "it broke", "/some/where")


@pytest.mark.parametrize("error", [UserError("kernel: it broke."), ZeroDivisionError("it broke"), NO_ROOM])
def test_a_run_that_fails_is_told_and_the_others_go_on(
    error: Exception, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, begun = running.train, Counter[str]()

    def failing(told: Any, **options: Any) -> Any:
        begun[f"{told.augmenter.name} {told.seed}"] += 1
        if told.augmenter.name == "random":
            raise error
        return train(told, **options)

    monkeypatch.setattr(running, "train", failing)
    with pytest.raises(type(error)) as raised:
        compare(config(small, tmp_path))
    (said,) = getattr(raised.value, "__notes__", [str(raised.value)])
    assert error is not NO_ROOM or "/some/where" in said
    assert re.search("2 of 4 runs failed, the first of them .*, random, seed 0: .*it broke.*. The same command", said)
    assert begun == {"random 0": 1, "random 1": 1, "worst-of 0": 1, "worst-of 1": 1}
    plan = plan_of(config(small, tmp_path))
    found = gathered(config(small, tmp_path), plan)
    (why,) = {why for seeds in found.cases[0].failed.values() for why in seeds.values()}
    assert found.open == 2 and list(found.cases[0].failed) == ["random"] and "it broke" in why
    with pytest.raises(type(error)) as alone:  # of a single run nothing is counted
        running.work(replace(plan, planned=plan.planned[:1]))
    assert alone.value is error
    # another process had tried it meanwhile: this one takes its word
    before, tried = time(), begun.total()
    one = replace(plan, planned=plan.planned[:1])
    noted = plan.planned[0].run(plan.runs).folder / "failed.json"
    os.utime(noted, (before + 1, before + 1))
    with pytest.raises(UserError, match="it broke"):
        running.work(one, since=before)
    assert begun.total() == tried and noted.exists()
    os.utime(noted, (before - 1, before - 1))  # before this one began
    with pytest.raises(type(error)):
        running.work(one, since=before)
    assert begun.total() == tried + 1
    monkeypatch.undo()
    again = compare(config(small, tmp_path))
    assert again.open == 0 and again.cases[0].failed == {} and not list(tmp_path.rglob("failed.json"))

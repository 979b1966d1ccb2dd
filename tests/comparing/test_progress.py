"""What a person sees while a comparison runs."""

import random
from pathlib import Path
from time import sleep

import pytest
from compare_child import config, until

from ukemi.comparing import plan_of, running
from ukemi.comparing.display import Watch, watched


def test_progress_counts_all_runs_and_the_time_left(small: Path, tmp_path: Path) -> None:
    told = config(small, tmp_path, seeds=1)
    plan = plan_of(told)
    watch = Watch(plan, 1)
    watch.look()
    assert watch.seconds_left() is None and watch.said() == "0 of 2 runs"
    running.work(plan_of(config(small, tmp_path, seeds=1, methods=("random",))))
    watch.look()
    left = watch.seconds_left()
    assert left == pytest.approx(sum(watch.took.values())) and watch.said().startswith("1 of 2 runs, about")
    log = plan.planned[1].run(plan.runs).log_path
    log.parent.mkdir(parents=True)
    log.write_text('{"seconds": 0.001}\n')
    assert watch.share(plan.planned[1]) == pytest.approx(0.45) and watch.seconds_left() < left
    log.write_text('{"seconds": 9.0}\n')
    watch.took.clear()  # as before the first run is done: one of two epochs took 9 s, and a tenth is for measuring
    assert watch.seconds_left() == pytest.approx(11.0)
    log.write_text('{"seconds": 90.0}\n')
    assert watch.said() == "1 of 2 runs, about 2 min left"
    alone, two, eight = (Watch(plan, jobs).seconds_left() for jobs in (1, 2, 8))  # none has looked: two runs are open
    assert alone is not None and two == eight == pytest.approx(alone / 2)
    running.work(plan_of(config(small, tmp_path, seeds=1, methods=("random",))))


def test_the_time_left_is_that_of_runs_of_the_same_method(small: Path, tmp_path: Path) -> None:
    plan = plan_of(config(small, tmp_path))
    watch = Watch(plan, 1)
    for one in plan.planned[:2]:  # both methods with seed 0
        watch.over.add(one)
        watch.took[one] = {"random": 10.0, "worst-of,k=2": 30.0}[one.method]
    log = plan.planned[2].run(plan.runs).log_path  # random, seed 1: nearly done, so that nearly worst-of alone is left
    log.parent.mkdir(parents=True)
    log.write_text('{"seconds": 4.5}\n{"seconds": 9.0}\n')
    assert watch.seconds_left() == pytest.approx(0.1 * 10 + 30)


def test_a_log_file_gets_a_line_when_another_run_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Looked:
        over = 0

        def look(self) -> None: ...
        def done(self) -> tuple[float, int]:
            return self.over + 0.5, 2

        def said(self) -> str:
            return f"{self.over} of 2 runs, about {random.random()} s left"

    monkeypatch.setattr("ukemi.comparing.display.LOOK", 0.01)
    looked = Looked()
    with watched(looked):
        until(lambda: "0 of 2 runs" in capsys.readouterr().err)
        looked.over = 1
        said = ""

        def told() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return "1 of 2 runs" in said

        until(told)
        sleep(0.1)
        looked.over = 2
    said += capsys.readouterr().err
    assert said.count("of 2 runs, about") == 2 and "2 of 2 runs" in said.splitlines()[-1]

"""Killed and started again it ends in the same table; several processes never run the same run twice."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
from compare_child import compared, config, hold, make, until

from ukemi.comparing import CompareConfig, compare, gathered, plan_of, planned, running, summary
from ukemi.comparing.costs import cost_of
from ukemi.comparing.outcomes import outcome_path, read_outcome
from ukemi.errors import UserError
from ukemi.training import Interrupted
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.setup import load_sets

TIMES = {"seconds"}


def table(found: Any) -> str:
    """All that was found, but for how long it took."""
    values = summary(found)
    for case in values["cases"]:
        for measures in case["methods"].values():
            for name in TIMES:
                del measures[name]
    return json.dumps(values, sort_keys=True)


@pytest.fixture(scope="module")
def whole(small: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return table(compare(config(small, tmp_path_factory.mktemp("whole"))))


def test_done_is_done(small: Path, tmp_path: Path, whole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert table(compare(config(small, tmp_path))) == whole
    assert not list(tmp_path.glob("runs/*/checkpoints"))  # what is finished and measured needs none
    monkeypatch.setattr(running, "train", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr(running, "measure", lambda *_: pytest.fail("measured again"))
    assert table(compare(config(small, tmp_path))) == whole
    monkeypatch.undo()
    # another measure does not train again, and leaves the first one as it is
    monkeypatch.setattr(running, "train", lambda *_, **__: pytest.fail("trained again"))
    attacks, grids = ("fgsm,epsilon=1/255", "fgsm,epsilon=0.3"), ("t2-27", "t3-81")
    more = compare(config(small, tmp_path, images=8, attacks=attacks, grids=grids))
    values = summary(more)["cases"][0]["methods"]["random"]
    assert values["attacked"]["mean"] == pytest.approx(
        (values["attacked fgsm (epsilon 0.00392157)"]["mean"] + values["attacked fgsm (epsilon 0.3)"]["mean"]) / 2
    )
    assert len(more.cases[0].tested()) == len(more.cases[0].tested("attacked")) == 1  # the same eight for every seed
    held = {name: values[name]["by_seed"] for name in ("robust", "robust t3-81")}
    assert held["robust t3-81"]["1"] <= held["robust"]["1"]  # the first grid decides, and the second holds all of it
    weak = {name: values[f"{name} fgsm (epsilon 0.00392157)"]["by_seed"] for name in ("attacked", "robustness")}
    accuracy = values["accuracy"]["by_seed"]
    assert 0 < accuracy["0"] < 1  # images that are not recognised are neither fooled nor held
    assert weak["attacked"]["0"] == pytest.approx(weak["robustness"]["0"] * accuracy["0"])
    assert values["robustness"]["n"] == 2 and table(compare(config(small, tmp_path))) == whole


def test_killed_again_and_again_it_ends_in_the_same_table(
    small: Path, tmp_path: Path, whole: str, processes: Any
) -> None:
    generator, kills = random.Random(2), 0
    for _ in range(200):
        worker = processes.Process(
            target=compared, args=(config(small, tmp_path), generator.randrange(8, 45), tmp_path / "notes")
        )
        worker.start()
        worker.join(60)
        if worker.exitcode == 0:
            break
        assert worker.exitcode == -9
        kills += 1
    assert worker.exitcode == 0 and kills >= 3
    told = config(small, tmp_path)
    assert table(gathered(told, plan_of(told))) == whole


def test_two_processes_never_run_the_same_run_twice(small: Path, tmp_path: Path, whole: str, processes: Any) -> None:
    told = config(small, tmp_path)
    workers = [processes.Process(target=compared, args=(told, None, tmp_path / "notes")) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    started = Counter(line.split()[0] for line in (tmp_path / "notes").read_text().splitlines())
    assert set(started.values()) == {1} and len(started) == 4
    assert table(gathered(told, plan_of(told))) == whole


def test_what_another_process_finished_just_now_is_not_done_again(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, True])  # before the lock is asked for, and once it is held
    monkeypatch.setattr(running, "finished", lambda *_: next(answers))
    monkeypatch.setattr(running, "train", lambda *_, **__: pytest.fail("trained again"))
    running.work(plan_of(config(small, tmp_path, methods=("random",), seeds=1)))
    assert not list(answers)


def test_a_repair_waits_for_whoever_trains_what_it_begins_with(
    small: Path, tmp_path: Path, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, train = threading.Event(), running.train
    monkeypatch.setattr(running, "train", lambda told, **how: (begun.set(), train(told, **how))[1])
    plan = plan_of(config(small, tmp_path, methods=[{"name": "again", "then": "retrain"}], seeds=1))
    base = plan.planned[0].base().run(plan.runs)
    ready, over = processes.SimpleQueue(), processes.Event()
    holder = processes.Process(target=hold, args=(base.folder, ready, over))
    holder.start()
    assert ready.get()
    ours = threading.Thread(target=running.work, args=(plan,))
    ours.start()
    until((plan.planned[0].run(plan.runs).folder / "lock").exists)
    assert not begun.wait(1)
    over.set()
    ours.join(60)
    holder.join(60)
    assert base.weights_path.exists() and gathered(config(small, tmp_path), plan).open == 0


def test_jobs_are_processes_and_their_mistakes_arrive(small: Path, tmp_path: Path, whole: str) -> None:
    assert table(compare(config(small, tmp_path, jobs=2))) == whole
    plan = plan_of(config(small, tmp_path / "broken", jobs=2))
    for one in plan.planned:  # a folder that can't be resumed
        folder = one.run(plan.runs).folder
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "config.toml").write_text("epochs = 1\n")
        (folder / "checkpoints" / "checkpoint-000001-00000000.safetensors").write_text("torn")
    with pytest.raises(UserError, match="no whole checkpoint"):
        running.work_in(partial(running.work, plan), 1)


def test_a_repair_follows_its_training_which_others_may_share(small: Path, tmp_path: Path) -> None:
    methods = [{"name": "plain"}, {"name": "again", "then": "retrain"}, "worst-of,k=2"]
    found = compare(config(small, tmp_path, methods=methods, seeds=1))
    assert len(list((tmp_path / "runs").iterdir())) == 3  # the plain run is the one that is trained on
    plain, again, worst = (found.cases[0].outcomes[name][0] for name in ("plain", "again", "worst-of,k=2"))
    assert plain.epochs == 2 and again.epochs == 7
    assert worst.forwards == 2 * 96 + 2 * 2 * 96 and worst.backwards == 2 * 96  # two variants are scored of each
    assert plain.losses() == again.losses()[:2] and len(again.losses()) == 7 and len(plain.losses()) == 2
    assert again.seconds > plain.seconds + again.log[-1]["seconds"]  # the training, the retraining and the search
    assert plain.forwards == plain.backwards == 2 * 96
    # ten variants per sample and epoch are tried; then five epochs of the images and of those that fool
    more = sum(line["images"] for line in again.log)
    assert again.forwards == 2 * 96 + 10 * 2 * 96 + more and again.backwards == 2 * 96 + more
    told = planned(config(small, tmp_path, methods=methods, seeds=1)).planned[1]
    assert again.forwards + again.backwards <= 96 * cost_of(told, load_sets(told.config).train).until(2)
    kept = plain.images["robust"]
    assert len(kept) == 32 and plain.measures["robust"] == float(kept.float().mean())


def test_a_mistake_shows_before_any_training(small: Path, tmp_path: Path) -> None:
    cases = [{"name": "a", "data": str(small)}, {"name": "b", "data": "nothing"}]
    told = CompareConfig(cases=cases, train={"space": "t2"}, grids=("t2-27",), out=tmp_path, device="cpu")
    with pytest.raises(UserError, match="data: 'nothing' is neither"):
        compare(told)
    assert not (tmp_path / "runs").exists()


def test_what_the_last_method_can_not_do_shows_before_the_first_is_trained(small: Path, tmp_path: Path) -> None:
    bad = ("random", "worst-of,k=2,fitness=compare_child:two_numbers")
    with pytest.raises(UserError, match=r"^fitness: two_numbers gave"):
        compare(config(small, tmp_path / "out", methods=bad))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ({"attacks": ("compare_child:plain_images",)}, r"^attack: plain_images gives a Tensor where an Attacked"),
        ({"grids": ("t2-27", "compare_child:FAILING")}, "gene 'failing'"),
    ],
)
def test_what_can_not_be_measured_shows_before_the_first_is_trained(
    measured: dict[str, Any], said: str, small: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        compare(config(small, tmp_path / "out", **measured))
    assert not (tmp_path / "out").exists()


def test_a_method_is_tried_on_the_images_that_it_reads(small: Path, tmp_path: Path) -> None:
    with np.load(small) as arrays:
        wider = {name: np.repeat(kept, 2, axis=-1) if kept.ndim > 1 else kept for name, kept in arrays.items()}
    np.savez(tmp_path / "wide.npz", **wider)
    wide = {"name": "wide", "data": str(tmp_path / "wide.npz"), "model": "compare_child:wide"}
    found = compare(config(small, tmp_path / "out", methods=("random", wide), seeds=1))
    assert found.open == 0


@pytest.mark.parametrize("kept", [slice(20), slice(None, None, -1)], ids=["fewer", "in another order"])
def test_methods_of_a_case_are_measured_on_the_same_test_images(kept: slice, small: Path, tmp_path: Path) -> None:
    with np.load(small) as arrays:
        other = {name: part[kept] if name.endswith("_test") else part for name, part in arrays.items()}
    np.savez(tmp_path / "other.npz", **other)
    told = config(small, tmp_path / "out", methods=("random",), seeds=1)
    compare(told)
    methods = ("random", {"name": "elsewhere", "data": str(tmp_path / "other.npz")})
    with pytest.raises(UserError, match=r"^methods.elsewhere: its test images are not those of random on"):
        compare(told.model_copy(update={"methods": config(small, tmp_path, methods=methods).methods}))
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1


def test_a_damaged_outcome_is_named(small: Path, tmp_path: Path) -> None:
    told = config(small, tmp_path, methods=("random",), seeds=1)
    compare(told)
    plan = plan_of(told)
    one = plan.planned[0]
    path = outcome_path(one.run(plan.runs), plan.measured[one.case])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"outcome: .* Remove it, and it is measured again"):
        read_outcome(one.run(plan.runs), plan.measured[one.case])


@pytest.mark.parametrize("values", [{"kind": "outcome", "outcome_schema": 2}, {"kind": "shown", "outcome_schema": 1}])
def test_an_outcome_of_a_later_version_is_refused(values: dict[str, Any], small: Path, tmp_path: Path) -> None:
    plan = plan_of(config(small, tmp_path, methods=("random",), seeds=1))
    run, measured = plan.planned[0].run(plan.runs), plan.measured[plan.planned[0].case]
    run.folder.mkdir(parents=True)
    write_checkpoint(outcome_path(run, measured), {}, values)
    with pytest.raises(UserError, match="is none that this ukemi can read"):
        read_outcome(run, measured)


def test_the_child_has_a_network() -> None:
    assert sum(weight.numel() for weight in make().parameters()) == 36 * 4 + 4


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(how: int, small: Path, tmp_path: Path, processes: Any) -> None:
    """Asked or not: at the next step, behind a checkpoint; the same command goes on from there."""
    told = config(small, tmp_path, seeds=1, jobs=2, train={"epochs": 4000, "batch_size": 96, "space": "t2"})
    parent = processes.Process(target=compared, args=(told, None, None))
    parent.start()
    logs = [one.run(told.out / "runs").log_path for one in plan_of(told).planned]
    until(lambda: all(log.exists() for log in logs))
    workers = [int((log.parent / "lock").read_text().split()[0]) for log in logs]
    assert len(set(workers)) == 2 and parent.pid not in workers
    os.kill(parent.pid, how)
    parent.join(60)
    assert parent.exitcode not in (0, None)
    until(lambda: not any(map(alive, workers)))
    assert all(list((log.parent / "checkpoints").glob("*.safetensors")) for log in logs)


def test_ctrl_c_while_workers_start_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kind = running.multiprocessing.get_context("forkserver").Process
    start, begun = kind.start, []

    def interrupted(worker: Any) -> None:
        if not begun:
            os.kill(os.getpid(), signal.SIGINT)
        begun.append(worker)
        start(worker)

    monkeypatch.setattr(kind, "start", interrupted)
    with pytest.raises(Interrupted, match="the same command goes on"):
        running.work_in(partial(sleep, 60), 2)
    assert len(begun) == 2 and not any(worker.is_alive() for worker in begun)
    assert "Traceback" not in capfd.readouterr().err


def test_ctrl_c_is_not_lost_where_python_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it drops what is raised."""

    class Cleaned:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            sleep(0.01)

    kind = running.multiprocessing.get_context("forkserver").Process
    look, cleaned = kind.is_alive, [Cleaned()]

    def looked(worker: Any) -> bool:
        cleaned.clear()
        return look(worker)

    monkeypatch.setattr(kind, "is_alive", looked)
    with pytest.raises(Interrupted, match="the same command goes on"):
        running.work_in(partial(sleep, 20), 2)


def test_ctrl_c_that_ends_the_process_behind_the_workers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal it reaches the one that forks them too, which dies while it still imports."""

    def lost(worker: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise EOFError("unexpected EOF")

    monkeypatch.setattr(running.multiprocessing.get_context("forkserver").Process, "start", lost)
    with pytest.raises(Interrupted, match="the same command goes on"):
        running.work_in(partial(sleep, 60), 2)


def test_ctrl_c_while_the_process_behind_the_workers_imports_is_told_once(tmp_path: Path) -> None:
    """In a terminal it reaches that process too. What it forks sees a Ctrl-C all the same."""
    begins = "import os, signal, sys, time\nif 'multiprocessing.forkserver' in ' '.join(sys.orig_argv):\n"
    (tmp_path / "sitecustomize.py").write_text(f"{begins}    os.killpg(0, signal.SIGINT)\n    time.sleep(0.1)\n")
    script = """
from functools import partial
from multiprocessing import get_context
from signal import SIGINT, pthread_sigmask
from time import sleep
from ukemi.comparing import running
from ukemi.training import Interrupted

def blocked(told):
    told.put(SIGINT in pthread_sigmask(0, ()))

if __name__ == "__main__":
    try:
        running.work_in(partial(sleep, 60), 2)
    except Interrupted as error:
        print(error)
    context = get_context("forkserver")
    told = context.SimpleQueue()
    context.Process(target=blocked, args=(told,)).start()
    print(told.get())
"""
    (tmp_path / "works.py").write_text(script)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "works.py")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        start_new_session=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "stopped; the same command goes on from here.\nFalse\n" and done.stderr == ""


def alive(pid: int) -> bool:
    """A process that nobody has waited for yet is dead too."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False

"""A real Ray on this machine: workers and driver die on the way, and the table is the one that it is without Ray."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from compare_child import compared_on_ray, config

from ukemi.comparing import CompareConfig, compare, gathered, plan_of, summary
from ukemi.comparing.cluster import STORE, at_once, check_answers, resources
from ukemi.comparing.config import Engine
from ukemi.errors import UserError

TRAIN = {"epochs": 6, "batch_size": 8, "checkpoint_minutes": 1e-4, "space": "t2", "model": "compare_child:make"}
PATIENCE = 200
"""seconds in which Ray's workers come up, each with torch to import, on a machine whose disk is cold"""
OWN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_memory_monitor_refresh_ms": "0"}
"""a cluster that answers this test alone, and ends no worker because others use the machine's memory"""


def table(told: CompareConfig) -> str:
    """All that was found, but for how long it took."""
    values = summary(gathered(told, plan_of(told)))
    for case in values["cases"]:
        for measures in case["methods"].values():
            del measures["seconds"]
    return json.dumps(values, sort_keys=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Ray with two CPUs, in processes of its own."""
    address = f"127.0.0.1:{free_port()}"
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus", "2"]
    start += ["--include-dashboard", "false", "--object-store-memory", str(STORE), "--disable-usage-stats"]
    start += ["--node-ip-address", "127.0.0.1", "--port", address.rpartition(":")[2]]
    log = tmp_path_factory.mktemp("ray") / "log"
    with log.open("w") as written:
        head = subprocess.Popen(start, stdout=written, stderr=written, env=os.environ | OWN)
    with pytest.MonkeyPatch.context() as known:
        for name, value in OWN.items():
            known.setenv(name, value)
        await_answer(address, head, log)
    yield address
    head.send_signal(signal.SIGTERM)
    try:
        head.wait(30)
    except subprocess.TimeoutExpired:  # a slow machine: what it leaves behind ends with it
        head.kill()
        head.wait()


def await_answer(address: str, head: subprocess.Popen[bytes], log: Path) -> None:
    until = monotonic() + PATIENCE
    while monotonic() < until:
        try:
            return check_answers(address)
        except UserError:
            assert head.poll() is None, log.read_text()
            sleep(0.1)
    pytest.fail(log.read_text())


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def at_work(told: CompareConfig, but: int = 0) -> int:
    """The process that trains the first unfinished run that has a checkpoint, once it is another than `but`."""
    plan, until = plan_of(told), monotonic() + PATIENCE
    while monotonic() < until:
        for one in plan.planned:
            run = one.run(plan.runs)
            if list(run.checkpoints.glob("*.safetensors")) and not run.weights_path.exists():
                holder = (run.folder / "lock").read_text().split()
                if holder and int(holder[0]) != but:
                    return int(holder[0])
                break
        sleep(0.05)
    pytest.fail("waited in vain")


def begun(told: CompareConfig, processes: Any) -> Any:
    driver = processes.Process(target=compared_on_ray, args=(told, OWN))
    driver.start()
    return driver


@pytest.mark.parametrize("kept", ["file", "variable"])
def test_auto_finds_a_ray_that_died(
    kept: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its address is still noted, but nobody answers there. Comes before the cluster, which auto would find."""
    from ray._private.services import find_gcs_addresses

    dead = f"127.0.0.1:{free_port()}"
    if kept == "variable":
        monkeypatch.setenv("RAY_ADDRESS", dead)
    elif find_gcs_addresses():
        pytest.skip("a Ray that runs on this machine is found before the file is read")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(dead)
    monkeypatch.setattr("ukemi.comparing.cluster.ANSWER", 2.0)
    with pytest.raises(UserError, match=r"^address: no Ray answers where auto looks within 2 s\.$"):
        compare(config(small, tmp_path, engine="ray", address="auto"))
    assert capfd.readouterr() == ("", "")


def test_a_worker_is_killed(cluster: str, small: Path, tmp_path: Path, processes: Any) -> None:
    """Ray starts its run again, from the checkpoint, and the table is the one that it is without Ray."""
    told = config(small, tmp_path / "ray", train=TRAIN, seeds=1, engine="ray", address=cluster)
    driver = begun(told, processes)
    worker = at_work(told)  # at once: its runs take seconds
    assert worker != driver.pid
    os.kill(worker, signal.SIGKILL)
    assert at_work(told, but=worker) != driver.pid
    usual = config(small, tmp_path / "local", train=TRAIN, seeds=1)
    compare(usual)
    driver.join(PATIENCE)
    assert driver.exitcode == 0
    assert table(told) == table(usual)


@pytest.mark.slow
def test_the_driver_is_killed(cluster: str, small: Path, tmp_path: Path, processes: Any) -> None:
    """Its workers end with it, and the same command goes on from their checkpoints."""
    told = config(small, tmp_path / "ray", train=TRAIN, engine="ray", address=cluster)
    driver = begun(told, processes)
    at_work(told)
    os.kill(driver.pid, signal.SIGKILL)
    driver.join(60)
    driver = begun(told, processes)
    driver.join(PATIENCE)
    assert driver.exitcode == 0
    usual = config(small, tmp_path / "local", train=TRAIN)
    compare(usual)
    assert table(told) == table(usual)


def test_what_a_run_takes_and_how_many_fit() -> None:
    there = {"CPU": 16.0, "GPU": 2.0}
    assert resources(Engine(engine="ray"), "auto", there) == {"num_cpus": 1, "num_gpus": 1}
    assert resources(Engine(engine="ray"), "cpu", there) == {"num_cpus": 1, "num_gpus": 0}
    assert resources(Engine(engine="ray"), "auto", {"CPU": 4.0}) == {"num_cpus": 1, "num_gpus": 0}
    half = resources(Engine(engine="ray", gpus_per_run="1/2", cpus_per_run=3), "auto", there)
    assert half == {"num_cpus": 3, "num_gpus": 0.5} and at_once(half, there) == 4
    assert at_once({"num_cpus": 3, "num_gpus": 0}, there) == 5 and at_once({"num_cpus": 99, "num_gpus": 0}, there) == 1


@contextmanager
def bare_grpc() -> Iterator[str]:
    """A gRPC server that has no services: it speaks as Ray does, but is none."""
    grpc = pytest.importorskip("grpc", reason="grpc comes with Ray, which is not installed")
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('0.0.0.0:0')}"  # Ray calls this machine by another name
    server.start()
    yield address
    server.stop(None).wait()


@contextmanager
def silent() -> Iterator[str]:
    """Somebody who listens and says nothing."""
    with socket.create_server(("", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_an_address_without_a_ray_is_told_in_seconds(small: Path, tmp_path: Path) -> None:
    dead = f"127.0.0.1:{free_port()}"
    began = monotonic()
    with pytest.raises(UserError, match=rf"^address: no Ray answers at {dead} \(.*refused.*\)\.$"):
        compare(config(small, tmp_path, engine="ray", address=dead))
    assert monotonic() - began < 10
    for wrong in ("ray://head:10001", "head", ":6379", "head:port"):
        with pytest.raises(UserError, match=r"address: HOST:PORT of the cluster's head, or auto, is needed"):
            check_answers(wrong)


@pytest.mark.parametrize("other", [bare_grpc, silent])
def test_what_is_no_ray_is_not_waited_for(
    other: Callable[[], AbstractContextManager[str]],
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("ukemi.comparing.cluster.ANSWER", 2.0)
    with other() as address, pytest.raises(UserError, match=rf"^address: no Ray answers at {address} .*\.$"):
        compare(config(small, tmp_path, engine="ray", address=address))
    assert capfd.readouterr() == ("", "")


def test_the_reason_is_one_sentence(cluster: str) -> None:
    """A Ray that does not know us says so at length."""
    with pytest.raises(UserError, match=rf"^address: no Ray answers at {cluster} \(AuthenticationError: [^\n]*\)\.$"):
        check_answers(cluster)


def test_without_ray_it_says_what_to_install(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"^engine: Ray is not installed; pip install 'ukemi\[ray\]'\.$"):
        compare(config(small, tmp_path, engine="ray"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"address": "head:6379"}, "address: it belongs to --engine ray, but the engine is local"),
        ({"gpus_per_run": 0.5}, "gpus-per-run: it belongs to --engine ray"),
        ({"cpus_per_run": 2}, "cpus-per-run: it belongs to --engine ray"),
        ({"retries": 1}, "retries: it belongs to --engine ray"),
        ({"engine": "ray", "jobs": 2}, "jobs: it belongs to --engine local, but the engine is ray"),
        ({"engine": "slurm"}, "engine: should be 'local' or 'ray'"),
        ({"engine": "ray", "cpus_per_run": 0}, "cpus-per-run: should be greater than 0"),
    ],
)
def test_a_mistake_is_one_sentence(changes: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        CompareConfig(**changes)

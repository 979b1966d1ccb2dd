"""The plan on a Ray cluster: every run a task that holds its resources, is retried from its checkpoint, and writes into
the shared folder of runs. Ray decides where and when; locks and folders are those of the local engine."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import torch

from ukemi.comparing.config import Engine
from ukemi.comparing.display import Watch, watched
from ukemi.comparing.locks import POLL
from ukemi.comparing.outcomes import FAILED, finished, write_reason
from ukemi.comparing.plan import Plan, Planned
from ukemi.comparing.running import PATIENCE, failures, work
from ukemi.errors import UserError
from ukemi.schema import reason
from ukemi.training import Interrupted

ANSWER = 4.0
"""seconds within which a Ray should answer"""
STORE = 80 * 2**20
"""bytes that a Ray of our own keeps for objects; runs hand over sentences, so Ray's least is plenty"""
_ASKING = Path(__file__).with_name("asking.py")


@contextmanager
def connected(config: Engine) -> Iterator[Any]:
    """Ray itself, connected; what this opened it also closes."""
    try:
        import ray
    except ImportError:
        raise UserError("engine: Ray is not installed; pip install 'ukemi[ray]'.") from None
    if ray.is_initialized():
        yield ray
        return
    address = config.address or os.environ.get("RAY_ADDRESS") or "local"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anyone uninvited
    if address != "local":
        check_answers(address)
    own = {"include_dashboard": False, "object_store_memory": STORE} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(f"address: the Ray at {address} takes no work from here ({reason(error)}).") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def check_answers(address: str) -> None:
    """Refuses, in seconds, an address where nothing listens or where what listens is no Ray: Ray itself waits long."""
    host, _, port = address.rpartition(":")
    if address != "auto" and (not host or not port.isdigit() or "/" in host):
        raise UserError(f"address: HOST:PORT of the cluster's head, or auto, is needed, but {address!r} was given.")
    place = "where auto looks" if address == "auto" else f"at {address}"
    asked = [sys.executable, "-P", str(_ASKING), address, str(ANSWER)]  # -P: no file of ours hides one of Ray's
    answer = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if answer.returncode == -signal.SIGALRM:
        raise UserError(f"address: no Ray answers {place} within {ANSWER:g} s.")
    if answer.returncode not in (0, 2):  # 2: a Ray without this check; its own patience decides
        why = answer.stdout.partition("\n")[0].partition(". ")[0] or f"exit status {answer.returncode}"
        raise UserError(f"address: no Ray answers {place} ({why}).")


def work_on(ray: Any, plan: Plan, config: Engine, device: str, said: Callable[[str], None]) -> None:
    """Hands every run that is not finished to Ray and waits for all; those that failed are named at the end."""
    there = ray.cluster_resources()
    wanted = resources(config, device, there)
    _check_fits(wanted, there, config, said)
    task = ray.remote(max_retries=config.retries, retry_exceptions=True, **wanted)(_done)
    where, path = Path.cwd(), [entry for entry in sys.path if entry]
    waiting = {
        task.options(name=one.title()).remote(one, plan, where, path): one
        for one in plan.planned
        if not finished(one.run(plan.runs), plan.measured[one.case])
    }
    said(f"{len(waiting)} runs on Ray, {_said(wanted)} each.")
    try:
        with watched(Watch(plan, at_once(wanted, there))):
            failed = _failures(ray, waiting)
    except KeyboardInterrupt:
        _cancel(ray, list(waiting))
        raise Interrupted("stopped; the same command goes on from here.") from None
    if failed:
        for one, why in failed.items():  # a worker that was lost could not
            with suppress(UserError):
                write_reason(one.run(plan.runs), FAILED, why)
        raise UserError(f"engine: {failures(failed, len(plan.planned))}")


def resources(config: Engine, device: str, there: Mapping[str, float]) -> dict[str, float]:
    """What Ray keeps for one run; a GPU where there are any and the runs want one."""
    gpus = config.gpus_per_run
    if gpus is None:
        gpus = float(device != "cpu" and there.get("GPU", 0) > 0)
    return {"num_cpus": config.cpus_per_run, "num_gpus": gpus}


def at_once(wanted: Mapping[str, float], there: Mapping[str, float]) -> int:
    """How many runs the cluster has room for."""
    shares = ((there.get("CPU", 0), wanted["num_cpus"]), (there.get("GPU", 0), wanted["num_gpus"]))
    return max(1, min(int(have / need) for have, need in shares if need))


def _check_fits(
    wanted: Mapping[str, float], there: Mapping[str, float], config: Engine, said: Callable[[str], None]
) -> None:
    """A run that fits nowhere would wait for ever: on this machine refused, on a cluster, which may grow, told."""
    for kind, need in (("CPU", wanted["num_cpus"]), ("GPU", wanted["num_gpus"])):
        if need > there.get(kind, 0):
            told = f"{kind.lower()}s-per-run: {need:g} are asked for, but there are {there.get(kind, 0):g}"
            if config.address is None and "RAY_ADDRESS" not in os.environ:
                raise UserError(f"{told} on this machine.")
            said(f"{told} in the cluster now; runs wait until it grows.")


def _done(one: Planned, plan: Plan, where: Path, path: Sequence[str]) -> str:
    """The task: one run, begun or taken up. Gives the sentence of a mistake, which trying again would not mend; all
    else that goes wrong is raised, and tried again."""
    import ray

    sys.path += [entry for entry in path if entry not in sys.path]
    try:
        os.chdir(where)
    except OSError:
        return f"{where} is not on {os.uname().nodename}; all machines need the folders of this one."
    held = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    torch.set_num_threads(max(1, int(held)))
    try:
        work(replace(plan, planned=(one,)))
    except UserError as error:
        return str(error)
    return ""


def _failures(ray: Any, waiting: dict[Any, Planned]) -> dict[Planned, str]:
    """Waits until every task has ended for good; why those that failed did. `waiting` keeps the open ones."""
    failed: dict[Planned, str] = {}
    while waiting:
        ready, _ = ray.wait(list(waiting), timeout=POLL)
        for reference in ready:
            why, one = _ended(ray, reference), waiting.pop(reference)
            if why:
                failed[one] = why
    return failed


def _ended(ray: Any, reference: Any) -> str:
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        return f"{error.cause!r}."
    except ray.exceptions.RayError as error:
        return f"its worker was lost again and again ({type(error).__name__})."


def _cancel(ray: Any, references: Sequence[Any]) -> None:
    """Asks every run for an end at its next step, behind a checkpoint."""
    for reference in references:
        with suppress(Exception):  # it may have ended by itself meanwhile
            ray.cancel(reference)
    ray.wait(references, num_returns=len(references), timeout=PATIENCE)
    sleep(POLL)


def _said(wanted: Mapping[str, float]) -> str:
    gpus = f" and {wanted['num_gpus']:g} GPU" if wanted["num_gpus"] else ""
    return f"{wanted['num_cpus']:g} CPU{gpus}"

"""One loop over the plan, run by any number of processes at once: each run is done by whoever holds its lock."""

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from time import sleep, time
from typing import Any

import torch

from ukemi.comparing.costs import RETRAINED
from ukemi.comparing.locks import POLL, held
from ukemi.comparing.outcomes import FAILED, STOPPED, finished, measure, read_reason, write_reason
from ukemi.comparing.plan import Plan, Planned
from ukemi.errors import UserError
from ukemi.ranks import Ranks
from ukemi.repairs import retrain
from ukemi.schema import reason
from ukemi.training import Interrupted, Run, TrainingStopped, train
from ukemi.training.interrupt import interruptible

PATIENCE = 20.0
"""seconds until a worker that was asked to end is asked again"""


def work(plan: Plan, since: float | None = None) -> None:
    """Does what nobody else is doing, until everything is done; what others are doing is waited for. A run that fails
    keeps no other from being done: what went wrong is raised at the end. What failed `since` then, here or elsewhere,
    is not tried again."""
    failed: dict[Planned, Exception] = {}
    left: Sequence[Planned] = plan.planned
    since = time() if since is None else since
    while left := [one for one in left if not _over(one, plan, since, failed)]:
        sleep(POLL)
    if failed:
        raise _told(failed, len(plan.planned))


def _over(one: Planned, plan: Plan, since: float, failed: dict[Planned, Exception]) -> bool:
    """Whether there is nothing left to do or to wait for."""
    try:
        return _done(one, plan, since)
    except Interrupted:
        raise
    except Exception as error:  # a user's method fails in any way it likes
        failed[one] = error
        return True


def _told(failed: Mapping[Planned, Exception], count: int) -> Exception:
    """What went wrong first and, where there were other runs, how many failed. What is no user's mistake keeps its
    traceback."""
    error = next(iter(failed.values()))
    if count == 1:
        return error
    if isinstance(error, UserError):
        return UserError(failures({one: str(why) for one, why in failed.items()}, count))
    error.add_note(failures({one: reason(why) for one, why in failed.items()}, count))
    return error


def failures(failed: Mapping[Planned, str], count: int) -> str:
    """How many of so many runs failed, and why the first of them."""
    one, why = next(iter(failed.items()))
    about = f"{len(failed)} of {count} runs failed, the first of them {one.title()}"
    return f"{about}: {why.removesuffix('.')}. The same command goes on from here."


def _done(one: Planned, plan: Plan, since: float) -> bool:
    """Whether a run is finished; where it is not and nobody is at it, it is done now."""
    run, measured = one.run(plan.runs), plan.measured[one.case]
    if finished(run, measured):
        return True
    with held(run.folder) as mine:
        if mine and not finished(run, measured):
            failed = run.folder / FAILED
            if failed.exists() and failed.stat().st_mtime >= since:
                raise UserError(read_reason(run, FAILED))  # in another process
            failed.unlink(missing_ok=True)
            with _noted(run):
                _trained(one, run)
                measure(one, run, measured)
                shutil.rmtree(run.checkpoints, ignore_errors=True)
        return mine


@contextmanager
def _noted(run: Run) -> Iterator[None]:
    """What goes wrong is written down beside the run while nobody else may take it up."""
    try:
        yield
    except TrainingStopped as error:
        write_reason(run, STOPPED, str(error))
    except Interrupted:
        raise
    except Exception as error:
        with suppress(UserError):  # where nothing can be written it is told all the same
            write_reason(run, FAILED, str(error) if isinstance(error, UserError) else reason(error))
        raise


def _trained(one: Planned, run: Run) -> None:
    """Trains from the start, from the last checkpoint, or not at all, as the folder has it."""
    if run.weights_path.exists():
        return
    begun = (run.folder / "config.toml").exists()
    if one.then is None:
        train(one.config.model_copy(update={"out": run.folder}), resume=begun, quiet=True)
    elif begun:
        train(Run.config_of(run.folder), resume=True, quiet=True)
    else:
        base = one.base().run(run.folder.parent)
        with held(base.folder, wait=True):
            _trained(one.base(), base)
        retrain(base, epochs=RETRAINED, out=run.folder, quiet=True)


def work_in(work: Callable[[], None], jobs: int) -> None:
    """The same work in `jobs` processes, which locks keep apart; what goes wrong in one of them is raised here."""
    context = multiprocessing.get_context("forkserver")  # imports once, and touches no GPU
    context.set_forkserver_preload(["ukemi.comparing", "ukemi.comparing.awake"])
    wrong = context.SimpleQueue()
    threads = max(1, torch.get_num_threads() // jobs)
    workers = [context.Process(target=_worker, args=(work, threads, wrong)) for _ in range(jobs)]
    # asked, not raised: Python drops what is raised while it cleans up, and a Ctrl-C would be lost
    with interruptible(Ranks()) as asked:
        try:
            _start(workers, asked)
            _wait(workers, asked)
        finally:
            for worker in workers:
                if worker.pid is not None:
                    _end(worker)
    if asked.is_set():
        raise Interrupted("stopped; the same command goes on from here.")
    if not wrong.empty():
        raise wrong.get()
    if any(worker.exitcode for worker in workers):
        raise UserError("jobs: a worker was ended from outside; the same command goes on from here.")


def _start(workers: Sequence[Any], asked: threading.Event) -> None:
    """Ctrl-C waits until all are there: one that is left half started would tell of it in a traceback."""
    try:
        _start_server()
        for worker in workers:
            worker.start()
    except EOFError:  # the process that forks them is gone
        if not asked.is_set():
            raise


def _start_server() -> None:
    """The process that forks workers. A Ctrl-C in a terminal reaches it too, and would end its imports in a traceback:
    it is held back until they are done (`awake`)."""
    resource_tracker.ensure_running()  # else the server starts it, and that lets signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(workers: Sequence[Any], asked: threading.Event) -> None:
    """Until all are done, one went wrong, or an end is asked for."""
    while any(worker.is_alive() for worker in workers) and not any(worker.exitcode for worker in workers):
        if asked.is_set():
            return
        sleep(POLL)  # not asked.wait: it holds the lock that the handler of a Ctrl-C needs


def _end(worker: Any) -> None:
    """Asks for an end at the next step, behind a checkpoint; and again, since Python drops what is raised while it
    cleans up. One that has not begun yet, and would tell of it in a traceback, is ended at once."""
    while worker.is_alive():
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGINT if os.getsid(worker.pid) == worker.pid else signal.SIGTERM)
        worker.join(PATIENCE)
    worker.join()


def _worker(work: Callable[[], None], threads: int, wrong: Any) -> None:
    try:
        os.setsid()  # Ctrl-C in the terminal reaches the parent alone, which asks each worker once
        threading.Thread(target=_end_with_parent, daemon=True).start()
        torch.set_num_threads(threads)
        work()
    except (Interrupted, KeyboardInterrupt):
        raise SystemExit(1) from None
    except UserError as error:
        wrong.put(error)
        raise SystemExit(1) from None
    except Exception as error:
        said = getattr(error, "__notes__", [f"a run failed: {reason(error)}."])
        wrong.put(UserError(said[-1]))
        raise SystemExit(1) from None


def _end_with_parent() -> None:
    """A worker whose parent was killed stops at its next step."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)

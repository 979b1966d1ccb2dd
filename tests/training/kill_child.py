"""A training run in a process of its own that kills itself, for real, at a chosen point of its life."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ukemi.training import Run, TrainConfig, checkpoints, loop, train


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, at: int) -> None:
    """Lets the process die at the `at`-th time that it comes by `point`."""
    left = [at]

    def due() -> bool:
        left[0] -= 1
        return left[0] < 0

    if point == "before-write":
        whole = checkpoints.write_whole
        checkpoints.write_whole = lambda path, body: die() if due() else whole(path, body)
    elif point == "in-write":
        whole = checkpoints.write_whole

        def half(path: Path, body: bytes) -> None:
            if due():
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.with_name(path.name + ".partial").open("wb") as file:
                    file.write(body[: len(body) // 2])
                    file.flush()
                    die()
            whole(path, body)

        checkpoints.write_whole = half
    elif point == "before-flush":
        flush = os.fsync
        os.fsync = lambda handle: die() if due() else flush(handle)
    elif point == "before-rename":
        rename = os.replace
        os.replace = lambda *paths: die() if due() else rename(*paths)
    elif point == "after-rename":
        rename = os.replace

        def renamed(*paths: Any) -> None:
            rename(*paths)
            if due():
                die()

        os.replace = renamed
    elif point == "mid-epoch":
        count = loop._count

        def counted(*things: Any) -> None:
            if due():
                die()
            count(*things)

        loop._count = counted
    elif point in ("in-merge", "in-exchange"):  # on several ranks: rows of the population; flags and sums
        name = "broadcast" if point == "in-merge" else "all_reduce"
        exchange = getattr(dist, name)
        setattr(dist, name, lambda *given: die() if due() else exchange(*given))


def child(values: dict[str, Any], point: str, at: int) -> None:
    """Starts or resumes the run; the global generators are disturbed first, which must change nothing."""
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    torch.manual_seed(os.getpid())
    arm(point, at)
    folder = Path(values["out"])
    if (folder / "config.toml").exists():
        train(Run.config_of(folder), resume=True, quiet=True)
    else:
        train(TrainConfig(**values), quiet=True)

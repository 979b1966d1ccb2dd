"""A comparison in a process of its own that can be killed, and that notes which trainings it starts."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import torch
from torch import nn

from ukemi import Gene, Space
from ukemi.comparing import CompareConfig, compare, running
from ukemi.comparing.locks import held
from ukemi.training import checkpoints, loop


def make() -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 4))


def wide() -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(72, 4))


def two_numbers(scored: object) -> torch.Tensor:
    """No fitness: one number per variant is needed."""
    return torch.zeros(2)


def plain_images(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """No attack: an Attacked is needed."""
    return images


def _fails(images: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no such kernel")


FAILING = Space((Gene("failing", low=0, high=1, identity=0, step=0.5, kernel=_fails),), "failing")


def config(data: Path, out: Path, **changes: Any) -> CompareConfig:
    """Two methods, two seeds, on 96 images of 12 x 12."""
    train = {"epochs": 2, "batch_size": 16, "checkpoint_minutes": 0.0, "space": "t2", "model": "compare_child:make"}
    told = {"methods": ("random", "worst-of,k=2"), "data": (str(data),), "models": ("compare_child:make",)}
    told |= {"train": train, "grids": ("t2-27",), "seeds": 2, "out": out, "device": "cpu"}
    return CompareConfig(**{**told, **changes})


def until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        sleep(0.1)
    raise AssertionError("waited in vain")


def compared(told: CompareConfig, kill_after: int | None, notes: Path | None, jobs: int = 1) -> None:
    """Compares; dies by SIGKILL the `kill_after`-th time that it writes a file or takes a step."""
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    left = [kill_after]

    def come_by() -> None:
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    whole, count, train = checkpoints.write_whole, loop._count, running.train

    def write(path: Path, body: bytes) -> None:
        come_by()
        whole(path, body)
        come_by()

    def counted(*things: Any) -> None:
        come_by()
        count(*things)

    def noted(config: Any, **options: Any) -> Any:
        if notes is not None:
            with notes.open("a") as file:
                file.write(f"{config.out.name} {os.getpid()}\n")
        return train(config, **options)

    checkpoints.write_whole, loop._count, running.train = write, counted, noted
    compare(told)


def compared_on_ray(told: CompareConfig, variables: dict[str, str]) -> None:
    """Compares with these environment variables, which Ray reads when it is imported."""
    os.environ |= variables
    compared(told, None, None)


def hold(folder: Path, ready: Any, wait: Any) -> None:
    with held(folder) as mine:
        ready.put(mine)
        wait.wait(30)

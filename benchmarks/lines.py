"""Lines of JSON that outlive the machine, one for every measurement that is done.

A script that writes them goes on where it stopped, and several of it may run beside each other, on one device or on
several with a shared folder: each takes what has no line yet and what no other works on.
"""

import hashlib
import json
import platform
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import torch

from ukemi.comparing.locks import held

HERE = Path(__file__).parent
Line = dict[str, Any]
Job = TypeVar("Job")


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, line: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:  # one write: lines of processes beside each other stay whole
        file.write(json.dumps(line) + "\n")


def told(text: str, out: Path | None) -> None:
    """Prints what a script found, and writes it where that is asked for."""
    print(text)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)


def has(path: Path, key: Line) -> bool:
    """Whether a line of this key is there."""
    return any(all(line.get(name) == value for name, value in key.items()) for line in read(path))


def left(jobs: Iterable[tuple[Line, Job]], path: Path, seconds: float) -> Iterator[tuple[Line, Job]]:
    """Those jobs, each behind the key of its line, that nobody has done or is doing; none after `seconds`."""
    ends = perf_counter() + seconds
    for key, job in jobs:
        with claimed(path, key) as mine:
            if not mine or has(path, key):
                continue
            if perf_counter() > ends:
                print("out of time", flush=True)
                return
            yield key, job


@contextmanager
def claimed(path: Path, key: Line) -> Iterator[bool]:
    """Whether this process alone works on `key` for the time of the block."""
    marks = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in (str(path.resolve()), json.dumps(key)))
    with held(Path(tempfile.gettempdir(), "ukemi-lines", *marks)) as mine:
        yield mine


def device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    return found.stdout.strip() or "unknown"

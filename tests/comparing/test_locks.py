"""A lock is held by one process, and by none that is dead."""

import os
import signal
from pathlib import Path
from typing import Any

from compare_child import hold

from ukemi.comparing.locks import LOCK, held


def test_a_lock_is_held_by_one_and_falls_with_it(tmp_path: Path, processes: Any) -> None:
    ready, wait = processes.Queue(), processes.Event()
    other = processes.Process(target=hold, args=(tmp_path / "run", ready, wait))
    other.start()
    assert ready.get(timeout=30) is True
    with held(tmp_path / "run") as mine:
        assert not mine
    assert (tmp_path / "run" / LOCK).read_text().startswith(f"{other.pid} ")
    os.kill(other.pid, signal.SIGKILL)  # no chance to clean up
    with held(tmp_path / "run", wait=True) as mine:
        assert mine and (tmp_path / "run" / LOCK).read_text().startswith(f"{os.getpid()} ")
        with held(tmp_path / "run") as again:
            assert not again  # nor by the same process twice
        with held(tmp_path / "another") as free:
            assert free
    other.join()


def test_a_lock_is_free_after_the_block(tmp_path: Path) -> None:
    for _ in range(2):
        with held(tmp_path) as mine:
            assert mine

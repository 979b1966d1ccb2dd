"""Ctrl-C ends a training at a checkpoint."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ukemi.ranks import Ranks


class Interrupted(Exception):
    """Ctrl-C: the run ended cleanly at a checkpoint. The CLI exits with 130."""


@contextmanager
def interruptible(ranks: Ranks) -> Iterator[threading.Event]:
    """The first Ctrl-C asks for an end at the next step; the second ends at once.

    On several ranks so does the SIGTERM that torchrun sends them all when it is stopped itself.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    signal.signal(signal.SIGINT, ask)
    if not ranks.alone:
        signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""What is in force while the command line is being imported, which takes a second or two."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType


@contextmanager
def stopped_in_a_line() -> Iterator[None]:
    """Ctrl-C ends the command in a line, as it does later on; where ukemi is somebody's library nothing is changed."""
    command = ("-m", "ukemi") in pairwise(sys.orig_argv) or Path(sys.argv[0]).stem == "ukemi"
    if not command or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    """At once: compiled modules make errors of their own of what is raised while they are imported."""
    os.write(2, b"ukemi: stopped.\n")
    os._exit(130)

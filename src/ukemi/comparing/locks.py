"""Locks that a dead process can't keep: the kernel holds them and lets go when the process ends, however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

from ukemi.errors import UserError

LOCK = "lock"
POLL = 0.2
"""seconds between two looks at a lock that another process holds"""


@contextmanager
def held(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether this process holds the folder's lock for the time of the block; with `wait`, once it does.

    The file stays where it is: who removed it could remove another's. Its text, the holder's process and machine, is
    for people; what counts is the kernel's lock on it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        got = _taken(handle)
        while wait and not got:
            sleep(POLL)
            got = _taken(handle)
        if got:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()} {os.uname().nodename}\n".encode(), 0)
        yield got
    finally:
        os.close(handle)  # and with it the lock


def _taken(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:
        raise UserError("compare: it needs the file locks of a POSIX system, which is not there.") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

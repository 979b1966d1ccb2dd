"""Asks an address, for so many seconds, whether a Ray is there: exit status 0 says yes, 2 that this Ray can't ask, a
line on stdout why not. Run by its path and without ukemi: Ray's client waits long, and only a signal ends it."""

import signal
import socket
import sys

try:
    from ray.scripts.scripts import main
except ImportError:
    sys.exit(2)


def ask(address: str) -> None:
    """Raises where nobody listens, and ends by Ray's own check of its health where somebody does."""
    host, _, port = address.rpartition(":")
    if host:  # auto is for Ray to find
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    sys.argv = ["ray", "health-check", "--skip-version-check", "--address", address]
    main()


if __name__ == "__main__":
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))  # from here on: a slow start is not the address's fault
    try:
        ask(sys.argv[1])
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(1)

"""Asks the address given whether a Ray is there; exit status 0 says yes, a line on stdout why not. A script of its own,
run by its path and without ukemi, because Ray's client waits long and talks meanwhile: who asks may end it."""

import socket
import sys


def ask(address: str) -> None:
    """Raises where nobody listens at once, and ends by Ray's own check of health where somebody does."""
    host, _, port = address.rpartition(":")
    if host:  # auto is for Ray to find
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    from ray.scripts.scripts import main

    sys.argv = ["ray", "health-check", "--skip-version-check", "--address", address]
    main()


if __name__ == "__main__":
    try:
        ask(sys.argv[1])
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(1)

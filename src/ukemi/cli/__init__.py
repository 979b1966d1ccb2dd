"""The command line: one file per command, nothing but wiring."""

from ukemi.cli.main import main

__all__ = ["main"]

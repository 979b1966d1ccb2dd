"""Ctrl-C in the second or two in which the command line is being imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
TORCH = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
"""stands where torch is looked for: the Ctrl-C comes while it is being imported"""
HEEDED = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""as in a terminal, also where the tests run in the background and inherit that it is ignored"""


@pytest.mark.parametrize(("asked", "ended"), [(["-m", "ukemi", "models"], True), (["-c", "import ukemi"], False)])
def test_a_command_ends_in_a_line_and_a_library_raises(asked: list[str], ended: bool, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "sitecustomize.py").write_text(HEEDED)
    paths = os.pathsep.join(map(str, (tmp_path, SOURCE)))
    done = subprocess.run(
        [sys.executable, *asked], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    if ended:
        assert (done.returncode, done.stderr, done.stdout) == (130, "ukemi: stopped.\n", "")
    else:
        assert done.returncode != 130 and "KeyboardInterrupt" in done.stderr and "ukemi: stopped" not in done.stderr

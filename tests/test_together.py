"""`benchmarks/together.py`: commands beside each other, each with its log, interrupted and never killed."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "together.py"


def told(
    tmp_path: Path, lines: list[str], *flags: str, before: Callable[[], object] | None = None
) -> subprocess.CompletedProcess[str]:
    jobs = tmp_path / "jobs.txt"
    jobs.write_text("# a remark\n\n" + "\n".join(lines) + "\n")
    words = [sys.executable, str(SCRIPT), str(jobs), "--logs", str(tmp_path / "logs"), *flags]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, preexec_fn=before)


def python(code: str) -> str:
    return f'{sys.executable} -u -c "{code}"'


def test_commands_run_in_their_order_so_many_at_once(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    scripts = [tmp_path / "a.py", tmp_path / "b.py"]
    # each of the first two waits until the other is there: alone neither would end
    for script, own, other in zip(scripts, (one, two), (two, one), strict=True):
        wait = f"while not Path('{other}').exists(): time.sleep(0.05)"
        script.write_text(f"import time\nfrom pathlib import Path\nPath('{own}').touch()\n{wait}\n")
    last = python(f"import os; print(os.path.exists('{one}') and os.path.exists('{two}'))")
    found = told(tmp_path, [*(f"{sys.executable} {script}" for script in scripts), last], "--at-once", "2")
    assert found.returncode == 0, found.stdout + found.stderr
    assert (tmp_path / "logs" / "3.txt").read_text() == "True\n"
    assert "3 commands, 2 at once" in found.stdout and found.stdout.count("done after") == 3


def test_a_command_that_fails_is_said_and_stops_no_other(tmp_path: Path) -> None:
    found = told(tmp_path, [python("raise SystemExit(3)"), python("print('fine')")], "--at-once", "1")
    assert found.returncode == 1
    assert "1 FAILED" in found.stdout and "2 done" in found.stdout and "| fine" in found.stdout


@pytest.mark.parametrize("heeded", [signal.SIG_DFL, signal.SIG_IGN], ids=["in front", "begun with &"])
def test_after_its_time_what_runs_is_interrupted_and_nothing_more_begun(
    tmp_path: Path, heeded: signal.Handlers
) -> None:
    script = tmp_path / "long.py"
    script.write_text("import time\ntry:\n    time.sleep(100)\nexcept KeyboardInterrupt:\n    print('tidied up')\n")
    lines = [f"{sys.executable} -u {script}", python("print(1)")]
    found = told(
        tmp_path, lines, "--at-once", "1", "--seconds", "2", before=lambda: signal.signal(signal.SIGINT, heeded)
    )
    assert found.returncode == 1
    assert (tmp_path / "logs" / "1.txt").read_text() == "tidied up\n"
    assert "2 not begun" in found.stdout and not (tmp_path / "logs" / "2.txt").exists()


def test_wrong_words_are_named(tmp_path: Path) -> None:
    found = told(tmp_path, [], "--at-once", "0")
    assert found.returncode == 2 and "--at-once: 1 or more is needed" in found.stderr
    words = [sys.executable, str(SCRIPT), str(tmp_path / "none.txt")]
    missing = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert missing.returncode == 2 and "is not a file" in missing.stderr

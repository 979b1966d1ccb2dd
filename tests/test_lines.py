"""`benchmarks/lines.py`: scripts that fill up one file of results beside each other."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPT = """
import sys, time
from pathlib import Path
from lines import append, left
path, count, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for key, job in left((({"job": job}, job) for job in range(count)), path, seconds):
    time.sleep(0.02)
    append(path, {**key, "by": sys.argv[4], "twice": 2 * job})
"""


def started(path: Path, count: int, seconds: float, name: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", SCRIPT, str(path), str(count), str(seconds), name]
    return subprocess.Popen(words, cwd=BENCHMARKS, stdout=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]") -> str:
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return said


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_processes_beside_each_other_share_the_work(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines.jsonl"
    for process in [started(path, 60, 100, name) for name in "abc"]:
        ended(process)
    assert Counter(line["job"] for line in lines(path)) == Counter(range(60))
    assert all(line["twice"] == 2 * int(str(line["job"])) for line in lines(path))


def test_what_has_a_line_is_not_done_again_and_nothing_begins_after_the_time(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(json.dumps({"job": 1, "by": "before"}) + "\n")
    assert "out of time" in ended(started(path, 3, -1, "late"))
    assert [line["by"] for line in lines(path)] == ["before"]
    assert ended(started(path, 3, 100, "now")) == ""
    assert [(line["job"], line["by"]) for line in lines(path)] == [(1, "before"), (0, "now"), (2, "now")]


def test_a_dead_process_keeps_no_claim(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    script = "from lines import left; from pathlib import Path; import os, sys\n"
    script += "for _ in left([({'job': 0}, 0)], Path(sys.argv[1]), 100): os._exit(9)"
    died = subprocess.run([sys.executable, "-c", script, str(path)], cwd=BENCHMARKS, timeout=120)
    assert died.returncode == 9
    ended(started(path, 1, 100, "next"))
    assert [line["by"] for line in lines(path)] == ["next"]


@pytest.mark.parametrize("script", ["cells.py", "styx.py", "dare.py", "uncertainty.py"])
def test_the_scripts_that_write_lines_start(script: str) -> None:
    said = subprocess.run(
        [sys.executable, script, "--help"], cwd=BENCHMARKS, capture_output=True, text=True, timeout=120
    )
    assert said.returncode == 0 and "--seconds" in said.stdout and not said.stderr


def test_results_name_no_place_on_a_machine() -> None:
    for path in sorted((Path(__file__).parents[1] / "results").glob("*.jsonl")):
        assert '"/' not in path.read_text(), path.name

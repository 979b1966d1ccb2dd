"""Several commands beside each other on one GPU, which one small network does not fill.

    python benchmarks/together.py --at-once 6 --seconds 1500 --logs FOLDER JOBS.txt

A line of JOBS.txt is a command, empty lines and those that begin with # are passed over. The first are begun at
once, the next as soon as one has ended, each with a log of its own. Where NVIDIA's multi-process service (MPS) is
installed it runs meanwhile: kernels of several processes then compute at the same time instead of in turns. After
`--seconds` nothing is begun any more and what runs is interrupted (Ctrl-C), never killed: under MPS a process that
is killed inside a kernel takes the others with it. Exit code 1 if a command failed or was interrupted.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

CONTROL = "nvidia-cuda-mps-control"
POLL, TOLD, PATIENCE = 0.2, 60.0, 60.0


def _heeds_ctrl_c() -> None:
    """Begun with `&` by a script, we were told to ignore it, and so would be what we begin."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Job:
    number: int
    command: str
    log: Path
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    took: float | None = None

    def begin(self) -> None:
        self.began = monotonic()
        with self.log.open("wb") as log:
            words = shlex.split(self.command)
            # a session of its own: Ctrl-C here reaches this script alone, which hands it on
            self.process = subprocess.Popen(
                words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_heeds_ctrl_c
            )

    def ended(self) -> bool:
        if self.process is not None and self.took is None and self.process.poll() is not None:
            self.took = monotonic() - self.began
        return self.took is not None

    def running(self) -> bool:
        return self.process is not None and not self.ended()

    def last(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return lines[-1][:100] if lines else ""

    def said(self) -> str:
        if self.process is None:
            state = "not begun"
        elif self.took is None:
            state = f"running for {monotonic() - self.began:.0f} s"
        else:
            state = f"{'done' if self.process.returncode == 0 else 'FAILED'} after {self.took:.0f} s"
        return f"{self.number} {state}: {self.command[:60]} | {self.last()}"


def jobs_of(path: Path, logs: Path) -> list[Job]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    commands = [line for line in lines if line and not line.startswith("#")]
    return [Job(number, command, logs / f"{number}.txt") for number, command in enumerate(commands, 1)]


def together(jobs: list[Job], at_once: int, seconds: float) -> None:
    """Runs the jobs in their order, so many at once, until all have ended or the time is over."""
    ends, tell = monotonic() + seconds, monotonic() + TOLD
    try:
        while not all(job.ended() for job in jobs) and monotonic() < ends:
            waiting = [job for job in jobs if job.process is None]
            for job in waiting[: at_once - sum(job.running() for job in jobs)]:
                job.begin()
            if monotonic() > tell:
                tell += TOLD
                print(*(job.said() for job in jobs if job.running()), sep="\n", flush=True)
            sleep(POLL)
    finally:
        interrupt([job for job in jobs if job.running()])


def interrupt(jobs: list[Job]) -> None:
    """Ctrl-C to each, and time to end."""
    for job in jobs:
        assert job.process is not None
        os.killpg(job.process.pid, signal.SIGINT)
    ends = monotonic() + PATIENCE
    while not all(job.ended() for job in jobs) and monotonic() < ends:
        sleep(POLL)


@contextmanager
def shared_gpu() -> Iterator[bool]:
    """MPS while the block runs, where it is installed; says whether it is."""
    if shutil.which(CONTROL) is None:
        yield False
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        there = subprocess.run([CONTROL, "-d"], check=False).returncode == 0
        try:
            yield there
        finally:
            subprocess.run([CONTROL], input=b"quit\n", check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path, help="a file with a command on each line")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1e9, help="after so many all is interrupted")
    parser.add_argument("--logs", type=Path, default=Path("logs"), help="where each command's output goes: NUMBER.txt")
    args = parser.parse_args()
    if args.at_once < 1:
        parser.error(f"--at-once: 1 or more is needed, but {args.at_once} was given.")
    if not args.jobs.is_file():
        parser.error(f"jobs: {args.jobs} is not a file.")
    args.logs.mkdir(parents=True, exist_ok=True)
    jobs = jobs_of(args.jobs, args.logs)
    with shared_gpu() as mps:
        print(f"{len(jobs)} commands, {args.at_once} at once, {'with' if mps else 'without'} MPS", flush=True)
        together(jobs, args.at_once, args.seconds)
    print(*(job.said() for job in jobs), sep="\n", flush=True)
    return int(any(job.process is None or job.process.returncode != 0 for job in jobs))


if __name__ == "__main__":
    sys.exit(main())

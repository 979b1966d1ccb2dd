"""How long a start takes with many shards: walking through the archives, and reading the tables kept beside them.

    python benchmarks/shard_tables.py --shards 40 --images 1000 --out results/shard-tables-cpu.md

One process, the archives in the file system's cache. Walking is what every start did before tables were kept.
"""

import argparse
import io
import platform
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch

import ukemi
from ukemi.data import shards


def written(folder: Path, count: int, images: int) -> list[Path]:
    body, found = b"x" * 2000, []
    for number in range(count):
        found.append(folder / f"{number:04d}.tar")
        with tarfile.open(found[-1], "w") as archive:
            for key in range(images):
                for name, part in ((f"{key:05d}.cls", b"1"), (f"{key:05d}.jpg", body)):
                    told = tarfile.TarInfo(name)
                    told.size = len(part)
                    archive.addfile(told, io.BytesIO(part))
    return found


def lowest(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = perf_counter()
        work()
        times.append(perf_counter() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archives = written(Path(folder), args.shards, args.images)
        walked = lowest(lambda: [shards._of_shard(path) for path in archives], args.repeats)
        for path in archives:
            shards._keep(path)
        read = lowest(lambda: [shards._kept(path) for path in archives], args.repeats)
    text = (
        f"# Tables of shards\n\n`python benchmarks/shard_tables.py --shards {args.shards} --images {args.images}`: one"
    )
    text += f" process, lowest of {args.repeats}; ukemi {ukemi.__version__}, torch {torch.__version__}, Python"
    text += (
        f" {platform.python_version()}, {platform.machine()}.\n\n| shards | images each | walking, s | kept tables, s |"
    )
    text += " times as fast |\n| --- | --- | --- | --- | --- |\n"
    text += f"| {args.shards} | {args.images} | {walked:.2f} | {read:.4f} | {walked / read:.0f} |\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()

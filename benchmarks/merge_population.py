"""What merging the population of a large set takes on a CPU: ranks as processes, each of which wrote its own samples.

    python benchmarks/merge_population.py --samples 1280000 --survivors 10 --ranks 2

Prints the seconds of each merge (the slowest rank's), the bytes that the first rank sent, the store's size and how much
the memory of a rank grew while it merged.
"""

import argparse
import os
import resource
import socket
import time
from multiprocessing import get_context

import torch

from ukemi import T6
from ukemi.augmenters.store import Store
from ukemi.ranks import Ranks


def rank(number: int, size: int, port: int, samples: int, survivors: int, repeats: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"TORCHELASTIC_RUN_ID": "benchmark", "RANK": str(number), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = Ranks.joined(gpu=False)
    store = Store.empty(samples, survivors, len(T6), torch.device("cpu"), worst=True, flags=True)
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(0))
    parts = ranks.parts(order)
    for tensor in store.state_dict().values():
        tensor[parts[number]] = torch.tensor(number + 1).to(tensor.dtype)
    before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(repeats):
        ranks.agree(True)
        began = time.monotonic()
        store.merge(ranks, parts)
        ranks.agree(True)
        seconds.append(time.monotonic() - began)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    for other, theirs in enumerate(parts):
        assert bool((store.parents[theirs] == other + 1).all()), "a row was lost"
    if ranks.first:
        stored = sum(tensor.numel() * tensor.element_size() for tensor in store.state_dict().values())
        print(f"{samples} samples, {survivors} survivors, {len(T6)} genes, {size} ranks, torch {torch.__version__}")
        print(f"store {stored / 1e6:.0f} MB, sent by rank 0 {ranks.sent / repeats / 1e6:.0f} MB per merge")
        print("seconds " + ", ".join(f"{each:.2f}" for each in seconds) + f"; memory grew by {grown:.0f} MB")
    ranks.leave()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_280_000)
    parser.add_argument("--survivors", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    started = [
        get_context("spawn").Process(
            target=rank, args=(number, given.ranks, port, given.samples, given.survivors, given.repeats)
        )
        for number in range(given.ranks)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()


if __name__ == "__main__":
    main()

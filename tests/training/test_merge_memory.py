"""What merging the population of two ranks holds and sends: 1.28 million samples have 400 MB, others their share of it."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ukemi import T6, ranks
from ukemi.augmenters.store import Store

sys.path.insert(0, str(Path(__file__).parent))
from rank_child import as_rank, free_port

WHOLE, ALLOWED = 1_280_000, 400e6
PER_SAMPLE = 162
"""bytes of the store: T6, ten survivors, with the worst variant and the flags of skipping"""


def merging(rank: int, size: int, port: int, samples: int, notes: str) -> None:
    """Each rank wrote its number plus one into its own rows; notes what it held, allocated meanwhile and sent."""
    torch.set_num_threads(1)
    as_rank(rank, size, port)
    ranks.ROWS = ranks.ROWS * 20_000 // WHOLE  # scaled as the samples are
    world = ranks.Ranks.joined(gpu=False)
    store = Store.empty(samples, 10, len(T6), torch.device("cpu"), worst=True, flags=True)
    parts = world.parts(torch.randperm(samples, generator=torch.Generator().manual_seed(0)))
    for tensor in store.state_dict().values():
        tensor[parts[rank]] = torch.tensor(rank + 1).to(tensor.dtype)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        store.merge(world, parts)
    profiled.export_chrome_trace(notes + ".trace")
    written = [bool((store.parents[theirs] == other + 1).all()) for other, theirs in enumerate(parts)]
    held = sum(tensor.numel() * tensor.element_size() for tensor in store.state_dict().values())
    found = {"held": held, "beside": allocated(Path(notes + ".trace")), "sent": world.sent, "written": written}
    Path(notes).write_text(json.dumps(found))
    world.leave()


def allocated(trace: Path) -> int:
    """The most bytes that lived at once of those allocated within a profile."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        live += event["args"]["Bytes"]
        most = max(most, live)
    return most


def merged(processes: Any, samples: int, folder: Path) -> list[dict[str, Any]]:
    port, notes = free_port(), [folder / f"{samples}-{rank}.json" for rank in range(2)]
    running = [
        processes.Process(target=merging, args=(rank, 2, port, samples, str(path))) for rank, path in enumerate(notes)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
    return [json.loads(path.read_text()) for path in notes]


def test_merging_stays_within_its_share_of_memory_and_bytes(processes: Any, tmp_path: Path) -> None:
    few, many = 10_000, 20_000
    found = {samples: merged(processes, samples, tmp_path) for samples in (few, many)}
    for samples, each in found.items():
        for rank in each:
            assert rank["written"] == [True, True]
            assert rank["held"] == PER_SAMPLE * samples and rank["sent"] == PER_SAMPLE * samples // 2
            assert 0 < rank["beside"] and rank["held"] + rank["beside"] < ALLOWED * samples / WHOLE
    for less, more in zip(found[few], found[many], strict=True):
        # beside the store: each rank's rows in their order, 8 bytes each in two or three copies; of what the rows hold,
        # only so many are in hand at once
        assert more["beside"] - less["beside"] < 3 * 8 * (many - few)

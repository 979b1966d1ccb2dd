"""What merging the population of two ranks holds and sends: 1.28 million samples may take 400 MB, fewer their share."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ukemi import T6, ranks
from ukemi.augmenters.store import Store

sys.path.insert(0, str(Path(__file__).parent))
from rank_child import as_rank, free_port

WHOLE, ALLOWED = 1_280_000, 400e6
ROWS = ranks.ROWS // 256
"""merged at once here, where there are fewer samples"""
PER_SAMPLE = 162
"""bytes of the store: T6, ten survivors, with the worst variant and the flags of skipping"""


class Allocated(TorchDispatchMode):
    """The most bytes that lived at once of those that operations within gave."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self._sizes = 0, dict[StorageWeakRef, int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {StorageWeakRef(each.untyped_storage()) for each in tensors(args)}
        found = func(*args, **(kwargs or {}))
        self._sizes = {storage: size for storage, size in self._sizes.items() if not storage.expired()}
        for each in tensors(found):
            storage = StorageWeakRef(each.untyped_storage())
            if storage not in given:
                self._sizes[storage] = each.untyped_storage().nbytes()
        self.most = max(self.most, sum(self._sizes.values()))
        return found


def tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def merging(rank: int, size: int, port: int, samples: int, notes: str) -> None:
    """Each rank wrote its number plus one into its own rows; notes what it held, allocated meanwhile and sent."""
    torch.set_num_threads(1)
    as_rank(rank, size, port)
    ranks.ROWS = ROWS
    world = ranks.Ranks.joined(gpu=False)
    store = Store.empty(samples, 10, len(T6), torch.device("cpu"), worst=True, flags=True)
    parts = world.parts(torch.randperm(samples, generator=torch.Generator().manual_seed(0)))
    for tensor in store.state_dict().values():
        tensor[parts[rank]] = torch.tensor(rank + 1).to(tensor.dtype)
    with Allocated() as allocated:
        store.merge(world, parts)
    written = [bool((store.parents[theirs] == other + 1).all()) for other, theirs in enumerate(parts)]
    held = sum(tensor.numel() * tensor.element_size() for tensor in store.state_dict().values())
    found = {"held": held, "beside": allocated.most, "sent": world.sent, "written": written}
    Path(notes).write_text(json.dumps(found))
    world.leave()


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


def beside(samples: int, rows: int) -> int:
    """Bytes that merging may take beside the store: the samples' numbers in their order, in up to three copies, and two
    handfuls of rows."""
    return 3 * 8 * samples + 2 * rows * PER_SAMPLE


def test_merging_stays_within_its_share_of_memory_and_bytes(processes: Any, tmp_path: Path) -> None:
    for samples in (10_000, 20_000):
        for rank in merged(processes, samples, tmp_path):
            assert rank["written"] == [True, True]
            assert rank["held"] == PER_SAMPLE * samples and rank["sent"] == PER_SAMPLE * samples // 2
            assert rank["held"] + rank["beside"] < ALLOWED * samples / WHOLE
            assert 8 * samples < rank["beside"] < beside(samples, ROWS)
    assert PER_SAMPLE * WHOLE + beside(WHOLE, ranks.ROWS) < ALLOWED

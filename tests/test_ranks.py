"""Splitting, weighing and exchanging between ranks; a world of one does nothing."""

import multiprocessing
import os
import socket
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ukemi import UserError
from ukemi.ranks import Ranks, is_first, launched, local_rank, out_of_memory, restarted


@given(st.integers(0, 40), st.integers(1, 9))
def test_parts_lose_and_repeat_no_row(count: int, size: int) -> None:
    rows = torch.arange(count)
    parts = [Ranks(rank, size).part(rows) for rank in range(size)]
    assert torch.equal(torch.cat(parts), rows)
    assert [len(part) for part in parts] == [Ranks(rank, size).share(count) for rank in range(size)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.integers(2, 6))
def test_the_ranks_mean_is_the_mean_of_all(values: list[float], size: int) -> None:
    losses = torch.tensor(values, dtype=torch.float64)
    ranks = [Ranks(rank, size) for rank in range(size)]
    mean = sum(float(each.mean(each.part(losses), len(losses))) for each in ranks) / size
    assert mean == pytest.approx(float(losses.mean()), abs=1e-12)


def test_a_world_of_one_exchanges_nothing() -> None:
    alone, rows = Ranks(), torch.arange(3)
    assert alone.alone and alone.first and alone.key == () and Ranks(2, 3).key == (2,)
    assert alone.part(rows).tolist() == [0, 1, 2] and alone.gathered(rows)[0] is rows and alone.total(rows) is rows
    assert alone.agree(True, False) == (True, False) and alone.texts("é") == ["é"]
    with pytest.raises(UserError, match="as it is"), alone.together():
        raise UserError("as it is")
    assert alone.sent == 0 and (launched(), local_rank(), restarted(), is_first()) == (1, 0, False, True)


def test_what_is_out_of_memory() -> None:
    cpu = RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to …")
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory")) and out_of_memory(cpu)
    assert not out_of_memory(RuntimeError("shapes differ"))


@dataclass(frozen=True)
class Inner:
    rows: torch.Tensor
    count: int


@dataclass(frozen=True)
class Outer:
    inner: Inner
    extras: dict[str, torch.Tensor]
    none: dict[str, torch.Tensor]
    word: str
    kept: tuple[str, ...]


def _outer(rank: int) -> Outer:
    rows = torch.full((2 - rank,), rank + 0.5, dtype=torch.float64)
    return Outer(Inner(rows, 10 + rank), {"a": -rows, "b": rows[:0]}, {}, "xy"[rank], ("same",))


def _exchange(rank: int, size: int, port: int, told: Any) -> None:
    torch.set_num_threads(1)
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = Ranks.joined(gpu=False)
    found: dict[str, Any] = {"first": ranks.first, "agree": ranks.agree(rank == 1, False)}
    found["gathered"] = [each.tolist() for each in ranks.gathered(torch.full((rank + 1, 2), rank, dtype=torch.int16))]
    found["none"] = [len(each) for each in ranks.gathered(torch.zeros(0, 2, dtype=torch.bool))]
    each = ranks.every(_outer(rank))
    found["every"] = [repr(part) == repr(_outer(number)) for number, part in enumerate(each)]
    rows = [torch.tensor([4, 0]), torch.tensor([3])]
    tensors = [torch.full((5, 2), rank, dtype=torch.int16), torch.tensor([rank == 1] * 5)]
    before = ranks.sent
    ranks.merge(tensors, rows)
    found["merged"], found["sent"] = [tensor.tolist() for tensor in tensors], ranks.sent - before
    for name, said in (("one", ["", "no room"]), ("all", ["bad", "bad"])):
        try:
            with ranks.together():
                if said[rank]:
                    raise UserError(said[rank])
        except UserError as error:
            found[name] = str(error)
    try:
        ranks.same("seed", str(rank), "all ranks train one run")
    except UserError as error:
        found["same"] = str(error)
    told.put((rank, found))
    ranks.leave()


def test_two_ranks_exchange() -> None:
    context = multiprocessing.get_context("forkserver")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = context.Queue()
    processes = [context.Process(target=_exchange, args=(rank, 2, port, told)) for rank in range(2)]
    for process in processes:
        process.start()
    found = dict(told.get(timeout=100) for _ in range(2))
    for process in processes:
        process.join()
    for rank in range(2):
        mine = found[rank]
        assert mine["first"] == (rank == 0) and mine["agree"] == (True, False)
        assert mine["gathered"] == [[[0, 0]], [[1, 1], [1, 1]]] and mine["none"] == [0, 0]
        assert mine["every"] == [True, True]
        # rows that nobody wrote stay as they were on each rank
        assert mine["merged"][0] == [[0, 0], [rank] * 2, [rank] * 2, [1, 1], [0, 0]]
        assert mine["merged"][1] == [False, rank == 1, rank == 1, True, False]
        assert mine["sent"] == (2 if rank == 0 else 1) * (2 * 2 + 1)
        assert mine["one"] == "no room (said rank 1)" and mine["all"] == "bad"
        assert mine["same"] == "seed: rank 0 has 0, but rank 1 has 1; all ranks train one run."

"""Ranks: the processes that train one model together, started by `torchrun`. A world of one exchanges nothing.

What ranks tell each other beside the gradients, which DistributedDataParallel exchanges, goes through this object and
is counted in `sent`. Small words between the hosts travel as tensors on the CPU, so no device is waited for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from ukemi.errors import UserError

Part = TypeVar("Part")
PATIENCE = timedelta(minutes=30)
"""how long ranks wait for one that measures or writes; one that ends is noticed at once"""
ROWS = 2**16
"""rows that are merged at once: what merging holds in memory beside the rows themselves"""


_met = False


class Agreed(UserError):
    """What all ranks refuse in the same sentence, so that one of them may say it for all."""


def met() -> bool:
    """Whether this process has joined others: what goes wrong since then may be known to itself alone."""
    return _met


class Ranks:
    """This process among `size`; batches are split and exchanged in the order of the ranks."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.sent = 0
        """bytes that this rank gave to others so far, DistributedDataParallel's own left out"""
        self._joined = False

    @classmethod
    def joined(cls, gpu: bool) -> Ranks:
        """The world that torchrun started this process into; without torchrun, or with one process, a world of one."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        if launched() == 1:
            return cls()
        store, rank, size = next(iter(rendezvous("env://", timeout=PATIENCE)))
        # torchrun may keep its store when it starts ranks again, with the addresses of those that are gone
        store = PrefixStore(f"start-{_starts()}", store)
        backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
        global _met
        _met = True
        found = cls(rank, size)
        found._joined = True
        return found

    def leave(self) -> None:
        if self._joined:
            dist.destroy_process_group()
            self._joined = False

    @property
    def alone(self) -> bool:
        return self.size == 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that shows, logs and writes."""
        return self.rank == 0

    @property
    def key(self) -> tuple[int, ...]:
        """What keys of random numbers that must differ between ranks end with; nothing on the first."""
        return () if self.first else (self.rank,)

    def parts(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Every rank's rows of a whole batch, one behind the other: none twice, none left out, equally many but for
        one."""
        return rows.tensor_split(self.size)

    def part(self, rows: Tensor) -> Tensor:
        """This rank's rows; none where there are fewer rows than ranks."""
        return self.parts(rows)[self.rank]

    def share(self, count: int) -> int:
        """How many of `count` rows are this rank's."""
        return count // self.size + (self.rank < count % self.size)

    def mean(self, losses: Tensor, whole: int) -> Tensor:
        """What to go backward from, where this rank has some of `whole` losses: the ranks' mean gradient is then the
        gradient of the mean of all."""
        return losses.mean() if self.alone else losses.sum() * (self.size / whole)

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        """Each flag where any rank raised it."""
        if self.alone:
            return flags
        raised = torch.tensor(flags, dtype=torch.uint8)
        self._reduce(raised, dist.ReduceOp.MAX)
        return tuple(raised.bool().tolist())

    def raise_flag(self, flag: Tensor) -> None:
        """A flag (0 or 1) on the device becomes 1 where any rank's is; the host waits for nothing."""
        if not self.alone:
            self._reduce(flag, dist.ReduceOp.MAX)

    def total(self, values: Tensor) -> Tensor:
        """The sum over the ranks; values stay as they are."""
        if self.alone:
            return values
        summed = values.clone()
        self._reduce(summed, dist.ReduceOp.SUM)
        return summed

    def gathered(self, rows: Tensor) -> list[Tensor]:
        """Every rank's rows; their number may differ."""
        if self.alone:
            return [rows]
        counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(self.size)]
        dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
        most = max(int(count) for count in counts)
        mine = rows.new_zeros(most, *rows.shape[1:])
        mine[: len(rows)] = rows
        found = [torch.zeros_like(mine) for _ in range(self.size)]
        if mine.numel():
            dist.all_gather([_bytes(each) for each in found], _bytes(mine))
        self.sent += 8 + mine.numel() * mine.element_size()
        return [each[: int(count)] for each, count in zip(found, counts, strict=True)]

    def texts(self, text: str) -> list[str]:
        """What every rank says."""
        said = self.gathered(torch.tensor(list(text.encode()), dtype=torch.uint8))
        return [bytes(each.tolist()).decode() for each in said]

    def every(self, part: Part) -> list[Part]:
        """Every rank's `part`, a dataclass: its tensors (one row per image), numbers and words travel, also those of
        dataclasses and tables of tensors within; all else is taken to be the same everywhere."""
        if self.alone:
            return [part]
        values = {field.name: getattr(part, field.name) for field in fields(part)}  # type: ignore[arg-type]
        plain = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
        each = [json.loads(text) for text in self.texts(json.dumps(plain))]
        for name, value in values.items():
            if name not in plain:
                for told, theirs in zip(each, self._travelled(value), strict=True):
                    told[name] = theirs
        return [replace(part, **told) for told in each]  # type: ignore[type-var]

    def _travelled(self, value: Any) -> list[Any]:
        if isinstance(value, Tensor):
            return self.gathered(value.contiguous())
        if isinstance(value, dict) and all(isinstance(each, Tensor) for each in value.values()):
            columns = [self.gathered(value[name].contiguous()) for name in sorted(value)]
            return [dict(zip(sorted(value), theirs, strict=True)) for theirs in zip(*columns, strict=True)] or [
                {} for _ in range(self.size)
            ]
        if is_dataclass(value) and any(isinstance(getattr(value, field.name), Tensor) for field in fields(value)):
            return self.every(value)
        return [value] * self.size

    @torch.no_grad()
    def merge(self, tensors: Sequence[Tensor], rows: Sequence[Tensor]) -> None:
        """Rank r wrote the rows `rows[r]` of each tensor: afterwards every rank has them, in place.

        No two ranks wrote the same row. Only these rows travel, a few at a time; all ranks know who wrote which.
        """
        for rank, theirs in enumerate(rows if not self.alone else ()):
            for some in theirs.sort().values.split(ROWS):  # in their order, memory is read and written row by row
                for tensor in tensors:
                    body = tensor[some] if rank == self.rank else tensor.new_empty(len(some), *tensor.shape[1:])
                    if not body.numel():
                        continue
                    dist.broadcast(_bytes(body), rank)
                    if rank == self.rank:
                        self.sent += body.numel() * body.element_size()
                    else:
                        tensor[some] = body

    @contextmanager
    def together(self) -> Iterator[None]:
        """What one rank finds wrong within, all refuse in the same sentence; nobody leaves before all are done."""
        said = ""
        try:
            yield
        except (UserError, OSError) as error:
            if self.alone:
                raise
            said = str(error)
        if self.alone:
            return
        texts = self.texts(said)
        wrong = [rank for rank, text in enumerate(texts) if text]
        if wrong:
            where = "" if len(set(texts)) == 1 else f" (said rank {wrong[0]})"
            raise Agreed(texts[wrong[0]] + where)

    def same(self, field: str, told: str, why: str) -> None:
        """Refuses where another rank has something else; both are named."""
        texts = self.texts(told)
        for rank, text in enumerate(texts):
            if text != texts[0]:
                raise Agreed(f"{field}: rank 0 has {texts[0]}, but rank {rank} has {text}; {why}.")

    def _reduce(self, values: Tensor, how: dist.ReduceOp.RedOpType) -> None:
        dist.all_reduce(values, how)
        self.sent += values.numel() * values.element_size()


def launched() -> int:
    """How many processes torchrun started together with this one; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if dist.is_available() and dist.is_torchelastic_launched() else 1


def is_first() -> bool:
    """Whether this is the first of the processes that torchrun started, or the only one."""
    return launched() == 1 or os.environ["RANK"] == "0"


def local_rank() -> int:
    """This process's number on its machine."""
    return int(os.environ.get("LOCAL_RANK", 0)) if launched() > 1 else 0


def restarted() -> bool:
    """Whether torchrun started this process again, after a rank was lost."""
    return launched() > 1 and _starts() > 0


def _starts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def out_of_memory(error: BaseException) -> bool:
    """A processor's memory has no exception of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _bytes(rows: Tensor) -> Tensor:
    """The same memory; gloo knows no int16 and no bool."""
    return rows.view(-1).view(torch.uint8)

"""One training on several ranks: what they must agree on, how their gradients meet, and what happens where one is lost.

Every rank holds the whole model, the whole data set and its own rows of each batch. Gradients meet in
DistributedDataParallel; what the search remembers of each sample is merged before every checkpoint.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from ukemi.data import Data
from ukemi.errors import UserError
from ukemi.objectives import Objective, Outcome
from ukemi.ranks import Ranks, local_rank, out_of_memory
from ukemi.schema import Schema
from ukemi.training.config import TrainConfig, device_of
from ukemi.training.guard import RankLost
from ukemi.training.run import Run
from ukemi.training.sets import weights_hash

LOST = ("gloo", "Connection closed", "Connection reset", "Broken pipe", "NCCL", "Timed out")
"""what is in the message of an exchange whose other side is gone"""
LOOKED_AT = 256
"""images that are compared between ranks where images are decoded on demand"""


def wants_gpu(device: str) -> bool:
    return device != "cpu" and torch.cuda.is_available()


@contextmanager
def measuring(device: str) -> Iterator[tuple[Ranks, torch.device]]:
    """The ranks that measure together, where torchrun started several, and this one's device."""
    ranks = Ranks.joined(wants_gpu(device))
    try:
        with ranks.together():
            own = own_device(device, ranks)
        yield ranks, own
    except RuntimeError as error:
        if ranks.alone or not _is_lost(error):
            raise
        raise RankLost(f"rank {ranks.rank} lost another rank while measuring; nothing was written.") from error
    finally:
        ranks.leave()


def check_measured(told: Schema, model: nn.Module, data: Data, ranks: Ranks) -> None:
    """Refuses ranks that were told different things, or that brought other data or another model."""
    if ranks.alone:
        return
    _check_fields(told, ranks, "all ranks measure together")
    ranks.same("data", f"{len(data)} images with the checksum {_checksum(data)}", "all ranks need the same")
    ranks.same("model", f"weights with the checksum {weights_hash(model)[:12]}", "all ranks need the same")


def own_device(name: str, ranks: Ranks) -> torch.device:
    """The named device; of several ranks on a machine each has a GPU of its own."""
    if ranks.alone:
        return device_of(name)
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"device: with several ranks it should be auto, cpu or cuda, but {name!r} was given.")
    if not wants_gpu(name):
        return device_of(name)
    mine, there = local_rank(), torch.cuda.device_count()
    if mine >= there:
        raise UserError(f"device: this machine has {there} GPU, so rank {mine} of it has none; start fewer ranks here.")
    torch.cuda.set_device(mine)
    return torch.device("cuda", mine)


def check_alike(config: TrainConfig, data: Data, ranks: Ranks, resume: bool) -> None:
    """Refuses ranks that were told different things or read different data, and more ranks than a batch has rows."""
    if ranks.alone:
        return
    ranks.same("resume", "a run to go on with" if resume else "a run to begin", "all ranks begin it, or all go on")
    _check_fields(config, ranks, "all ranks train one run")
    ranks.same("data", f"{len(data)} training images with the checksum {_checksum(data)}", "all ranks need the same")
    if ranks.size > config.batch_size:
        raise UserError(
            f"batch-size: {config.batch_size} images can't be split over {ranks.size} ranks; batch-size counts the"
            " images of all ranks together."
        )


def _check_fields(told: Schema, ranks: Ranks, why: str) -> None:
    values = told.model_dump(mode="json", exclude={"data_folder"})  # machines may keep the same data elsewhere
    for field in values:
        ranks.same(field.replace("_", "-"), json.dumps(values[field], sort_keys=True), why)


def shared_statistics(model: nn.Module, name: str, ranks: Ranks) -> nn.Module:
    """BatchNorm over the rows of all ranks; PyTorch has that for GPUs only."""
    if ranks.alone or not any(isinstance(layer, _BatchNorm) for layer in model.modules()):
        return model
    if not wants_gpu_model(model):
        raise UserError(
            f"model: {name} has BatchNorm layers, whose statistics several ranks can't share on a CPU; train it on one"
            " rank or on GPUs, or take a network without BatchNorm."
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def wants_gpu_model(model: nn.Module) -> bool:
    return any(parameter.is_cuda for parameter in model.parameters())


class _Whole(nn.Module):
    """Network and objective as one module: whatever an objective does with the plain network (attack it, run it twice),
    DistributedDataParallel sees one forward pass per step."""

    def __init__(self, objective: Objective, network: nn.Module) -> None:
        super().__init__()
        self.network, self.extra = network, objective.extra()
        self._objective = objective

    def forward(
        self, images: Tensor, labels: Tensor, index: Tensor, epoch: int, clean: Tensor | None = None
    ) -> Outcome:
        return self._objective(self.network, images, labels, index, epoch, clean)


def together_trained(objective: Objective, network: nn.Module, ranks: Ranks) -> Callable[..., Outcome] | None:
    """The objective of the network with gradients that are means over the ranks; None in a world of one."""
    if ranks.alone:
        return None
    # buffers are equal on all ranks already: BatchNorm's are shared, and nothing else changes while training
    known = inspect.signature(DistributedDataParallel).parameters
    option = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # until torch 2.12
    return DistributedDataParallel(_Whole(objective, network), **{option: False})  # type: ignore[arg-type]


@contextmanager
def losses_named(folder: Path, ranks: Ranks) -> Iterator[None]:
    """A rank that is gone, or that ran out of memory where the others wait for it, ends the training in a sentence."""
    try:
        yield
    except RuntimeError as error:
        if ranks.alone:
            raise
        if out_of_memory(error):
            raise RankLost(f"rank {ranks.rank} ran out of memory; {go_on(folder)}") from error
        if "Expected to have finished reduction" in str(error):
            raise UserError(
                "model: some of its parameters take no part in the loss, which several ranks can't train; set their"
                " requires_grad to False."
            ) from error
        if _is_lost(error):
            raise RankLost(f"rank {ranks.rank} lost another rank; {go_on(folder)}") from error
        raise


def go_on(folder: Path) -> str:
    """How a run that stopped is taken up."""
    run = Run(folder)
    if run.has_checkpoint():
        return f"the last checkpoint in {folder} is whole: go on with {run.resuming}, on any number of ranks."
    return f"there is no checkpoint yet: begin anew with {run.resuming}, on any number of ranks."


def _is_lost(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or any(word in str(error) for word in LOST)


def _checksum(data: Data) -> str:
    digest = hashlib.sha256()
    pixels = data.images
    if not isinstance(pixels, Tensor):
        pixels = pixels[torch.linspace(0, len(data) - 1, min(LOOKED_AT, len(data))).long()]
    for part in (data.index, data.labels, pixels):
        digest.update(part.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    digest.update(json.dumps(data.classes).encode())
    return digest.hexdigest()[:12]

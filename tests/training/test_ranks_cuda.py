"""Two ranks on one GPU (by gloo: NCCL wants a GPU for each) do what one rank does, statistics of BatchNorm included."""

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from rank_child import as_rank, free_port

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def rank_of_two(values: dict[str, Any], rank: int, port: int, said: str) -> None:
    as_rank(rank, 2, port)
    os.environ["LOCAL_RANK"] = "0"  # both on the one GPU
    _exact()
    dist.init_process_group("cpu:gloo,cuda:gloo", rank=rank, world_size=2)
    seen: list[nn.Module] = []
    convert = nn.SyncBatchNorm.convert_sync_batchnorm

    def converted(model: nn.Module, *rest: Any) -> nn.Module:
        seen.append(convert(model, *rest))
        return seen[-1]

    nn.SyncBatchNorm.convert_sync_batchnorm = converted  # type: ignore[method-assign,assignment]
    train(TrainConfig(**values), quiet=True)
    layers = sum(isinstance(layer, nn.SyncBatchNorm) for model in seen[-1:] for layer in model.modules())
    Path(said).write_text(str(layers))
    dist.destroy_process_group()


def _exact() -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.deterministic = True


@pytest.mark.parametrize("augmenter", ["standard", "random", "sensei"])
def test_two_ranks_share_the_statistics_of_batch_norm(augmenter: str, tmp_path: Path) -> None:
    values: dict[str, Any] = {"data": "fashion-mini", "model": "demo-cnn", "epochs": 1, "batch_size": 500}
    values |= {"device": "cuda", "validation": 0, "augmenter": {"name": augmenter}, "learning_rate": 0.05}
    if augmenter == "sensei":
        values["augmenter"] |= {"population": 3, "warmup": 0}
    port, spawned = free_port(), multiprocessing.get_context("spawn")
    said = [tmp_path / f"{rank}.txt" for rank in range(2)]
    ranks = [
        spawned.Process(target=rank_of_two, args=(values | {"out": tmp_path / "two"}, rank, port, str(said[rank])))
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
        assert process.exitcode == 0
    assert [path.read_text() for path in said] == ["3", "3"]
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    _exact()
    train(TrainConfig(**values | {"out": tmp_path / "one", "cuda_graphs": False}), quiet=True)
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
    one, two = (read_checkpoint(Run(tmp_path / name).weights_path).tensors for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        # float32: sums over halves of a batch round differently, a few steps of a small network
        assert torch.allclose(tensor.double(), two[name].double(), rtol=0.02, atol=2e-3), name
    first, second = (Run(tmp_path / name).read_log()[-1]["loss"] for name in ("one", "two"))
    assert first == pytest.approx(second, rel=2e-3)

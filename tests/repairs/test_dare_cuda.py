"""DARE on a GPU finds what it finds on a CPU."""

from pathlib import Path

import pytest
import torch

from ukemi.repairs import Dare, dare, ground_of, mine
from ukemi.repairs.tuning import target_layer
from ukemi.training import TrainConfig, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.mark.parametrize("variant", ["dare", "dare-adv", "dare-sl"])
def test_the_whole_way_on_a_gpu(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    told = {"model": "lenet5", "epochs": 4, "batch_size": 250, "history": "half", "validation": 0.5, "device": "cuda"}
    run = train(TrainConfig(**told, out=tmp_path / "run"), quiet=True)  # type: ignore[arg-type]
    ground = ground_of(run)
    assert ground.mining.labels.is_cuda
    layer = target_layer(ground.model)
    on_gpu = mine(ground.model, ground.history, ground.aside, layer)
    few = ground.aside.to("cpu")
    on_cpu = mine(ground.model.cpu(), ground.history, few, layer)
    ground.model.cuda()
    rows = torch.isin(on_gpu.data.index.cpu(), on_cpu.data.index)
    assert float(rows.double().mean()) > 0.99
    done = dare(run, Dare(variant=variant, learning_rates=(1e-4,), epochs=1, samples=300), ground=ground)  # type: ignore[arg-type]
    assert done.samples == 300 and done.tuned.best is not None

"""What only a GPU can show: captured steps, data that stay on the host, the same numbers as on a CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ukemi import AUGMENTERS, T3, T6, vary
from ukemi.data import Data, DataSet
from ukemi.measures import robustness_of
from ukemi.models import create
from ukemi.objectives import OBJECTIVES
from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint
from ukemi.training.run import TIMES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(autouse=True)
def _deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def trained(folder: Path, name: str, **options: Any) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    told = {"model": "lenet5", "epochs": 2, "batch_size": 256, "flips": True, **options}
    config = TrainConfig(augmenter=AUGMENTERS[name](), out=folder, **told)
    run = train(config, quiet=True)
    log = [{key: value for key, value in line.items() if key not in TIMES} for line in run.read_log()]
    return read_checkpoint(run.weights_path).tensors, log


@pytest.mark.parametrize("name", AUGMENTERS)
def test_a_captured_step_gives_the_bits_of_an_eager_one(name: str, tmp_path: Path) -> None:
    captured, eager = (trained(tmp_path / str(on), name, cuda_graphs=on) for on in (True, False))
    assert captured[1] == eager[1]
    assert all(torch.equal(captured[0][key], eager[0][key]) for key in eager[0])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_captured_step_gives_the_bits_of_an_eager_one_whatever_is_minimised(name: str, tmp_path: Path) -> None:
    told = {"objective": OBJECTIVES[name](), "optimiser": "adam", "learning_rate": 1e-3}
    captured, eager = (trained(tmp_path / str(on), "random", cuda_graphs=on, **told) for on in (True, False))
    assert captured[1] == eager[1]
    assert all(torch.equal(captured[0][key], eager[0][key]) for key in eager[0])


@pytest.mark.parametrize("name", AUGMENTERS)
def test_everything_trains_in_half_precision(name: str, tmp_path: Path) -> None:
    calm = {"optimiser": "adam", "learning_rate": 1e-3}  # with the default, when LeNet-5 leaves its plateau is chance
    told = calm | {"precision": "bfloat16", "channels_last": True}
    half, whole = (
        trained(tmp_path / options.get("precision", "whole"), name, **options)[1][-1] for options in (told, calm)
    )
    assert half["loss"] == pytest.approx(whole["loss"], rel=0.1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports what torch calls old
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # and so does its choice of kernels
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # this training is meant to be in float32
def test_autotuned_scoring_trains_on_almost_the_same_variants(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tuned, plain = (
        trained(tmp_path / str(on), "worst-of", compile=on, autotune=on, epochs=1)[1][0]["loss"] for on in (True, False)
    )
    assert tuned == pytest.approx(plain, rel=0.02) and "AUTOTUNE" not in capfd.readouterr().err


def test_data_on_the_host_give_the_bits_of_data_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near = trained(tmp_path / "near", "worst-of")
    monkeypatch.setattr(Data, "to", lambda self, device, spare=0.25: self)
    far = trained(tmp_path / "far", "worst-of")
    assert near[1] == far[1] and all(torch.equal(near[0][key], far[0][key]) for key in near[0])


def test_a_model_that_waits_for_the_device_still_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Waits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(784, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = torch.nn.functional.dropout(x.flatten(1), 0.1, self.training)
            return self.head(kept) * (1 if x.sum().item() > 0 else 2)

    monkeypatch.setattr("ukemi.training.loop.make_model", lambda *_: Waits())
    _, log = trained(tmp_path / "run", "random")
    assert len(log) == 2 and log[1]["loss"] < log[0]["loss"]


def test_a_run_resumes_on_the_device(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", "worst-of")
    folder = tmp_path / "part"
    trained(folder, "worst-of")
    last, before = sorted((folder / "checkpoints").iterdir(), reverse=True)
    last.unlink()
    (folder / "model.safetensors").unlink()
    train(Run.config_of(folder), resume=True, quiet=True)
    again = read_checkpoint(Run(folder).weights_path).tensors
    assert before.exists() and all(torch.equal(again[key], whole[0][key]) for key in again)


def test_genes_and_variants_are_those_of_a_cpu() -> None:
    index = torch.arange(999)
    assert torch.equal(T6.sample(index, 10, seed=3), T6.sample(index.cuda(), 10, seed=3).cpu())
    images, genes = torch.rand(64, 3, 32, 40), T6.sample(torch.arange(64), seed=0)[:, 0]
    assert (vary(images, genes, T6) - vary(images.cuda(), genes.cuda(), T6).cpu()).abs().max() < 1e-5 * 40
    same = T6.identity("cuda").expand(64, -1)
    assert torch.equal(vary(images.cuda(), same, T6).cpu(), images)


def test_verdicts_are_those_of_a_cpu(fashion: DataSet) -> None:
    model = create("demo-cnn", classes=10, channels=1, size=(28, 28))
    few = fashion.test.take(torch.arange(200))
    here = robustness_of(model, few, T3, chunk=64)
    there = robustness_of(model.cuda(), few.to("cuda"), T3, chunk=64)
    assert (here.robust == there.robust).float().mean() > 0.98

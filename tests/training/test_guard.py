"""A loss that is not finite never reaches the weights, and the samples are named."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3
from ukemi.data import DataSet, load
from ukemi.training import Run, TrainConfig, TrainingStopped, loop, train
from ukemi.training.capture import Stepped
from ukemi.training.guard import Guard, check_weights
from ukemi.training.optimisers import OPTIMISERS


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_updates_are_masked_from_the_first_bad_one_on(optimiser: str) -> None:
    model = nn.Linear(3, 2)
    made = TrainConfig(optimiser=optimiser).make_optimiser([model], torch.tensor(0.1))
    guard = Guard(made, torch.device("cpu"), every=3)

    def step(number: int, x: Tensor) -> None:
        made.zero_grad()
        losses = model(x).square().sum(1)
        losses.mean().backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        guard.mask(losses.detach(), gradients)
        made.step()
        guard.remember(
            0, number, torch.tensor([10, 11]), Stepped(losses.detach(), torch.full((2, 4), 0.05), torch.zeros(2, 3))
        )

    step(0, torch.ones(2, 3))
    good = [parameter.clone() for parameter in model.parameters()]
    guard.check(T3, now=True)
    step(1, torch.tensor([[1.0, 1, 1], [float("inf"), 0, 0]]))
    step(2, torch.ones(2, 3))
    assert all(torch.equal(a, b) for a, b in zip(good, model.parameters(), strict=True))
    guard.check(T3)  # not yet time to look
    step(3, torch.ones(2, 3))
    with pytest.raises(TrainingStopped, match=r"epoch 0, step 1 is not finite for sample 11 \(rotation 0\.05, "):
        guard.check(T3)


def test_a_gradient_that_is_not_finite_stops_too() -> None:
    model = nn.Linear(1, 1)
    made = TrainConfig().make_optimiser([model], torch.tensor(0.1))
    guard = Guard(made, torch.device("cpu"))
    guard.mask(torch.zeros(1), [torch.tensor([float("nan")])])
    guard.remember(2, 5, torch.tensor([0]), Stepped(torch.zeros(1), None, torch.zeros(1, 3)))
    with pytest.raises(TrainingStopped, match="gradient at epoch 2, step 5"):
        guard.check(T3, now=True)


@pytest.mark.parametrize("limit", [0.01, 1.0, 50.0, 1e6])
def test_gradients_are_clipped_as_torch_clips_them(limit: float) -> None:
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.zeros(*shape)) for shape in ((3, 4), (5,))]
    gradients = [torch.randn_like(weight) * 3 for weight in weights]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.clone()
    nn.utils.clip_grad_norm_(weights, limit)
    guard = Guard(TrainConfig().make_optimiser([nn.Linear(1, 1)], torch.tensor(0.1)), torch.device("cpu"))
    guard.mask(torch.zeros(1), gradients, limit)
    assert all(torch.allclose(a, b.grad, rtol=1e-5) for a, b in zip(gradients, weights, strict=True))  # type: ignore[arg-type]
    none = [torch.zeros(3)]
    guard.mask(torch.zeros(1), none, limit)
    assert torch.equal(none[0], torch.zeros(3))


def test_what_the_last_update_broke_is_not_kept(tmp_path: Path) -> None:
    """One step only: no loss of a training image is computed behind it."""
    told = {"data": "fashion-mini", "model": "lenet5", "epochs": 1, "batch_size": 6000, "schedule": "constant"}
    chosen = TrainConfig(**told, learning_rate=1e38, out=tmp_path / "run", device="cpu")  # type: ignore[arg-type]
    with pytest.raises(TrainingStopped, match="after epoch 0 the loss on the validation images is not finite"):
        train(chosen, quiet=True)
    assert not Run(tmp_path / "run").weights_path.exists() and not (tmp_path / "run" / "log.jsonl").exists()


def test_weights_that_are_not_finite_are_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    check_weights(model, {"epoch": 3})
    model.state_dict()["0.bias"][1] = float("nan")
    with pytest.raises(TrainingStopped, match=r"after epoch 3 0\.bias is not finite; this epoch is left out"):
        check_weights(model, {"epoch": 3})
    model.state_dict()["1.running_var"][0] = float("inf")
    with pytest.raises(TrainingStopped, match=r"0\.bias and 1 more is not finite"):
        check_weights(model, {"epoch": 3})


def test_training_stops_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fashion: DataSet
) -> None:
    class Poisoned(nn.Module):
        """Gives NaN for one sample, from the second epoch on."""

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(784, 10)
            self.bad = fashion.train.batch(torch.tensor([7]), "cpu").images[0]
            self.steps = 0

        def forward(self, x: Tensor) -> Tensor:
            self.steps += self.training
            same = (x == self.bad).flatten(1).all(1) & (self.steps > 40)
            return torch.where(same[:, None], torch.nan, self.head(x.flatten(1)))

    monkeypatch.setattr(loop, "make_model", lambda *_: Poisoned())
    monkeypatch.setattr("ukemi.training.setup.data_room.load", lambda *_, **__: load("fashion-mini"))
    config = TrainConfig(out=tmp_path / "run", batch_size=256, epochs=3, validation=0, device="cpu")
    with pytest.raises(TrainingStopped, match="not finite for sample 7;"):
        train(config, quiet=True)
    found, refused = Run(tmp_path / "run").last_checkpoint()
    assert found is not None and not refused and found.values["epoch"] == 1
    assert all(tensor.isfinite().all() for tensor in found.tensors.values())

"""DeepFool: the exact projection on a linear model, box, early leave, counts, batch mates, foolbox as the oracle."""

import warnings
from importlib import import_module
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks import slopes
from ukemi.attacks.base import Attacked
from ukemi.attacks.deepfool import deepfool
from ukemi.attacks.slopes import batched, looped
from ukemi.errors import UserError

Case = tuple[nn.Module, Tensor, Tensor]


@pytest.fixture
def linear() -> Case:
    """Five classes, images in the middle of the box, the model's own answers as labels: no projection meets the box."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 5)).double()
    images = torch.rand(30, 3, 4, 4, dtype=torch.float64) * 0.2 + 0.4
    with torch.no_grad():
        return model, images, model(images).argmax(1)


def nearest(model: nn.Module, images: Tensor, labels: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """The distance to the nearest boundary of a linear model `[N]`, and the point on it."""
    weight, bias = model[1].weight.detach(), model[1].bias.detach()
    flat = images.flatten(1)
    distances, points = [], []
    for row, label in zip(flat, labels, strict=True):
        others = [k for k in range(len(weight)) if k != label]
        slopes = weight[others] - weight[label]
        gaps = -(slopes @ row + bias[others] - bias[label])
        far = gaps / (slopes.norm(dim=1) if norm == "l2" else slopes.abs().sum(1))
        best = far.argmin()
        way = slopes[best] / slopes[best].norm() if norm == "l2" else slopes[best].sign()
        distances.append(far[best])
        points.append(row + far[best] * way)
    return torch.stack(distances), torch.stack(points).reshape(images.shape)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("overshoot", [0.02, 0.5])
def test_is_the_projection_on_a_linear_model(linear: Case, norm: str, overshoot: float) -> None:
    model, images, labels = linear
    distances, points = nearest(model, images, labels, norm)
    found = deepfool(model, images, labels, norm=norm, overshoot=overshoot)  # type: ignore[arg-type]
    assert found.success.all() and found.norm == norm
    assert torch.allclose(found.distance, (1 + overshoot) * distances, rtol=1e-9)
    assert torch.allclose(found.images, images + (1 + overshoot) * (points - images), atol=1e-12)
    assert (found.forwards == 3).all() and (found.backwards == 4).all()


def test_looks_at_no_more_classes_than_asked(linear: Case) -> None:
    found = deepfool(*linear, candidates=2)
    assert found.success.all() and (found.backwards == found.backwards[0]).all()
    assert int(found.backwards[0]) == (int(found.forwards[0]) - 1) // 2


def test_crosses_from_a_point_on_the_boundary() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    nn.init.constant_(model[1].weight, 0.5)
    with torch.no_grad():
        model[1].weight[1, 0] += 1
        model[1].weight[1, 1] -= 1
    images = torch.full((1, 1, 2, 2), 0.5)
    found = deepfool(model, images, torch.tensor([0]), overshoot=0.0)
    assert found.success.all() and 0 < float(found.distance) < 1e-4


def alike(one: Attacked, other: Attacked, rows: Tensor | slice = slice(None)) -> None:
    assert torch.allclose(one.images, other.images[rows], atol=1e-9)
    assert torch.equal(one.success, other.success[rows])
    assert torch.equal(one.forwards, other.forwards[rows]) and torch.equal(one.backwards, other.backwards[rows])


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_batch_mates_change_nothing(tiny_net: nn.Module, norm: str) -> None:
    model = tiny_net.double()
    images = torch.rand(9, 1, 28, 28, dtype=torch.float64)
    with torch.no_grad():
        labels = model.eval()(images).argmax(1)
    labels[:3] = (labels[:3] + 1) % 10  # three are wrong from the start
    together = deepfool(model, images, labels, norm=norm)  # type: ignore[arg-type]
    assert together.success.all() and (together.distance[:3] == 0).all() and (together.distance[3:] > 0).all()
    assert (together.forwards[:3] == 1).all() and (together.backwards[:3] == 0).all()
    for row in range(9):
        rows = torch.tensor([row])
        alike(deepfool(model, images[rows], labels[rows], norm=norm), together, rows)  # type: ignore[arg-type]
    order = torch.randperm(9)
    alike(deepfool(model, images[order], labels[order], norm=norm), together, order)  # type: ignore[arg-type]


def test_chunks_change_nothing(tiny_net: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = tiny_net.double().eval(), torch.rand(7, 1, 28, 28, dtype=torch.float64)
    with torch.no_grad():
        labels = model(images).argmax(1)
    sizes: list[int] = []
    model.register_forward_hook(lambda _module, given, _output: sizes.append(len(given[0])))
    whole = deepfool(model, images, labels)
    largest = max(sizes)
    monkeypatch.setattr("ukemi.models.inference.BUDGET", {"cpu": 784 * 3})
    sizes.clear()
    parts = deepfool(model, images, labels)
    assert max(sizes) <= 3 < largest  # it really went in parts
    alike(parts, whole)


def test_leaves_the_model_as_it_was(tiny_net: nn.Module) -> None:
    tiny_net.train()
    tiny_net[3].eval()
    before = {name: value.clone() for name, value in tiny_net.state_dict().items()}
    deepfool(tiny_net, torch.rand(4, 1, 28, 28), torch.arange(4), steps=2)
    assert tiny_net.training and not tiny_net[3].training
    assert all(parameter.grad is None for parameter in tiny_net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in tiny_net.state_dict().items())


def test_no_steps_give_the_clean_answer_and_failure_the_unchanged_image(trained: Case) -> None:
    model, images, labels = trained
    for steps in (0, 1):
        found = deepfool(model, images, labels, steps=steps)
        assert not found.success.all()
        assert torch.equal(found.images[~found.success], images[~found.success])
        assert (found.distance[~found.success] == 0).all()
    with torch.no_grad():
        clean = model(images).argmax(1) != labels
    assert torch.equal(deepfool(model, images, labels, steps=0).success, clean)


def test_a_flat_or_broken_model_is_survived() -> None:
    class Flat(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.flatten(1)[:, :3] * 0 + torch.tensor([2.0, 1.0, 0.5])

    images = torch.rand(3, 1, 4, 4)
    found = deepfool(Flat(), images, torch.zeros(3, dtype=torch.int64), steps=3)
    assert not found.success.any() and torch.equal(found.images, images)


def test_one_batched_backward_equals_one_per_class(trained: Case) -> None:
    model, images, _ = trained
    leaf = images[:6].clone().requires_grad_()
    weights = torch.randn(6, 4, 10)
    assert torch.allclose(batched(model(leaf), leaf, weights), looped(model(leaf), leaf, weights), atol=1e-6)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("no batching rule")])
def test_on_a_gpu_what_can_not_be_batched_is_looped_over(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def failing(*given: object) -> Tensor:
        tried.append(given)
        raise error

    many, victim = torch.rand(2, 4, 10), SimpleNamespace(batches=True)
    monkeypatch.setattr(slopes, "batched", failing)
    monkeypatch.setattr(slopes, "looped", lambda logits, leaf, weights: weights)
    for _ in range(3):
        assert slopes._all_at_once(victim, many, SimpleNamespace(is_cuda=True), many) is many  # type: ignore[arg-type]
    assert len(tried) == 1


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_agrees_with_foolbox(trained: Case, norm: str) -> None:
    foolbox = import_module("foolbox")
    model, images, labels = trained
    found = deepfool(model, images, labels, norm=norm)  # type: ignore[arg-type]
    assert found.images.min() >= 0 and found.images.max() <= 1
    kind = foolbox.attacks.L2DeepFoolAttack if norm == "l2" else foolbox.attacks.LinfDeepFoolAttack
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, theirs, success = kind()(foolbox.PyTorchModel(model, (0, 1), device="cpu"), images, labels, epsilons=None)
    model.zero_grad(set_to_none=True)
    change = (theirs - images).flatten(1)
    distance = change.norm(dim=1) if norm == "l2" else change.abs().amax(1)
    assert abs(float(found.success.float().mean() - success.float().mean())) <= 0.01
    moved = found.success & success & (found.distance > 0)
    assert float(found.distance[moved].median() / distance[moved].median()) == pytest.approx(1, abs=0.02)
    with torch.no_grad():
        assert torch.equal(model(found.images).argmax(1) != labels, found.success)


@pytest.mark.parametrize(
    ("field", "value"),
    [("norm", "l1"), ("steps", -1), ("overshoot", -0.1), ("overshoot", float("nan")), ("candidates", 1)],
)
def test_bad_input_names_its_field(linear: Case, field: str, value: object) -> None:
    with pytest.raises(UserError, match=f"^{field}: .*\\.$"):
        deepfool(*linear, **{field: value})  # type: ignore[arg-type]


def slow(model: nn.Module, image: Tensor, label: int, norm: str, steps: int) -> tuple[Tensor, bool]:
    """One image, every boundary in every step."""
    found, moved = image, torch.zeros_like(image)
    for _ in range(steps):
        leaf = found.clone().requires_grad_()
        logits = model(leaf[None])[0]
        if int(logits.argmax()) != label:
            return found, True
        best, nearest = torch.zeros_like(image), torch.inf
        for other in set(range(len(logits))) - {label}:
            (slope,) = torch.autograd.grad(logits[other] - logits[label], leaf, retain_graph=True)
            size = slope.norm() if norm == "l2" else slope.abs().sum()
            distance = float((logits[label] - logits[other]).detach() / size)
            if distance < nearest:
                best, nearest = slope / size if norm == "l2" else slope.sign(), distance
        moved = moved + max(nearest, 1e-5) * best
        found = (image + 1.02 * moved).clamp(0, 1)
    return found, int(model(found[None])[0].argmax()) != label


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_bent_network_gives_what_a_look_at_every_boundary_gives(norm: Literal["l2", "linf"]) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 10)).double()
    for layer in (1, 3):
        model[layer].weight.data *= 16  # so bent that the nearest boundary changes on the way
    images = torch.rand(24, 1, 5, 6, dtype=torch.float64)
    labels = model(images).argmax(1)
    found = deepfool(model, images, labels, norm=norm, steps=12)
    for at in range(len(images)):
        wanted, fooled = slow(model, images[at], int(labels[at]), norm, 12)
        assert bool(found.success[at]) == fooled
        assert torch.allclose(found.images[at], wanted if fooled else images[at], rtol=0, atol=1e-9)


def test_a_class_that_is_the_label_everywhere_is_no_boundary() -> None:
    """Neither a gap nor a slope: nothing divided by nothing."""

    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(12, 2)

        def forward(self, images: Tensor) -> Tensor:
            first, other = self.last(images.flatten(1)).unbind(1)
            return torch.stack([first, first, other], 1)

    model, images = Doubled().double(), torch.rand(20, 1, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        images = images[model(images).argmax(1) == 0]
    found = deepfool(model, images, torch.zeros(len(images), dtype=torch.int64))
    assert len(images) and found.success.any() and found.images.isfinite().all()

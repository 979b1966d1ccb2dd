"""C&W: near the optimum on a linear model, bounds, targets, early leave, batch mates, foolbox as the oracle."""

import warnings
from importlib import import_module

import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks.base import Attacked
from ukemi.attacks.carlini_wagner import carlini_wagner
from ukemi.errors import UserError

Case = tuple[nn.Module, Tensor, Tensor]


@pytest.fixture
def linear() -> Case:
    """Four classes, images in the middle of the box, the model's own answers as labels."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 4)).double()
    images = torch.rand(20, 3, 4, 4, dtype=torch.float64) * 0.2 + 0.4
    with torch.no_grad():
        return model, images, model(images).argmax(1)


def boundaries(model: nn.Module, images: Tensor, labels: Tensor, margin: float = 0) -> Tensor:
    """Distances `[N, K]` from each image to where each class leads the label by `margin`, on a linear model."""
    weight = model[1].weight.detach()
    with torch.no_grad():
        logits = model(images)
    gaps = logits.gather(1, labels[:, None]) - logits + margin
    sizes = (weight[None] - weight[labels][:, None]).norm(dim=2)
    return (gaps / sizes).scatter(1, labels[:, None], torch.inf)


@pytest.mark.parametrize("confidence", [0, 0.5])
def test_is_near_the_minimal_distance_on_a_linear_model(linear: Case, confidence: float) -> None:
    model, images, labels = linear
    found = carlini_wagner(model, images, labels, steps=300, confidence=confidence)
    least = boundaries(model, images, labels, confidence).amin(1)
    assert found.success.all() and found.norm == "l2"
    assert (found.distance >= least * (1 - 1e-9)).all()
    assert (found.distance <= least * 1.05).all()


@pytest.mark.parametrize("confidence", [0, 0.5])
def test_reaches_its_targets_near_the_minimal_distance(confidence: float) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double()
    images = torch.rand(10, 3, 4, 4, dtype=torch.float64) * 0.2 + 0.4
    with torch.no_grad():
        labels = model(images).argmax(1)
    found = carlini_wagner(model, images, labels, targets=1 - labels, steps=300, confidence=confidence)
    least = boundaries(model, images, labels, confidence).amin(1)
    assert found.success.all() and (found.distance >= least * (1 - 1e-9)).all()
    assert (found.distance <= least * 1.05).all()


def test_targets_on_a_network(trained: Case) -> None:
    model, images, labels = trained
    targets = (labels[:8] + 3) % 10
    found = carlini_wagner(model, images[:8], labels[:8], targets=targets, searches=7, steps=150)
    assert found.success.float().mean() >= 0.8
    with torch.no_grad():
        assert torch.equal(model(found.images).argmax(1) == targets, found.success)
    nearer = carlini_wagner(model, images[:8], labels[:8], searches=7, steps=150)
    assert nearer.distance.mean() < found.distance.mean()


def test_all_other_logits_below_zero() -> None:
    """The competing class is the best of the others, also where the label's logit is the only one above 0."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double()
    with torch.no_grad():
        model[1].weight *= 4
        logits = model(torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64))[0]
        model[1].bias += torch.tensor([1.0, -0.5, -1.0], dtype=torch.float64) - logits
    images = torch.rand(4, 1, 4, 4, dtype=torch.float64) * 0.1 + 0.45
    labels = torch.zeros(4, dtype=torch.int64)
    found = carlini_wagner(model, images, labels, searches=6, steps=200)
    assert found.success.all()
    assert (found.distance <= boundaries(model, images, labels).amin(1) * 1.05).all()
    assert found.images.min() >= 0 and found.images.max() <= 1


def test_pixels_at_the_bounds_move_and_stay_inside() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    images = (torch.rand(6, 1, 4, 4) > 0.5).float()
    with torch.no_grad():
        labels = model(images).argmax(1)
    found = carlini_wagner(model, images, labels, steps=300, rate=0.1)
    assert found.images.isfinite().all() and found.images.min() >= 0 and found.images.max() <= 1
    assert found.success.all() and (found.distance > 0).all()


def alike(one: Attacked, other: Attacked, rows: Tensor | slice = slice(None)) -> None:
    assert torch.allclose(one.images, other.images[rows], atol=1e-7)
    assert torch.equal(one.success, other.success[rows])
    assert torch.equal(one.forwards, other.forwards[rows]) and torch.equal(one.backwards, other.backwards[rows])


def test_images_of_black_and_white_alone_fall_at_their_minimal_distance() -> None:
    """Their pixels hardly move at first, which must not pass for a search that leads nowhere."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).double().requires_grad_(False)
    images = torch.rand(12, 1, 8, 8, dtype=torch.float64).round()
    logits = model(images)
    labels, gap = logits.argmax(1), (logits[:, 1] - logits[:, 0]).abs()
    slope = (model[1].weight[1] - model[1].weight[0]) * (labels * -2 + 1)[:, None]
    inward = slope.where((slope > 0) == (images.flatten(1) == 0), 0).norm(dim=1)  # the others are at their bound
    found = carlini_wagner(model, images, labels)
    assert found.success.all()
    assert (found.distance / (gap / inward)).max() < 1.05


def test_batch_mates_change_nothing() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.Tanh(), nn.Linear(12, 5)).double()
    images = torch.rand(6, 1, 6, 6, dtype=torch.float64)
    with torch.no_grad():
        labels = model(images).argmax(1)
    labels[:2] = (labels[:2] + 1) % 5  # two are wrong from the start
    together = carlini_wagner(model, images, labels, searches=5, steps=100)
    assert together.success.all() and (together.distance[:2] == 0).all()
    assert (together.forwards[:2] == 1).all() and (together.backwards[:2] == 0).all()
    assert len(together.forwards[2:].unique()) > 1, "samples should leave at different times"
    for row in range(6):
        rows = torch.tensor([row])
        alike(carlini_wagner(model, images[rows], labels[rows], searches=5, steps=100), together, rows)
    order = torch.randperm(6)
    alike(carlini_wagner(model, images[order], labels[order], searches=5, steps=100), together, order)


def test_counts_its_passes_and_calls_no_more(linear: Case) -> None:
    model, images, labels = linear
    seen = []
    handle = model.register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    found = carlini_wagner(model, images, labels, searches=3, steps=40, abort_early=False)
    handle.remove()
    assert (found.forwards == 1 + 3 * 40).all() and (found.backwards == 3 * 40).all()
    assert sum(seen) == int(found.forwards.sum())


def test_early_stop_saves_passes_at_nearly_the_same_distance(trained: Case) -> None:
    model, images, labels = trained
    early = carlini_wagner(model, images[:8], labels[:8], searches=5, steps=200)
    patient = carlini_wagner(model, images[:8], labels[:8], searches=5, steps=200, abort_early=False)
    assert torch.equal(early.success, patient.success)
    assert early.forwards.double().mean() < 0.8 * patient.forwards.double().mean()
    assert float(early.distance.mean() / patient.distance.mean()) < 1.01


def test_leaves_the_model_as_it_was(tiny_net: nn.Module) -> None:
    tiny_net.train()
    before = {name: value.clone() for name, value in tiny_net.state_dict().items()}
    carlini_wagner(tiny_net, torch.rand(3, 1, 28, 28), torch.arange(3), searches=1, steps=3)
    assert all(module.training for module in tiny_net.modules())
    assert all(parameter.grad is None for parameter in tiny_net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in tiny_net.state_dict().items())


def test_no_steps_give_the_clean_answer_and_failure_the_unchanged_image(trained: Case) -> None:
    model, images, labels = trained
    with torch.no_grad():
        clean = model(images).argmax(1) != labels
    for steps, searches in ((0, 9), (1, 1)):
        found = carlini_wagner(model, images, labels, steps=steps, searches=searches)
        assert torch.equal(found.success, clean)
        assert torch.equal(found.images, images) and (found.distance == 0).all()


def test_agrees_with_foolbox(trained: Case) -> None:
    foolbox = import_module("foolbox")
    model, images, labels = trained[0], trained[1][:30], trained[2][:30]
    found = carlini_wagner(model, images, labels, steps=150)
    attack = foolbox.attacks.L2CarliniWagnerAttack(steps=150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, theirs, success = attack(foolbox.PyTorchModel(model, (0, 1), device="cpu"), images, labels, epsilons=None)
    model.zero_grad(set_to_none=True)
    success &= theirs.flatten(1).any(1)  # where foolbox fails it gives a black image, which may well fool the model
    distance = (theirs - images).flatten(1).norm(dim=1)
    assert float(found.success.float().mean()) >= float(success.float().mean()) - 0.01
    moved = found.success & success & (found.distance > 0)
    assert moved.sum() >= 20
    assert float(found.distance[moved].median() / distance[moved].median()) < 1.02
    assert found.images.min() >= 0 and found.images.max() <= 1
    with torch.no_grad():
        assert torch.equal(model(found.images).argmax(1) != labels, found.success)


@pytest.mark.parametrize(
    ("field", "value"),
    [("confidence", -1.0), ("searches", 0), ("steps", -1), ("rate", 0.0), ("initial", -1.0), ("rate", float("nan"))],
)
def test_bad_input_names_its_field(linear: Case, field: str, value: float) -> None:
    with pytest.raises(UserError, match=f"^{field}: .*\\.$"):
        carlini_wagner(*linear, **{field: value})  # type: ignore[arg-type]

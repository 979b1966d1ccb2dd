"""JSMA: the best pair against all pairs, bounds and budget, both signs, targets, batch mates, ART as the oracle."""

import warnings
from importlib import import_module
from itertools import combinations
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks import saliency
from ukemi.attacks.base import Attacked
from ukemi.attacks.saliency import best_pairs, changed_features, jsma
from ukemi.errors import UserError

Case = tuple[nn.Module, Tensor, Tensor]


def by_force(aims: Tensor, others: Tensor, allowed: Tensor) -> list[int]:
    """The paper's algorithm 3 with both gains counted upwards: all pairs, the first of the best."""
    best, chosen = 0.0, [-1, -1]
    for p, q in combinations(range(len(aims)), 2):
        aim, other = float(aims[p]) + float(aims[q]), float(others[p]) + float(others[q])
        if allowed[p] and allowed[q] and aim > 0 and other > 0 and aim * other > best:
            best, chosen = aim * other, [p, q]
    return chosen


@pytest.mark.parametrize("kind", ["normal", "ties", "opposed", "few", "zeros"])
@pytest.mark.parametrize("features", [2, 6, 17])
def test_best_pair_equals_all_pairs(kind: str, features: int) -> None:
    aims, others = torch.randn(2, 300, features)
    if kind == "ties":
        aims, others = aims.round(), others.round()
    if kind == "opposed":
        others = (torch.rand(300, 1) - aims).float()
    if kind == "zeros":
        aims, others = aims * (torch.rand_like(aims) < 0.3), others * (torch.rand_like(aims) < 0.3)
    allowed = torch.rand(300, features) < (0.4 if kind == "few" else 1.0)
    found = best_pairs(aims, others, allowed)
    assert found.tolist() == [by_force(*row) for row in zip(aims, others, allowed, strict=True)]


def test_best_pair_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    aims = torch.randn(20, 40)
    others = (1 - aims).round(decimals=1)
    whole = best_pairs(aims, others, torch.ones_like(aims, dtype=torch.bool))
    monkeypatch.setattr("ukemi.attacks.saliency._PAIRS", 1)
    assert torch.equal(best_pairs(aims, others, torch.ones_like(aims, dtype=torch.bool)), whole)


def test_best_pair_of_many_features() -> None:
    """At 3,072 features all pairs of one image are 4.7 million."""
    aims, others = torch.randn(2, 3, 3072)
    found = best_pairs(aims, others, torch.ones_like(aims, dtype=torch.bool))
    for row in range(3):
        aim, other = aims[row].double()[:, None] + aims[row], others[row].double()[:, None] + others[row]
        score = (aim * other).where((aim > 0) & (other > 0), 0).triu(1)
        assert found[row].tolist() == list(divmod(int(score.flatten().argmax()), 3072))


def replayed(
    model: nn.Module, image: Tensor, label: int, target: int | None, theta: float, most: int, weighted: bool
) -> Tensor | None:
    """The attack on one image, told again by loops over the full Jacobian."""
    image, sign, changed = image.clone(), 1 if theta > 0 else -1, set()
    while True:
        logits = model(image[None])[0]
        said = int(logits.argmax())
        if said == target if target is not None else said != label:
            return image
        others = logits.clone()
        others[label] = -torch.inf
        aim = int(others.argmax()) if target is None else target
        slopes = torch.autograd.functional.jacobian(lambda x: model(x[None])[0], image).flatten(1) * sign
        room = (image < 1 if theta > 0 else image > 0).flatten()
        if len(changed) > most - 2:
            room &= torch.tensor([place in changed for place in range(len(room))])
        rest = torch.tensor([k != aim for k in range(len(logits))]).to(logits.dtype)
        if weighted:
            rest *= logits.detach().exp() / (rest * logits.detach().exp()).sum()
        pair = by_force(slopes[aim], -(rest @ slopes), room)
        if pair[0] < 0:
            ranked = slopes[aim].where(room, -torch.inf).argsort(descending=True, stable=True)[:2]
            if not slopes[aim].where(room, -torch.inf)[ranked].sum() > 0:
                return None
            pair = ranked.tolist()
        flat = image.flatten()
        flat[pair] = (flat[pair] + theta).clamp(0, 1)
        image = flat.reshape(image.shape)
        changed |= set(pair)


@pytest.mark.parametrize("theta", [1.0, 0.3, -1.0, -0.4])
@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("others", ["all", "likely"])
def test_equals_the_loops_on_six_features(theta: float, targeted: bool, others: Literal["all", "likely"]) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4)).double()
    nn.init.normal_(model[1].weight)
    nn.init.normal_(model[3].weight)
    images, labels = torch.rand(25, 1, 2, 3, dtype=torch.float64), torch.arange(25) % 4
    targets = (labels + 1 + torch.arange(25) % 3) % 4 if targeted else None
    found = jsma(model, images, labels, theta=theta, gamma=0.67, targets=targets, others=others)
    for row in range(25):
        aim = None if targets is None else int(targets[row])
        expected = replayed(model, images[row], int(labels[row]), aim, theta, 4, others == "likely")
        assert bool(found.success[row]) == (expected is not None)
        assert torch.allclose(found.images[row], images[row] if expected is None else expected, atol=1e-12)
    assert found.success.any() and not found.success.all()
    assert (changed_features(images, found) <= 4).all() and found.norm == "l2"


@pytest.mark.parametrize("theta", [1.0, -0.5])
def test_keeps_the_box_the_sign_and_the_share(trained: Case, theta: float) -> None:
    model, images, labels = trained
    found = jsma(model, images, labels, theta=theta, gamma=0.02)
    change = found.images - images
    assert found.images.min() >= 0 and found.images.max() <= 1
    assert (change >= 0).all() if theta > 0 else (change <= 0).all()
    assert int(changed_features(images, found).max()) <= 15
    assert found.success.any() and not found.success.all()
    assert (change[~found.success] == 0).all()
    assert torch.allclose(found.distance, change.flatten(1).norm(dim=1))
    with torch.no_grad():
        assert torch.equal(model(found.images).argmax(1) != labels, found.success)


def test_a_larger_share_is_never_weaker(trained: Case) -> None:
    success = [jsma(*trained, gamma=gamma).success for gamma in (0.01, 0.03, 0.1)]
    assert (success[0] <= success[1]).all() and (success[1] <= success[2]).all()


def alike(one: Attacked, other: Attacked, rows: Tensor | slice = slice(None)) -> None:
    assert torch.allclose(one.images, other.images[rows], atol=1e-12)
    assert torch.equal(one.success, other.success[rows])
    assert torch.equal(one.forwards, other.forwards[rows]) and torch.equal(one.backwards, other.backwards[rows])


def test_batch_mates_change_nothing_and_passes_are_counted(tiny_net: nn.Module) -> None:
    model, images = tiny_net.double().eval(), torch.rand(9, 1, 28, 28, dtype=torch.float64)
    with torch.no_grad():
        labels = model(images).argmax(1)
    labels[:3] = (labels[:3] + 1) % 10  # three are wrong from the start
    seen = []
    handle = model.register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    together = jsma(model, images, labels, theta=0.5, gamma=0.05)
    handle.remove()
    assert sum(seen) == int(together.forwards.sum())
    assert (together.distance[:3] == 0).all() and (together.forwards[:3] == 1).all()
    assert torch.equal(together.backwards, 2 * together.forwards)
    assert (together.forwards[3:] > 1).all() and together.success[3:].any()
    for row in range(9):
        rows = torch.tensor([row])
        alike(jsma(model, images[rows], labels[rows], theta=0.5, gamma=0.05), together, rows)
    order = torch.randperm(9)
    alike(jsma(model, images[order], labels[order], theta=0.5, gamma=0.05), together, order)


def test_a_step_takes_one_forward_pass_and_two_backward(trained: Case) -> None:
    model, images, labels = trained
    black = torch.zeros_like(images)  # so that every step changes two features that were not changed before
    found = jsma(model, black, labels, gamma=0.1, targets=(labels + 1) % 10)
    steps = changed_features(black, found)[found.success] // 2
    assert int(steps.max()) > 1 and torch.equal(found.forwards[found.success], steps + 1)
    assert torch.equal(found.backwards, 2 * found.forwards)


@pytest.mark.parametrize("width", [2, 5, 64])
@pytest.mark.parametrize("targeted", [False, True])
def test_steps_of_a_fixed_width_give_the_same(
    trained: Case, width: int, targeted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU takes them: some at once, with few features, in batches that keep what is solved for a while."""
    model, images, labels = trained
    told: dict[str, Any] = {"theta": 0.5, "targets": (labels + 1) % 10 if targeted else None}
    loose = jsma(model.double(), images.double(), labels, **told)
    for name, value in (("WIDTH", width), ("PATIENCE", 3), ("LEAVING", 0.5)):
        monkeypatch.setattr(f"ukemi.attacks.saliency.{name}", {"cpu": value})
    widths: list[int | None] = []
    plain = saliency._step

    def watched(*given: Any) -> None:
        widths.append(given[-2])
        plain(*given)

    monkeypatch.setattr(saliency, "_step", watched)
    alike(jsma(model, images.double(), labels, **told), loose)
    model.float()
    assert width in widths and (None in widths) == (width < 64)  # the narrow ones had to wait for a step by themselves


def test_labels_made_in_inference_mode_are_only_read(tiny_net: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(6, 1, 28, 28)
    with torch.inference_mode():
        labels = tiny_net.eval()(images).argmax(1)
    monkeypatch.setattr("ukemi.attacks.saliency.WIDTH", {"cpu": 2})  # a step by itself writes into the batch
    assert len(jsma(tiny_net, images, labels, theta=0.1, gamma=0.02).success) == 6


def test_leaves_the_model_as_it_was(tiny_net: nn.Module) -> None:
    tiny_net.train()
    before = {name: value.clone() for name, value in tiny_net.state_dict().items()}
    jsma(tiny_net, torch.rand(4, 1, 28, 28), torch.arange(4), gamma=0.01)
    assert all(module.training for module in tiny_net.modules())
    assert all(parameter.grad is None for parameter in tiny_net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in tiny_net.state_dict().items())


def test_is_not_weaker_than_art(trained: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evasion = import_module("art.attacks.evasion")
        classification = import_module("art.estimators.classification")
        model, images, labels = trained
        targets = (labels + 1 + torch.arange(len(labels)) % 9) % 10
        wrapped = classification.PyTorchClassifier(
            model, nn.CrossEntropyLoss(), (1, 28, 28), 10, clip_values=(0, 1), device_type="cpu"
        )
        attack = evasion.SaliencyMapMethod(wrapped, theta=1.0, gamma=0.05, batch_size=100, verbose=False)
        theirs = torch.from_numpy(attack.generate(images.numpy(), targets.numpy()))
    model.eval().zero_grad(set_to_none=True)
    with torch.no_grad():
        success = model(theirs).argmax(1) == targets
    found = jsma(model, images, labels, theta=1.0, gamma=0.05, targets=targets)
    assert float(found.success.float().mean()) >= float(success.float().mean()) - 0.01
    both = found.success & success
    assert changed_features(images, found)[both].median() <= (theirs != images).flatten(1).sum(1)[both].median()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("others", "some"),
        ("theta", 0.0),
        ("theta", 1e-9),
        ("theta", 1.5),
        ("theta", float("nan")),
        ("gamma", 0.0),
        ("gamma", 1.1),
        ("gamma", 0.001),
    ],
)
def test_bad_input_names_its_field(trained: Case, field: str, value: object) -> None:
    with pytest.raises(UserError, match=f"^{field}: .*\\.$"):
        jsma(*trained, **{field: value})  # type: ignore[arg-type]


def test_features_whose_gains_are_no_numbers_are_in_no_pair() -> None:
    nan, inf = torch.nan, torch.inf
    aims = torch.tensor([[9.0, nan, 2.0, 1.0, inf], [nan, nan, nan, nan, 1.0]])
    others = torch.tensor([[nan, 9.0, 1.0, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    assert best_pairs(aims, others, torch.ones_like(aims, dtype=torch.bool)).tolist() == [[2, 3], [-1, -1]]

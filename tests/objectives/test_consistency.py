"""Consistency against its formulas, slowly."""

import copy
import math
from collections.abc import Callable
from itertools import product
from typing import get_args

import pytest
import torch
import tyro
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ukemi import UserError
from ukemi.models import create
from ukemi.objectives import Consistency, CrossEntropy
from ukemi.objectives.consistency import Statistics, kl, l2

INDEX = torch.arange(6)
LABELS = torch.tensor([0, 1, 2, 3, 0, 1])
pairs = st.integers(2, 6).flatmap(
    lambda k: st.lists(st.tuples(*[st.lists(st.floats(-30, 30, width=32), min_size=k, max_size=k)] * 2), min_size=1)
)


class Given(nn.Module):
    """Gives its input as logits, times a weight of 1 that a gradient can reach."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, logits: Tensor) -> Tensor:
        return logits * self.weight


def slow_kl(clean: list[float], worst: list[float]) -> float:
    def log_p(logits: list[float]) -> list[float]:
        top = max(logits)
        total = top + math.log(math.fsum(math.exp(z - top) for z in logits))
        return [z - total for z in logits]

    return math.fsum(math.exp(c) * (c - w) for c, w in zip(log_p(clean), log_p(worst), strict=True))


@given(pairs)
def test_distances_equal_their_sums(rows: list[tuple[list[float], list[float]]]) -> None:
    clean_NK, worst_NK = (torch.tensor(side) for side in zip(*rows, strict=True))
    for found, (clean, worst) in zip(kl(clean_NK, worst_NK).tolist(), rows, strict=True):
        assert found == pytest.approx(slow_kl(clean, worst), rel=1e-4, abs=2e-5) and found > -2e-5
    for found, (clean, worst) in zip(l2(clean_NK, worst_NK).tolist(), rows, strict=True):
        assert found == pytest.approx(math.fsum((c - w) ** 2 for c, w in zip(clean, worst, strict=True)) / 4, rel=1e-5)


def test_closed_forms() -> None:
    clean_NK = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [1000.0, 0.0]])
    worst_NK = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [1000.0, 0.0]])
    expected = [math.log(2 / math.sqrt(3)), 0.75 * math.log(1.5) + 0.25 * math.log(0.5), 0.0]
    assert kl(clean_NK, worst_NK).tolist() == pytest.approx(expected, abs=1e-6)
    assert l2(clean_NK, worst_NK).tolist() == pytest.approx([math.log(3) ** 2 / 4, math.log(3) ** 2 / 4, 0.0])


@pytest.mark.parametrize(("kind", "distance"), [("kl", kl), ("l2", l2)])
@pytest.mark.parametrize("weight", [8, 0.5])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_cross_entropy_and_weight_times_distance(
    kind: str, distance: Callable[[Tensor, Tensor], Tensor], weight: float, smoothing: float
) -> None:
    clean_NK, worst_NK, model = torch.randn(6, 4), torch.randn(6, 4), Given()
    parts = {
        name: CrossEntropy(smoothing)(model, logits, LABELS, INDEX, 0).losses
        for name, logits in (("clean", clean_NK), ("worst", worst_NK))
    }
    parts["both"] = (parts["clean"] + parts["worst"]) / 2
    for labels_on, cross_entropy in parts.items():
        objective = Consistency(smoothing, kind=kind, weight=weight, labels_on=labels_on)
        outcome = objective(model, worst_NK, LABELS, INDEX, 0, clean_NK)
        # smoothing is in the cross-entropy alone: the distance is that of the plain logits
        expected = cross_entropy + weight * distance(clean_NK, worst_NK)
        assert torch.allclose(outcome.losses, expected, atol=1e-6) and torch.equal(outcome.logits, worst_NK)


def slow_losses(clean_NK: Tensor, worst_NK: Tensor, kind: str, labels_on: str, stop_clean: bool) -> Tensor:
    """The formula with plain probabilities, weight 2."""
    p_NK, q_NK = (logits.exp() / logits.exp().sum(1, keepdim=True) for logits in (clean_NK, worst_NK))
    rows = torch.arange(len(p_NK))
    entropies = {"clean": -p_NK[rows, LABELS].log(), "worst": -q_NK[rows, LABELS].log()}
    entropies["both"] = (entropies["clean"] + entropies["worst"]) / 2
    p_NK, held_NK = (p_NK.detach(), clean_NK.detach()) if stop_clean else (p_NK, clean_NK)
    far = (p_NK * (p_NK / q_NK).log()).sum(1) if kind == "kl" else ((held_NK - worst_NK) ** 2).sum(1) / 4
    return entropies[labels_on] + 2 * far


@pytest.mark.parametrize(
    ("kind", "labels_on", "stop_clean", "statistics"),
    [
        setting
        for setting in product(["kl", "l2"], ["worst", "clean", "both"], [False, True], get_args(Statistics))
        if setting[1:] != ("worst", True, "separate-clean")  # refused: the model's own BatchNorm would not be trained
    ],
)
def test_gradients_are_those_of_the_formula(kind: str, labels_on: str, stop_clean: bool, statistics: str) -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 4)).double()
    clean_model = copy.deepcopy(model)
    worst_model = clean_model if statistics == "shared" else copy.deepcopy(model)
    clean, worst = torch.randn(2, 6, 5).double()
    objective = Consistency(kind=kind, weight=2, labels_on=labels_on, statistics=statistics, stop_clean=stop_clean)
    objective.attach(model)
    objective(model, worst, LABELS, INDEX, 0, clean).losses.mean().backward()
    if statistics == "shared":
        clean_NK, worst_NK = clean_model(torch.cat([clean, worst])).chunk(2)
    else:
        clean_NK, worst_NK = clean_model(clean), worst_model(worst)
    slow_losses(clean_NK, worst_NK, kind, labels_on, stop_clean).mean().backward()

    kept, other = (clean_model, worst_model) if statistics == "separate-clean" else (worst_model, clean_model)
    for name, weight in model.named_parameters():
        used = {kept} if name.startswith("1.") else {kept, other}  # 1 is the BatchNorm, of which each half has one
        gradients = [side.get_parameter(name).grad for side in used]
        expected = sum(gradient for gradient in gradients if gradient is not None)
        assert torch.allclose(weight.grad, expected, rtol=1e-4, atol=1e-6), name
    extra = objective.extra()
    for weight, slow in zip(extra.parameters(), other[1].parameters(), strict=True) if extra else ():
        assert (weight.grad is None) == (slow.grad is None)
        assert weight.grad is None or torch.allclose(weight.grad, slow.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"statistics": "separate-clean", "stop_clean": True}, "labels on worst, separate-clean statistics and stop"),
        ({"statistics": "separate-clean", "weight": 0}, "labels on worst, separate-clean statistics and weight 0"),
        ({"statistics": "separate-worst", "weight": 0, "labels_on": "clean"}, "labels on clean, separate-worst"),
    ],
)
def test_settings_that_never_train_the_kept_batchnorm_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=f"^objective: .*{says}.*\\.$"):
        Consistency(**({"labels_on": "worst"} | settings))
    Consistency(**(settings | {"labels_on": "both"}))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_weight_0_without_batchnorm_is_cross_entropy(smoothing: float) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    nn.init.constant_(model[1].bias, 0.5)
    model[1].weight.data = torch.randint(-8, 9, (4, 16)) / 4
    # such numbers add up exactly, in any order: a row's logits don't hang on the rows beside it
    worst, clean = torch.randint(0, 9, (2, 6, 1, 4, 4)) / 8
    found = Consistency(smoothing, weight=0, labels_on="worst")(model, worst, LABELS, INDEX, 0, clean)
    expected = CrossEntropy(smoothing)(model, worst, LABELS, INDEX, 0)
    assert torch.equal(found.losses, expected.losses) and torch.equal(found.logits, expected.logits)


def test_weight_0_with_separate_statistics_trains_the_bits_of_cross_entropy(tiny_net: nn.Module) -> None:
    plain = copy.deepcopy(tiny_net.train())
    objective = Consistency(0.1, weight=0, labels_on="worst", statistics="separate-worst")
    objective.attach(tiny_net)
    for step in range(3):
        worst, clean = torch.rand(2, 6, 1, 28, 28)
        outcomes = []
        for model, trained in ((tiny_net, objective), (plain, CrossEntropy(0.1))):
            torch.manual_seed(step)  # dropout
            outcomes.append(trained(model, worst, LABELS, INDEX, 0, clean))
            outcomes[-1].losses.mean().backward()
            for weight in model.parameters():
                weight.data -= 0.1 * weight.grad
                weight.grad = None
        assert torch.equal(outcomes[0].losses, outcomes[1].losses)
        assert torch.equal(outcomes[0].logits, outcomes[1].logits)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, tiny_net.state_dict()[name])


@pytest.mark.parametrize("statistics", ["separate-worst", "separate-clean"])
def test_separate_statistics_are_those_of_models_that_saw_one_half(statistics: str) -> None:
    model = create("demo-cnn", classes=10, channels=1, size=(28, 28)).train()
    saw = {"worst": copy.deepcopy(model), "clean": copy.deepcopy(model)}
    objective = Consistency(statistics=statistics)
    objective.attach(model)
    for _ in range(3):
        clean = torch.rand(6, 1, 28, 28)
        worst = clean**3
        objective(model, worst, LABELS, INDEX, 0, clean)
        saw["worst"](worst), saw["clean"](clean)
    kept = saw.pop(statistics.removeprefix("separate-"))
    other = [layer for layer in next(iter(saw.values())).modules() if isinstance(layer, nn.BatchNorm2d)]
    extra = objective.extra()
    assert extra is not None
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in kept.state_dict().items())
    expected = nn.ModuleList(other).state_dict()
    assert all(torch.equal(tensor, extra.state_dict()[f"second.{name}"]) for name, tensor in expected.items())
    assert model.eval()(torch.rand(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("statistics", ["shared", "separate-worst"])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_memory_format_of_the_images_reaches_the_model(statistics: str, mixed: bool) -> None:
    seen = []

    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.is_contiguous(memory_format=torch.channels_last))
            return x

    model = nn.Sequential(Looks(), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 4))
    objective = Consistency(statistics=statistics)
    objective.attach(model)
    worst, clean = (part.contiguous(memory_format=torch.channels_last) for part in torch.rand(2, 6, 3, 4, 4))
    objective(model, worst, LABELS, INDEX, 0, clean.contiguous() if mixed else clean)
    assert seen == [True] * (1 if statistics == "shared" else 2)


def test_equal_images_have_no_distance_in_mixed_precision() -> None:
    model = create("demo-cnn", classes=10, channels=1, size=(28, 28)).train()
    images = torch.rand(6, 1, 28, 28)
    for statistics in ("separate-worst", "separate-clean"):
        objective = Consistency(statistics=statistics)
        objective.attach(model)
        with torch.autocast("cpu", torch.bfloat16):
            outcome = objective(model, images, LABELS, INDEX, 0, images)
            expected = CrossEntropy()(model, images, LABELS, INDEX, 0)
        assert outcome.logits.dtype == torch.float32
        # bit for bit: both sets are still equal, and so are the halves
        assert torch.equal(outcome.losses, expected.losses)


def test_what_is_missing_is_named(tiny_net: nn.Module) -> None:
    worst, clean = torch.rand(2, 6, 1, 28, 28)
    with pytest.raises(
        UserError, match=r"^objective: consistency needs clean images of \[6, 1, 28, 28\], but got none"
    ):
        Consistency()(tiny_net, worst, LABELS, INDEX, 0)
    with pytest.raises(UserError, match=r"but got \[5, 1, 28, 28\]\.$"):
        Consistency()(tiny_net, worst, LABELS, INDEX, 0, clean[:5])
    with pytest.raises(UserError, match=r"^objective: separate statistics need attach\(model\)"):
        Consistency(statistics="separate-clean")(tiny_net, worst, LABELS, INDEX, 0, clean)
    with pytest.raises(UserError, match=r"^model: it has no BatchNorm"):
        Consistency(statistics="separate-clean").attach(nn.Linear(2, 2))
    Consistency().attach(nn.Linear(2, 2))


def test_the_command_line_fills_the_settings() -> None:
    arguments = ["--weight", "1/2", "--labels-on", "both", "--stop-clean"]
    assert tyro.cli(Consistency.Config, args=arguments) == Consistency.Config(
        weight=0.5, labels_on="both", stop_clean=True
    )
    assert tyro.cli(Consistency.Config, args=[]).weight == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("statistics", ["shared", "separate-worst", "separate-clean"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_captured_step_gives_the_bits_of_an_eager_one(
    statistics: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    first = create("resnet20", classes=10, channels=3, size=(32, 32)).cuda().train()
    first = first.to(memory_format=torch.channels_last)
    batches = torch.rand(8, 2, 6, 3, 32, 32, device="cuda")
    ended = []
    for captured in (False, True):
        model = copy.deepcopy(first)
        objective = Consistency(statistics=statistics)
        objective.attach(model)
        extra = objective.extra()
        both = nn.ModuleList([model] if extra is None else [model, extra])
        optimiser = torch.optim.SGD(both.parameters(), lr=torch.tensor(0.05, device="cuda"), momentum=0.9, fused=True)
        labels, index, place = LABELS.cuda(), INDEX.cuda(), batches[0].clone()

        def step(
            model: nn.Module = model,
            objective: Consistency = objective,
            optimiser: torch.optim.Optimizer = optimiser,
            rows: tuple[Tensor, Tensor, Tensor] = (place, labels, index),
        ) -> Tensor:
            worst, clean = (part.contiguous(memory_format=torch.channels_last) for part in rows[0])
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
                outcome = objective(model, worst, rows[1], rows[2], 0, clean)
            optimiser.zero_grad(set_to_none=True)
            outcome.losses.mean().backward()
            optimiser.step()
            return outcome.losses.detach()

        graph, losses = torch.cuda.CUDAGraph(), []
        with torch.cuda.stream(torch.cuda.Stream()):
            for number, batch in enumerate(batches):
                place.copy_(batch)
                if not captured or number < 3:
                    losses.append(step().clone())
                    continue
                if number == 3:
                    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                        result = step()
                graph.replay()
                losses.append(result.clone())
        torch.cuda.synchronize()
        ended.append((torch.stack(losses), both.state_dict()))
    (eager, eager_state), (replayed, replayed_state) = ended
    assert torch.equal(eager, replayed) and eager.isfinite().all()
    assert all(torch.equal(eager_state[name], replayed_state[name]) for name in eager_state)

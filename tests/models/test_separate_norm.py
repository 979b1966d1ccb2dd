"""A second set of BatchNorm tensors: each set sees its own batches, and the model stays what it was."""

import copy

import pytest
import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.models import SeparateNorm, create


def network() -> nn.Module:
    return create("demo-cnn", classes=10, channels=1, size=(28, 28)).train()


def own(model: nn.Module) -> list[nn.Module]:
    return [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]


def same(first: nn.Module, second: nn.Module) -> bool:
    left, right = first.state_dict(), second.state_dict()
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)


def test_each_set_sees_only_its_own_batches() -> None:
    model = network()
    alone = {"kept": copy.deepcopy(model), "other": copy.deepcopy(model)}
    separate = SeparateNorm(model)
    for _ in range(3):
        kept_NCHW, other_NCHW = torch.rand(8, 1, 28, 28), torch.rand(8, 1, 28, 28) ** 3
        assert torch.equal(model(kept_NCHW), alone["kept"](kept_NCHW))
        with separate.swapped():
            assert torch.equal(model(other_NCHW), alone["other"](other_NCHW))
    assert same(model, alone["kept"]) and not same(model, alone["other"])
    assert all(same(*pair) for pair in zip(separate.second, own(alone["other"]), strict=True))


def test_the_model_stays_a_plain_model() -> None:
    model = network()
    keys, tensors = list(model.state_dict()), [id(tensor) for tensor in model.state_dict(keep_vars=True).values()]
    shape = str(model)
    separate = SeparateNorm(model)
    with separate.swapped():
        model(torch.rand(4, 1, 28, 28)).sum().backward()
    assert list(model.state_dict()) == keys and str(model) == shape
    assert [id(tensor) for tensor in model.state_dict(keep_vars=True).values()] == tensors
    assert not set(map(id, separate.parameters())) & set(map(id, model.parameters()))
    assert len(list(separate.parameters())) == 2 * len(own(model))
    assert same(copy.deepcopy(model), model) and model.eval()(torch.rand(1, 1, 28, 28)).shape == (1, 10)


def test_an_error_within_swaps_back() -> None:
    model = network()
    separate = SeparateNorm(model)
    before = [id(layer.weight) for layer in own(model)]
    with pytest.raises(RuntimeError), separate.swapped():
        model(torch.rand(4, 2, 28, 28))
    assert [id(layer.weight) for layer in own(model)] == before


def test_off_runs_on_the_models_own_set() -> None:
    model = network()
    separate = SeparateNorm(model)
    with separate.swapped(False):
        model(torch.rand(4, 1, 28, 28))
    assert own(model)[0].running_mean.any() and not separate.second[0].running_mean.any()


def test_gradients_go_to_the_set_that_was_used() -> None:
    model = network()
    separate = SeparateNorm(model)
    with separate.swapped():
        loss = model(torch.rand(4, 1, 28, 28)).square().sum()
    loss.backward()  # outside: the graph holds the tensors, not the layers
    assert all(weight.grad is not None for weight in separate.parameters())
    assert all(weight.grad is None for layer in own(model) for weight in layer.parameters())
    assert model.network[0].weight.grad is not None


def test_shared_weights_get_the_sum_of_both_gradients() -> None:
    model = network()
    first, second = copy.deepcopy(model), copy.deepcopy(model)
    separate = SeparateNorm(model)
    kept_NCHW, other_NCHW = torch.rand(8, 1, 28, 28), torch.rand(8, 1, 28, 28)
    with separate.swapped():
        loss = model(other_NCHW).square().mean()
    (loss + model(kept_NCHW).square().mean()).backward()
    first(kept_NCHW).square().mean().backward()
    second(other_NCHW).square().mean().backward()
    norms = {id(weight) for layer in own(model) for weight in layer.parameters()}
    for weight, one, two in zip(model.parameters(), first.parameters(), second.parameters(), strict=True):
        assert torch.allclose(weight.grad, one.grad if id(weight) in norms else one.grad + two.grad, atol=1e-6)
    others = [weight for layer in own(second) for weight in layer.parameters()]
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(separate.parameters(), others, strict=True))


def test_a_state_is_taken_back() -> None:
    model = network()
    separate, fresh = SeparateNorm(model), SeparateNorm(model)
    with separate.swapped():
        model(torch.rand(4, 1, 28, 28))
    fresh.load_state_dict(separate.state_dict())
    assert same(fresh, separate) and "second.0.running_mean" in fresh.state_dict()
    x_NCHW = torch.rand(4, 1, 28, 28)
    answers = []
    for used in (separate, fresh):
        with used.swapped():
            answers.append(model.eval()(x_NCHW))
    assert torch.equal(*answers)


def test_layers_without_weights_and_frozen_ones_stay_so() -> None:
    model = nn.Sequential(nn.BatchNorm2d(1, affine=False), nn.BatchNorm2d(1, track_running_stats=False))
    model[1].requires_grad_(False)
    separate = SeparateNorm(model)
    with separate.swapped():
        model(torch.rand(4, 1, 8, 8))
    assert [weight.requires_grad for weight in separate.parameters()] == [False, False]
    assert set(separate.state_dict()) == {f"second.{name}" for name in model.state_dict()}


def test_a_network_without_batchnorm_is_refused() -> None:
    with pytest.raises(UserError, match=r"^model: it has no BatchNorm layer.*\.$"):
        SeparateNorm(create("lenet5", classes=10, channels=1, size=(28, 28)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports what torch calls old
def test_a_compiled_network_is_compiled_once() -> None:
    model = network()
    plain = copy.deepcopy(model)
    separate, plain_separate = SeparateNorm(model), SeparateNorm(plain)
    compiled = 0

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal compiled
        compiled += 1
        return graph

    fast = torch.compile(model, backend=backend)
    for on in (False, True, False, True):
        x_NCHW = torch.rand(4, 1, 28, 28)
        with separate.swapped(on):
            found = fast(x_NCHW)
        with plain_separate.swapped(on):
            assert torch.allclose(found, plain(x_NCHW), atol=1e-5)
    assert compiled == 1
    left, right = separate.state_dict(), plain_separate.state_dict()
    assert all(torch.allclose(left[name], right[name]) for name in left)
    torch.compiler.reset()
